"""An OPA that was started on the whole folder `rego/` and nothing else, and what it is given.

Knows nothing of the replicator: the data is put where the replicator would have written it.
"""

from __future__ import annotations

import http.client
import json
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.analysis.opa import plain_spec
from tools.servers.running import ServerSpec

REGO = Path(__file__).resolve().parents[2] / "rego"
GROUP = "policy.kube-sync.io"


def whole_folder_spec(folder: Path, port: int) -> ServerSpec:
    """Describe an OPA that loads a copy of `rego/`, tests and examples and all."""
    copy = folder / "rego"
    if not copy.exists():
        shutil.copytree(REGO, copy)
    plain = plain_spec(folder, port)
    return ServerSpec(
        name=plain.name,
        program=plain.program,
        arguments=(*plain.arguments, str(copy)),
        folder=plain.folder,
        url=plain.url,
        ready_paths=plain.ready_paths,
    )


@dataclass(frozen=True, slots=True)
class SchedulingOpa:
    """Asks an OPA what the scheduling rules say."""

    connection: http.client.HTTPConnection

    @classmethod
    def at(cls, url: str) -> SchedulingOpa:
        """Return a client of an OPA that runs."""
        return cls(http.client.HTTPConnection(urlsplit(url).netloc, timeout=30))

    def load(self, kubernetes: Any, config: Any) -> None:
        """Replace what is replicated, and the settings."""
        self._ask("PUT", "kubernetes", kubernetes)
        self._ask("PUT", "kube_sync/config/scheduling", config)

    def asked(self, path: str) -> Any:
        """Return a document."""
        return self._ask("POST", path, {"input": {}})["result"]

    def decision(self, request: Any) -> Any:
        """Return the decision about the `request` of an AdmissionReview."""
        return self._ask("POST", "kube_sync/scheduling/decision", {"input": request})["result"]

    def merged(self, request: Any) -> Any:
        """Return the spec that the usable policies make together."""
        return self._ask("POST", "kube_sync/scheduling/merged", {"input": request})["result"]

    def report(self, policy: Any) -> Any:
        """Return the problems of a policy, and the findings."""
        answer = self._ask(
            "POST", "kube_sync/scheduling/validation/report", {"input": {"object": policy}}
        )
        return answer["result"]

    def _ask(self, method: str, path: str, body: Any) -> Any:
        headers = {"Content-Type": "application/json"}
        self.connection.request(method, f"/v1/data/{path}", json.dumps(body), headers)
        response = self.connection.getresponse()
        content = response.read()
        assert response.status in {200, 204}, content
        return json.loads(content) if content else None


def kubernetes_of(policies: Iterable[Any], rbac: Mapping[str, Any]) -> dict[str, Any]:
    """Return objects as the replicator lays them out: by namespace, if they have one, and name."""
    return {
        "schedulingpolicies": _by_name(policies),
        "clusterroles": _by_name(rbac.get("clusterRoles", ())),
        "clusterrolebindings": _by_name(rbac.get("clusterRoleBindings", ())),
        "roles": _by_namespace(rbac.get("roles", ())),
        "rolebindings": _by_namespace(rbac.get("roleBindings", ())),
    }


def request_for(found: Any, operation: str, user: Any, old: Any = None) -> dict[str, Any]:
    """Return the `request` that the API server would send about an object."""
    group, _, version = found["apiVersion"].rpartition("/")
    return {
        "uid": "8c1f6a2e",
        "kind": {"group": group, "version": version, "kind": found["kind"]},
        "operation": operation,
        "namespace": found["metadata"].get("namespace", ""),
        "name": found["metadata"]["name"],
        "userInfo": user,
        "object": found,
        "oldObject": old,
    }


def _by_name(objects: Iterable[Any]) -> dict[str, Any]:
    return {found["metadata"]["name"]: found for found in objects}


def _by_namespace(objects: Iterable[Any]) -> dict[str, Any]:
    tree: dict[str, dict[str, Any]] = {}
    for found in objects:
        metadata = found["metadata"]
        tree.setdefault(metadata["namespace"], {})[metadata["name"]] = found
    return tree
