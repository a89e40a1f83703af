"""A kubeconfig for one part of the project, with the rights of `manifests/` and no more."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tools.servers.apiserver import NAMESPACE, write_kubeconfig
from tools.servers.kubeapi import KubeApi
from tools.servers.stack import apply

_TEN_HOURS = 36_000  # seconds
_MANIFESTS = Path(__file__).resolve().parents[2] / "manifests"


def account(api: KubeApi, part: str, folder: Path) -> Path:
    """Write the kubeconfig of a part into a folder and return it. Raises ToolError.

    The part's namespace has to be there, and the roles for kinds of policies.
    """
    apply(api, _MANIFESTS / f"{part}-rbac")
    aggregate(api)
    token = token_of(api, f"kube-sync-{part}")
    return write_kubeconfig(folder, part, api.url, api.ca_file, token)


def token_of(api: KubeApi, name: str) -> str:
    """Return a token of a ServiceAccount of the project's namespace."""
    path = api.path("serviceaccounts", name, NAMESPACE)
    asked = {"spec": {"expirationSeconds": _TEN_HOURS}}
    return str(api.ask("POST", f"{path}/token", asked)["status"]["token"])


def aggregate(api: KubeApi) -> None:
    """Put the rules into our aggregated ClusterRoles, as a cluster's controllers would."""
    roles = api.get("clusterroles")["items"]
    for role in roles:
        name = role["metadata"]["name"]
        if name.startswith("kube-sync-") and "aggregationRule" in role:
            api.merge("clusterroles", name, {"rules": [*_rules(role["aggregationRule"], roles)]})


def _rules(aggregation: Any, roles: Sequence[Any]) -> Iterator[Any]:
    wanted = [one["matchLabels"].items() for one in aggregation["clusterRoleSelectors"]]
    for role in roles:
        labels = (role["metadata"].get("labels") or {}).items()
        if any(one <= labels for one in wanted):
            yield from role.get("rules") or ()
