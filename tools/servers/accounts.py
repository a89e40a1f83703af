"""A kubeconfig for one part of the project, with the rights of `manifests/` and no more."""

from __future__ import annotations

from pathlib import Path

from tools.servers.apiserver import NAMESPACE, write_kubeconfig
from tools.servers.stack import apply, kubectl

_MANIFESTS = Path(__file__).resolve().parents[2] / "manifests"


def account(admin: Path, part: str, url: str, ca_file: Path) -> Path:
    """Return the kubeconfig of a part, beside the admin's, for whom ColorPolicy is there too.

    The namespace and the kinds have to be there. Raises ToolError.
    """
    name = f"kube-sync-{part}"
    apply(admin, _MANIFESTS / f"{part}-rbac")
    # In a cluster without controllers nobody puts the rules into an aggregated role.
    rights = f"--clusterrole={name}-colorpolicies"
    subject = f"--serviceaccount={NAMESPACE}:{name}"
    kubectl(admin, "create", "clusterrolebinding", f"{name}-colorpolicies", rights, subject)
    token = kubectl(
        admin, "create", "token", name, f"--namespace={NAMESPACE}", "--duration=10h"
    ).strip()
    return write_kubeconfig(admin.parent, part, url, ca_file, token)
