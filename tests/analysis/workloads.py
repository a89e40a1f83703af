"""Objects as clusters hold them, at random, with the flaws that they have there."""

from __future__ import annotations

from random import Random
from typing import Any

from kube_sync.opa.analysis.result import Collection

ROOTS = {
    "clusters": Collection(("kubernetes", "clusters")),
    "namespaces": Collection(("kubernetes", "namespaces"), namespaced=False),
    "nodes": Collection(("kubernetes", "nodes"), namespaced=False),
    "replicasets": Collection(("kubernetes", "replicasets")),
    "rolebindings": Collection(("kubernetes", "rolebindings")),
    "roles": Collection(("kubernetes", "roles")),
}
_NAMESPACES = ("default", "team-a", "fleet")
_IMAGES = ("registry.example/app:1", "img.example/x@sha256:1", "nginx", "nginx:latest", "a/b:2")
_REQUESTS = (
    '{"clusters": {"one": {"weight": 1}, "two": {}}}',
    '{"clusters": {"*": {}}}',
    "{}",
    "{",
)


class Workloads:
    """Makes objects."""

    def __init__(self, random: Random) -> None:
        self.random = random

    def world(self) -> dict[str, Any]:
        """Return what lies at data.kubernetes."""
        return {
            "clusters": self._spaced(self._cluster, ("one", "two", "three")),
            "namespaces": {name: self._named(name, "") for name in _NAMESPACES},
            "nodes": {name: self._node(name) for name in ("app-1", "app-2", "node")},
            "replicasets": self._spaced(self.target, ("app-1", "app-2")),
            "rolebindings": self._spaced(self._binding, ("readers", "builders")),
            "roles": self._spaced(self._role, ("read", "build")),
        }

    def target(self, namespace: str = "", name: str = "") -> dict[str, Any]:
        """Return a workload."""
        kind = self._one("Pod", "ReplicaSet", "ReplicaSet", "Deployment")
        spaces = ("default", "default", "team-a")
        found = self._named(name or self._one("app-1", "app-2"), namespace or self._one(*spaces))
        found["kind"] = kind
        found["spec"] = spec = self._pod_spec()
        if self._maybe(0.8):
            spec["replicas"] = self._one(0, 1, 2, 3, 5, "2")
        if kind != "Pod" or self._maybe(0.1):
            spec["template"] = {"metadata": {"labels": {"app": "a"}}, "spec": self._pod_spec()}
        return found

    def _one(self, *choices: Any) -> Any:
        return self.random.choice(choices)

    def _flag(self) -> bool:
        return self._maybe()

    def _maybe(self, chance: float = 0.5) -> bool:
        return self.random.random() < chance

    def _some(self, **members: Any) -> dict[str, Any]:
        return {name: value for name, value in members.items() if self._maybe(0.7)}

    def _spaced(self, make: Any, names: tuple[str, ...]) -> dict[str, Any]:
        return {
            namespace: {name: make(namespace, name) for name in names if self._maybe(0.8)}
            for namespace in _NAMESPACES
        }

    def _named(self, name: str, namespace: str) -> dict[str, Any]:
        metadata = {
            "name": name,
            "namespace": namespace,
            "uid": str(self.random.random()),
            "labels": self._labels(),
            "annotations": self._annotations(),
        }
        if self._maybe(0.1):
            del metadata[self._one("labels", "annotations")]
        return {"apiVersion": "v1", "kind": "Thing", "metadata": metadata}

    def _labels(self) -> dict[str, Any]:
        return self._some(
            **{"topology.kubernetes.io/region": self._one("europe-1", "us-1"), "cost-centre": "7"},
            app=self._one("a", "b"),
            team=self._one("red", "Blue"),
            tier=self._one("gold", "silver", "tin"),
            zone=self._one("x", "y"),
        )

    def _annotations(self) -> dict[str, Any]:
        return self._some(
            **{
                "placement/selector": self._one('{"tier": "gold"}', '{"zone": "x"}', "{}"),
                "policy/pci-level": self._one("1", "2"),
                "pci-level": self._one("1", "2", "3"),
            },
            preferences=self._one(*_REQUESTS),
            cost=self._one("1", "2"),
            quota=self._one("3", "5", "9"),
        )

    def _cluster(self, namespace: str, name: str) -> dict[str, Any]:
        ready = {"type": "Ready", "status": self._one("True", "False"), "reason": "r"}
        conditions = [{"type": "Joined", "status": "True"}, ready][self._one(0, 1) :]
        return self._named(name, namespace) | {
            "spec": self._some(unschedulable=self._flag()),
            "status": {"allocatable": {"cpu": self._one("2", "8")}, "conditions": conditions},
        }

    def _node(self, name: str) -> dict[str, Any]:
        taints = [
            {"key": self._one("gpu", "old"), "effect": self._one("NoSchedule", "NoExecute")}
            for _ in range(self._one(0, 1, 2))
        ]
        spec = self._some(taints=taints, unschedulable=self._flag())
        return self._named(name, "") | {"spec": spec}

    def _binding(self, namespace: str, name: str) -> dict[str, Any]:
        subjects = [
            {"kind": self._one("ServiceAccount", "User"), "name": self._one("default", "builder")}
            for _ in range(self._one(0, 1, 2))
        ]
        role = {"kind": "Role", "name": self._one("read", "build")}
        return self._named(name, namespace) | {"roleRef": role, "subjects": subjects}

    def _role(self, namespace: str, name: str) -> dict[str, Any]:
        rules = [
            {
                "resources": self._one(["pods"], ["secrets", "pods"], ["nodes"]),
                "verbs": self._one(["get"], ["create", "get"], ["*"], ["bind"]),
            }
            for _ in range(self._one(1, 2))
        ]
        return self._named(name, namespace) | {"rules": rules}

    def _pod_spec(self) -> dict[str, Any]:
        spec = self._some(
            hostNetwork=self._flag(),
            hostPID=True,
            initContainers=[self._container("init")],
            nodeName=self._one("node", "app-1", "none"),
            securityContext=self._some(runAsUser=self._one(0, 1000)),
            serviceAccountName=self._one("default", "builder"),
            tolerations=[{"key": self._one("gpu", "old")}],
            volumes=[
                {"name": "v", self._one("hostPath", "nfs", "emptyDir"): {}},
                {"name": "w", "secret": self._one("secret", {"name": "secret"})},
            ],
        )
        names = ("c1", "c2", "c3")[: self._one(0, 1, 1, 2, 3)]
        return spec | {"containers": [self._container(name) for name in names]}

    def _container(self, name: str) -> dict[str, Any]:
        limits = self._some(cpu="1", memory="1Gi")
        capabilities = {"add": self._one([], ["CHOWN"], ["SYS_ADMIN", "CHOWN"])}
        context = self._some(
            capabilities=capabilities,
            privileged=self._flag(),
            runAsUser=self._one(0, 1000),
        )
        return {"name": name, "image": self._one(*_IMAGES)} | self._some(
            imagePullPolicy=self._one("Always", "Never"),
            livenessProbe={"httpGet": {}},
            readinessProbe={"exec": {}},
            ports=[{"containerPort": 80} | self._some(hostPort=self._one(80, 443))],
            resources={"limits": limits},
            securityContext=context,
        )
