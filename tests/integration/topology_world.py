"""`kube-sync topology --live` as a process on a cluster of its own, and what it says there.

The cluster is one of its own since all of it is one topology. The process has exactly the rights of
`manifests/topology-rbac`; the API server's audit log is the witness of what it asks for.
"""

from __future__ import annotations

import base64
import json
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from kube_sync.topology.status.owned_configmaps import KEY, NAME
from tests.commandline import kube_sync
from tests.fakes.topologies import GROUP, NS, Object, gateway_class
from tests.integration.test_topology_roles import allowed
from tools.servers.apiserver import write_kubeconfig
from tools.servers.files import write_file
from tools.servers.http import get
from tools.servers.processes import ProcessLauncher, ProcessServer
from tools.servers.running import ServerSpec, free_port
from tools.servers.stack import RunningStack

ROOT = Path(__file__).resolve().parents[2]
ACCOUNT = "system:serviceaccount:kube-sync:kube-sync-topology"
OURS = "kube-sync.io/topology"
AFFECTED = "kube-sync.io/ColorPolicyAffected"
LEASE = "kube-sync-topology"
# Objects that a topology is made of, with what says which kinds are policies.
_KINDS = ("gatewayclasses", "gateways", "listenersets", "referencegrants")
_ROUTES = ("httproutes", "grpcroutes", "tcproutes", "tlsroutes", "udproutes")
_GATEWAY_API = [f"{kind}.{GROUP}" for kind in (*_KINDS, *_ROUTES)]
EVERYTHING = [*_GATEWAY_API, "services", "namespaces", "colorpolicies"]
COLORPOLICIES = "colorpolicies.examples.kube-sync.io"
_PROGRAM = Path(sys.executable).with_name("kube-sync")
_READS = ("get", "list", "watch")

Said = tuple[str, str, str, str, str]  # of what, type, status, reason, message


class Ask(NamedTuple):
    """One line of the audit log."""

    at: str
    user: str
    verb: str
    group: str
    resource: str  # and its subresource
    namespace: str
    name: str
    code: int


class Live:
    """A cluster with the Gateway API and ColorPolicy, and an account for the controller."""

    def __init__(self, stack: RunningStack, folder: Path) -> None:
        self.stack, self.folder = stack, folder
        stack.install_gateway_api()
        stack.install_kinds(ROOT / "manifests/examples/colorpolicy")
        stack.apply(ROOT / "manifests/topology-rbac", ROOT / "manifests/examples/colorpolicy")
        self._granted: set[tuple[str, str, str]] = set()  # at some time
        self.permit(*self.rules())
        made_class = gateway_class() | {"spec": {"controllerName": "example.com/gateway"}}
        stack.api.create(made_class)
        account = ("kube-sync-topology", "--namespace=kube-sync", "--duration=10h")
        token = stack.kubectl("create", "token", *account).strip()
        admin = json.loads(stack.kubeconfigs["admin"].read_text())["clusters"][0]["cluster"]
        authority = write_file(
            folder / "ca.crt", base64.b64decode(admin["certificate-authority-data"])
        )
        self.token = token
        self.kubeconfig = write_kubeconfig(
            folder, "topology", stack.apiserver_url, authority, token
        )

    def rules(self) -> list[Object]:
        """Return what the roles of the example grant."""
        names = [f"kube-sync-topology{part}-colorpolicies" for part in ("", "-status")]
        roles = [self.stack.api.get("clusterroles", name) for name in names]
        return [rule for role in roles for rule in role["rules"]]

    def permit(self, *rules: Object) -> None:
        """Let the account do this with policies and nothing else, and wait until it is so.

        No control plane takes roles of one label into another one here.
        """
        name = "kube-sync-topology-policies"
        self.stack.api.merge("clusterroles", name, {"rules": list(rules)})
        wanted = set(_rights(rules))
        self._granted |= wanted
        known = sorted(self._granted)
        deadline = time.monotonic() + 20
        while True:
            said = allowed(self.stack, [("topology", v, g, r, "", "") for v, g, r in known])
            if list(said.values()) == [right in wanted for right in known]:
                return
            assert time.monotonic() < deadline, said
            time.sleep(0.1)

    # Objects

    def create(self, space: str, *objects: Object) -> None:
        """Create objects of the tests' namespace in this one."""
        for manifest in json.loads(json.dumps(objects).replace(NS, space)):
            self.stack.api.create(manifest, strict=False)

    def replace(self, space: str, *objects: Object) -> None:
        """Put others in the place of objects that are there."""
        for manifest in json.loads(json.dumps(objects).replace(NS, space)):
            self.stack.api.replace(manifest, strict=False)

    def delete(self, space: str, kind: str, *names: str) -> None:
        for name in names:
            self.stack.api.delete(kind, name, space)

    def get(self, space: str, kind: str, name: str) -> Any:
        return self.stack.api.get(kind, name, space)

    def status(self, space: str, kind: str, name: str) -> Any:
        return self.get(space, kind, name).get("status", {})

    def say(self, space: str, kind: str, name: str, status: Object) -> None:
        """Write a status as another controller, in one piece."""
        patch = json.loads(json.dumps({"status": status}).replace(NS, space))
        self.stack.api.merge(kind, name, patch, space, "status")

    # What is said

    def reasons(self, space: str, name: str, kind: str = "colorpolicies") -> dict[str, str]:
        """Return the reasons of a policy's conditions by type; of a policy with one ancestor."""
        ancestors = self.status(space, kind, name).get("ancestors", [])
        return {
            one["type"]: one["reason"]
            for entry in ancestors
            if entry["controllerName"] == OURS
            for one in entry["conditions"]
        }

    def affected(self, space: str, kind: str, name: str) -> list[str]:
        """Return what an object says that it is affected by."""
        status = self.status(space, kind, name)
        entries = [e for e in status.get("parents", []) if e["controllerName"] == OURS]
        found = [*status.get("conditions", []), *(c for e in entries for c in e["conditions"])]
        return [c["message"] for c in found if c["type"] == AFFECTED]

    def picture(self) -> str:
        found = self.stack.api.get("configmaps", namespace="kube-sync")["items"]
        return next((one["data"][KEY] for one in found if one["metadata"]["name"] == NAME), "")

    def everything(self) -> list[Any]:
        """Return all that the topology is made of; of definitions, that of the policies alone."""
        api = self.stack.api
        items = [item for kind in EVERYTHING for item in api.get(kind)["items"]]
        return [*items, api.get("customresourcedefinitions", COLORPOLICIES)]

    def said(self) -> set[Said]:
        """Return all conditions of ours, each with the locator of what it is about."""
        return {
            (where, one["type"], one["status"], one["reason"], one["message"])
            for body in self.everything()
            for where, one in _conditions(body)
        }

    def offline(self) -> tuple[set[Said], str]:
        """Return conditions and picture as they are told of the same objects, by the command."""
        objects = json.dumps({"kind": "List", "apiVersion": "v1", "items": self.everything()})
        report = json.loads(_run(objects, "json"))
        fields = ("locator", "type", "status", "reason", "message")
        said = [[one[name] for name in fields] for one in report["conditions"]]
        return {(a, b, c, d, e) for a, b, c, d, e in said}, _run(objects, "dot")

    # What is asked for

    def asked(self, *users: str) -> list[Ask]:
        """Return what was asked for by these, in order; by the account if none is named."""
        wanted = users or (ACCOUNT,)
        lines = self.stack.audited(*map(json.dumps, wanted))
        found = [_ask(line) for line in lines if "objectRef" in line]
        return sorted(ask for ask in found if ask.user in wanted)

    def writes(self, *users: str) -> list[Ask]:
        """Return all writes but those of the Lease."""
        return [
            ask
            for ask in self.asked(*users)
            if ask.verb not in _READS and ask.resource != "leases" and ask.code < 300
        ]

    def written(self, space: str) -> Counter[str]:
        """Return how often each object of a namespace was written."""
        return Counter(ask.name for ask in self.writes() if ask.namespace == space)

    # The process

    @contextmanager
    def running(
        self,
        name: str = "one",
        kubeconfig: Path | None = None,
        *,
        ready: bool = True,
        **sections: object,
    ) -> Iterator[ProcessServer]:
        """Run the controller, from when it is ready on."""
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        port = free_port()
        configuration = {
            "kubernetes": {"kubeconfig": str(kubeconfig or self.kubeconfig)},
            "observe": {"listen": f"127.0.0.1:{port}"},
            **sections,
        }
        file = write_file(folder / "config.yaml", yaml.safe_dump(configuration).encode())
        process = ProcessLauncher().launch(
            ServerSpec(
                name="kube-sync-topology",
                program=str(_PROGRAM),
                arguments=("topology", "--live", "--config", str(file)),
                folder=folder,
                url=f"http://127.0.0.1:{port}",
                ready_paths=("/readyz",) if ready else ("/livez",),
            )
        )
        assert isinstance(process, ProcessServer)
        try:
            yield process
        finally:
            process.stop()


