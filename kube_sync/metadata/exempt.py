"""The objects that the webhook of MetadataPolicies is not asked about.

Keeps true: these are the namespaces and kinds that its registrations leave out
(`admission.exemptions`), as far as an object shows it.
"""

from __future__ import annotations

from typing import Final

from kube_sync.metadata.objects import Candidate
from kube_sync.policykinds.exempt import exemption
from kube_sync.settings import Settings

_KINDS: Final = frozenset(
    {
        ("", "Binding"),
        ("", "Event"),
        ("coordination.k8s.io", "Lease"),
        ("events.k8s.io", "Event"),
    }
)
_GROUPS: Final = frozenset({"authentication.k8s.io", "authorization.k8s.io"})


def not_asked(found: Candidate, settings: Settings) -> str | None:
    """Return why the webhook is not asked about an object, None where it is."""
    kind = found.request["kind"]
    group, name = kind["group"], kind["kind"]
    if (group, name) in _KINDS or group in _GROUPS:
        return f"no policy applies to the kind {name}: the webhook is not asked about it"
    return exemption(settings, found.namespace)
