"""A replicator with exactly its roles that writes the statuses of our policies."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.eventually import eventually
from tools.demo.components import start_service
from tools.servers.http import get
from tools.servers.running import RunningServer
from tools.servers.stack import RunningStack

VERSION = "policy.kube-sync.io/v1alpha1"
_READING = ("get", "list", "watch")

Json = dict[str, Any]


def policy(kind: str, name: str, spec: Json, namespace: str = "") -> Json:
    """Return a policy of one of our kinds."""
    metadata = {"name": name} | ({"namespace": namespace} if namespace else {})
    return {"apiVersion": VERSION, "kind": kind, "metadata": metadata, "spec": spec}


@dataclass
class World:
    """A stack, and a replicator that can be started again, as for an upgrade."""

    stack: RunningStack
    folder: Path
    builtin: tuple[str, ...]
    replicator: RunningServer | None = None

    def start(self) -> None:
        """Start the replicator."""
        assert self.replicator is None
        configuration: dict[str, object] = {
            "kubernetes": {"kubeconfig": str(self.stack.kubeconfigs["replicator"])},
            "opa": self.stack.opa_settings(),
            "decisions": self.stack.endpoint.server(),
            "builtin": [*self.builtin],
        }
        self.replicator = start_service("replicate", self.folder, configuration)

    def stop(self) -> None:
        """Stop the replicator, if it runs."""
        if self.replicator is not None:
            self.replicator.stop()
            self.replicator = None

    async def ready(self, condition: str, what: str = "ok") -> None:
        """Wait until the replicator's page says this of a condition."""

        def is_said() -> bool:
            assert self.replicator is not None
            page = get(self.replicator.url + "/readyz").body.decode()
            return any(what in line for line in page.splitlines() if condition in line)

        await eventually(is_said, expected=True)

    def apply(self, wanted: Json) -> None:
        """Apply an object, also one whose fields no schema knows."""
        self.stack.api.apply(wanted, strict=False, force=True)

    def found(self, kind: str, name: str, namespace: str = "") -> Any:
        """Return an object."""
        return self.stack.api.get(kind, name, namespace)

    def conditions(self, kind: str, name: str, namespace: str = "") -> dict[str, Any]:
        """Return the conditions of an object, by type."""
        found = self.found(kind, name, namespace).get("status", {}).get("conditions", [])
        return {one["type"]: one for one in found}

    def current(self, kind: str, name: str, namespace: str = "") -> dict[str, str]:
        """Return the status of each condition that is of the object's present generation."""
        generation = self.found(kind, name, namespace)["metadata"]["generation"]
        return {
            one["type"]: one["status"]
            for one in self.conditions(kind, name, namespace).values()
            if one["observedGeneration"] == generation
        }

    def writes(self, *resources: str) -> list[tuple[str, str, str]]:
        """Return verb, resource and object of its changes, the audit log being the witness."""
        return [
            (entry["verb"], _resource(entry["objectRef"]), _object(entry["objectRef"]))
            for entry in self.stack.audited(":kube-sync-replicator")
            if entry["user"]["username"].endswith(":kube-sync-replicator")
            and entry["verb"] not in _READING
            and entry["responseStatus"]["code"] < 300
            and _resource(entry["objectRef"]) in resources
        ]


def _resource(reference: Json) -> str:
    return "/".join(filter(None, (reference["resource"], reference.get("subresource"))))


def _object(reference: Json) -> str:
    return "/".join(filter(None, (reference.get("namespace"), reference.get("name"))))