def readiness(process: ProcessServer) -> dict[str, str]:
    """Return what it says of itself, condition by condition."""
    lines = get(process.url + "/readyz").body.decode().splitlines()
    return {name: said for name, colon, said in (one.partition(": ") for one in lines) if colon}


def metric(process: ProcessServer, name: str) -> float:
    """Return the sum of a metric's samples."""
    lines = get(process.url + "/metrics").body.decode().splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name))


def _rights(rules: Iterable[Object]) -> Iterator[tuple[str, str, str]]:
    return (
        (verb, group, resource)
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    )


def _conditions(body: Object) -> Iterator[tuple[str, Object]]:
    """Yield the conditions of ours in an object's status, each with whom it is about."""
    status, metadata = body.get("status") or {}, body["metadata"]
    group = body["apiVersion"].rpartition("/")[0]
    space = f"{metadata['namespace']}/" if "namespace" in metadata else ""
    kind = f"{body['kind']}.{group}" if group else body["kind"]
    whole = f"{kind.lower()}:{space}{metadata['name']}"
    yield from ((whole, one) for one in _ours(status.get("conditions")))
    for one in status.get("listeners", []) if body["kind"] in ("Gateway", "ListenerSet") else []:
        yield from ((f"{whole}#{one['name']}", said) for said in _ours(one["conditions"]))
    for entry in [*status.get("ancestors", []), *status.get("parents", [])]:
        if entry["controllerName"] == OURS:
            yield from ((whole, one) for one in entry["conditions"])


def _ours(conditions: Iterable[Object] | None) -> list[Object]:
    return [c for c in conditions or () if c["type"].startswith("kube-sync.io/")]


def _run(objects: str, output: str) -> str:
    answer = kube_sync("topology", "-f", "-", "-o", output, stdin=objects)
    assert answer.returncode == 0, answer.stderr
    return answer.stdout


def _ask(line: Any) -> Ask:
    found = line["objectRef"]
    sub = f"/{found['subresource']}" if "subresource" in found else ""
    return Ask(
        line["stageTimestamp"],
        line["user"]["username"],
        line["verb"],
        found.get("apiGroup", ""),
        found["resource"] + sub,
        found.get("namespace", ""),
        found.get("name", ""),
        line["responseStatus"]["code"],
    )
