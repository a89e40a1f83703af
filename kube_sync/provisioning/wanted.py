"""The Secrets that an installation needs, by its configuration. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kube_sync.config import Settings, chosen

AUTHORITY: Final = "kube-sync-authority"
ACCESS: Final = "kube-sync-opa-access"
DECISIONS: Final = "kube-sync-decisions"
REMEDIATION: Final = "kube-sync-remediation"
NOTES: Final = "kube-sync-notes"  # has the key that seals notes of requests
GENERATOR: Final = "kube-sync-generator"  # the token of Argo CD's generator, in both namespaces
# Tokens for OPA, by the role in system.authz.
OPA_TOKENS: Final = {
    "replicator": "kube-sync-opa-replicator",
    "admission": "kube-sync-opa-admission",
    "metrics": "kube-sync-opa-metrics",
}
_OWN_ROOT: Final = "kube_sync"  # of the replicator's own data in OPA


@dataclass(frozen=True, slots=True)
class Certificate:
    """A server's certificate: the name of its Secret, and its hosts."""

    secret: str
    hosts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Wanted:
    """The desired Secrets; `certificates` is empty if somebody else makes them."""

    namespace: str
    certificates: tuple[Certificate, ...]
    roots: tuple[str, ...]  # of data that the replicator may write
    decisions: tuple[str, ...]  # that the webhook may query
    argocd: str | None = None  # namespace of an Argo CD that needs the token of the generator


def wanted(settings: Settings, *, certificates: bool = True) -> Wanted:
    """Return what this configuration needs."""
    namespace, argocd = settings.coordination.namespace, settings.remediate.argocd
    opa = Certificate(
        "kube-sync-opa-tls", (*_service("kube-sync-opa", namespace), "localhost", "127.0.0.1")
    )
    admission = Certificate("kube-sync-admission-tls", _service("kube-sync-admission", namespace))
    decisions = [settings.placement.path]
    for system in chosen(settings):
        decisions += [system.decision, system.check]
    return Wanted(
        namespace=namespace,
        certificates=(opa, admission) if certificates else (),
        roots=tuple(dict.fromkeys((settings.replicate.root, _OWN_ROOT))),
        decisions=tuple(dict.fromkeys(decisions)),
        argocd=argocd.namespace if argocd.listen is not None else None,
    )


def _service(name: str, namespace: str) -> tuple[str, ...]:
    inside = f"{name}.{namespace}"
    return name, inside, f"{inside}.svc", f"{inside}.svc.cluster.local"
