"""What the story reads and does: the API server and OPA themselves, never our own logs.

Of our own services it asks the replicator alone, whether OPA's answers may be reused.

Writes go through kubectl, as an administrator's would; reads are plain requests, so that the
times told are those of the system and not of kubectl.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

from tools.demo.fleet import FLEET, POLICIES, PREFERENCES, SHOP, Manifest
from tools.servers.binaries import ensure_binary
from tools.servers.errors import ToolError
from tools.servers.files import write_file
from tools.servers.http import request
from tools.servers.stack import RunningStack

_STATUS = "openpolicyagent.org/kube-mgmt-status"
_REQUESTED = "kube-sync.io/requested"
_CLUSTERS = f"/apis/multicluster.x-k8s.io/v1alpha1/namespaces/{FLEET}/clusterprofiles"
_REPLICA_SETS = f"/apis/apps/v1/namespaces/{SHOP}/replicasets"

_REGISTRATION = (
    "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/kube-sync-placement"
)

ADMITTED = "admitted"
_PROGRAM = Path(sys.executable).with_name("kube-sync")

Placement = tuple[str, ...]


class World:
    """One stack, seen from outside."""

    def __init__(self, stack: RunningStack, stream: Mapping[str, object]) -> None:
        """`stream` is the section `decisions` of a client's configuration."""
        self.stack = stack
        self._stream = {name: str(value) for name, value in stream.items()}

    def store(self, manifest: Manifest) -> str:
        """Create or change an object; returns ADMITTED, or what kubectl said of the refusal."""
        try:
            self.stack.kubectl(
                "apply",
                "--server-side",
                "--field-manager=demo",
                "--force-conflicts",  # a promotion writes to the policy, too
                "-f",
                "-",
                stdin=json.dumps(manifest),
            )
        except ToolError as error:
            return str(error)
        return ADMITTED

    def label(self, cluster: str, key: str, value: str) -> None:
        """Change a label of a cluster."""
        self.stack.kubectl(
            "label",
            "clusterprofile",
            cluster,
            f"--namespace={FLEET}",
            "--overwrite",
            f"{key}={value}",
        )

    def placements(self) -> dict[str, Placement | None]:
        """Return where each ReplicaSet of the shop is to run, as the API server holds it."""
        return {
            item["metadata"]["name"]: _clusters(item) for item in self._kube(_REPLICA_SETS)["items"]
        }

    def preferences(self) -> dict[str, bool]:
        """Return whether each ReplicaSet may be rebalanced."""
        return {
            item["metadata"]["name"]: _preferences(item)["rebalance"]
            for item in self._kube(_REPLICA_SETS)["items"]
        }

    def versions(self) -> dict[str, str]:
        """Return each ReplicaSet's resourceVersion: it changes with every write."""
        return {
            item["metadata"]["name"]: item["metadata"]["resourceVersion"]
            for item in self._kube(_REPLICA_SETS)["items"]
        }

    def written_since(self, versions: dict[str, str]) -> list[str]:
        """Return which ReplicaSets have another resourceVersion than they had."""
        now = self.versions()
        return sorted(name for name, version in now.items() if versions[name] != version)

    def policy_status(self, name: str = "placement") -> Any:
        """Return what a policy's author reads on the ConfigMap, None while nothing is there."""
        found = self._kube(f"/api/v1/namespaces/{POLICIES}/configmaps/{name}")
        text = (found["metadata"].get("annotations") or {}).get(_STATUS)
        return json.loads(text) if text else None

    def failure_policy(self) -> str:
        """Return what the API server does with a create when the webhook gives no answer."""
        webhooks = self._kube(_REGISTRATION)["webhooks"]
        return ", ".join(sorted({str(webhook["failurePolicy"]) for webhook in webhooks}))

    def requested(self, name: str) -> dict[str, str | None]:
        """Return what is noted on a ReplicaSet as asked for, by annotation."""
        found = self._kube(f"{_REPLICA_SETS}/{name}")["metadata"].get("annotations") or {}
        noted: dict[str, str | None] = json.loads(found.get(_REQUESTED, "{}"))
        noted.pop(_REQUESTED, None)  # its seal
        return noted

    def events(self, name: str) -> list[str]:
        """Return the reasons of the Events that tell of an object that was refused."""
        found = self._kube("/apis/events.k8s.io/v1/namespaces/default/events")["items"]
        return sorted(event["reason"] for event in found if f"{SHOP}/{name}" in event["note"])

    def events_on(self, name: str) -> list[str]:
        """Return the reasons of the Events on a ReplicaSet."""
        found = self._kube(f"/apis/events.k8s.io/v1/namespaces/{SHOP}/events")["items"]
        return sorted(event["reason"] for event in found if event["regarding"]["name"] == name)

    def forget(self, *clusters: str) -> None:
        """Take clusters out of the fleet."""
        self.stack.kubectl("delete", "clusterprofiles", *clusters, f"--namespace={FLEET}")

    def unknow(self, *clusters: str) -> None:
        """Take clusters out of Argo CD."""
        names = [f"cluster-{name}" for name in clusters]
        self.stack.kubectl("delete", "secrets", *names, "--namespace=argocd")

    def annotate(self, name: str, key: str, value: str) -> str:
        """Change an annotation of a ReplicaSet as a developer would; returns what kubectl says."""
        return self.stack.kubectl(
            "annotate",
            "replicaset",
            name,
            f"--namespace={SHOP}",
            "--overwrite",
            f"{key}={value}",
        )

    def opa_equals_api_server(self) -> str:
        """Compare every cluster and ReplicaSet that OPA holds with the API server's."""
        held = {
            kind: _by_key(self._opa(f"kubernetes/{kind}")) for kind in ("clusters", "replicasets")
        }
        real = {"clusters": self._objects(_CLUSTERS), "replicasets": self._objects(_REPLICA_SETS)}
        if held != real:
            return f"OPA holds {_count(held)}, the API server {_count(real)}, not all of them equal"
        return f"equal: {_count(held)}"

    def opa_policies(self) -> int:
        """Return how many of the shop's policy modules OPA holds."""
        # Below the bundle's name if they came as a bundle.
        return sum(f"{POLICIES}/" in policy_id for policy_id in self.modules())

    def modules(self) -> dict[str, str]:
        """Return the sources of all modules that OPA holds, by id."""
        found = self._ask_opa("/v1/policies").get("result", [])
        return {policy["id"]: policy["raw"] for policy in found}

    def may_reuse_answers(self) -> str:
        """Return whether the replicator lets OPA's answers be reused, or why not."""
        found = request(
            "GET",
            urljoin(self._stream["url"], "/v1/basis"),
            ca_file=Path(self._stream["ca_file"]),
            token=Path(self._stream["token_file"]).read_text(encoding="utf-8").strip(),
        )
        basis = json.loads(found.body)
        if "paths" not in basis:
            return f"no: {basis['reason']}"
        return "yes" if basis.get("current", True) else "no: something has changed"

    def file(self, name: str, manifest: Manifest) -> str:
        """Write a file beside the stack, where commands run; returns its name."""
        write_file(self.stack.folder / name, json.dumps(manifest, indent=2).encode())
        return name

    def kube_sync(self, *arguments: str) -> tuple[int, str]:
        """Run a command as an administrator does; returns its exit status and what it prints."""
        ran = subprocess.run(
            [_PROGRAM, *arguments],
            cwd=self.stack.folder,
            env={
                "HOME": str(self.stack.folder),
                "COLUMNS": "100",
                "KUBE_SYNC_KUBERNETES_KUBECONFIG": str(self.stack.kubeconfigs["admin"]),
                "KUBE_SYNC_OPA_BINARY": str(ensure_binary("opa")),
            },
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        return ran.returncode, ran.stdout or ran.stderr

    def _objects(self, path: str) -> dict[str, Any]:
        # One by one, as a LIST leaves kinds out: this must not share the replicator's way.
        names = [item["metadata"]["name"] for item in self._kube(path)["items"]]
        found = [_plain(self._kube(f"{path}/{name}")) for name in names]
        return {f"{o['metadata']['namespace']}/{o['metadata']['name']}": o for o in found}

    def _opa(self, path: str) -> Any:
        return self._ask_opa(f"/v1/data/{path}").get("result", {})

    def _ask_opa(self, path: str) -> Any:
        token = self.stack.opa_token_files["replicator"].read_text(encoding="utf-8").strip()
        try:
            answer = request(
                "GET", self.stack.opa_url + path, ca_file=self.stack.opa_ca_file, token=token
            )
        except OSError:
            return {}  # away: then it holds nothing
        return json.loads(answer.body)

    def _kube(self, path: str) -> Any:
        answer = request(
            "GET",
            self.stack.apiserver_url + path,
            ca_file=self.stack.apiserver_ca_file,
            token=self.stack.kube_tokens["admin"],
        )
        return json.loads(answer.body)


def _plain(found: Any) -> Any:
    found["metadata"].pop("managedFields", None)
    return found


def _by_key(tree: dict[str, dict[str, Any]]) -> dict[str, Any]:
    return {
        f"{namespace}/{name}": found
        for namespace, inside in tree.items()
        if namespace in (FLEET, SHOP)
        for name, found in inside.items()
    }


def _count(kinds: dict[str, dict[str, Any]]) -> str:
    return " and ".join(f"{len(found)} {kind}" for kind, found in kinds.items())


def _preferences(item: Any) -> Any:
    text = (item["metadata"].get("annotations") or {}).get(PREFERENCES)
    return json.loads(text) if text else None


def _clusters(item: Any) -> Placement | None:
    found = _preferences(item)
    return None if found is None else tuple(sorted(found["clusters"]))
