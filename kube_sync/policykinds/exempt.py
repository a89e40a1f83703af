"""What policies do not apply to, because the webhook is not asked about it.

Keeps true: the namespaces are those that the registrations of built-in systems leave out. What an
administrator adds to a registration by hand is not known here.
"""

from __future__ import annotations

from kube_sync.config import Settings, exempt_namespaces


def exemption(settings: Settings, namespace: str) -> str | None:
    """Return why no policy applies to what is in a namespace, None where policies do."""
    if namespace not in exempt_namespaces(settings):
        return None
    return f"the namespace {namespace} is exempt: the webhook is not asked about its objects"
