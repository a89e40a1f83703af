"""A kubeconfig for one part of the project, with the rights of `manifests/` and no more."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tools.servers.apiserver import NAMESPACE, write_kubeconfig
from tools.servers.stack import apply, kubectl

_MANIFESTS = Path(__file__).resolve().parents[2] / "manifests"


def account(admin: Path, part: str, url: str, ca_file: Path) -> Path:
    """Return the kubeconfig of a part, beside the admin's. Raises ToolError.

    The part's namespace has to be there, and the roles for kinds of policies.
    """
    apply(admin, _MANIFESTS / f"{part}-rbac")
    aggregate(admin)
    name, where = f"kube-sync-{part}", f"--namespace={NAMESPACE}"
    token = kubectl(admin, "create", "token", name, where, "--duration=10h").strip()
    return write_kubeconfig(admin.parent, part, url, ca_file, token)


def aggregate(admin: Path) -> None:
    """Put the rules into our aggregated ClusterRoles, as a cluster's controllers would."""
    listed = kubectl(admin, "get", "clusterroles", "--output=json")
    roles = json.loads(listed)["items"]
    for role in roles:
        name = role["metadata"]["name"]
        if name.startswith("kube-sync-") and "aggregationRule" in role:
            rules = list(_rules(role["aggregationRule"], roles))
            patch = json.dumps({"rules": rules})
            kubectl(admin, "patch", "clusterrole", name, "--type=merge", "-p", patch)


def _rules(aggregation: Any, roles: Sequence[Any]) -> Iterator[Any]:
    wanted = [one["matchLabels"].items() for one in aggregation["clusterRoleSelectors"]]
    for role in roles:
        labels = (role["metadata"].get("labels") or {}).items()
        if any(one <= labels for one in wanted):
            yield from role.get("rules") or ()
