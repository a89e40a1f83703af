"""Namespaces that are exempt from policies, since the webhook is not called for them.

Invariant: they are those that the registrations of built-in systems exclude. What an administrator
adds to a registration by hand is not known here.
"""

from __future__ import annotations

from kube_sync.config import Settings, exempt_namespaces


def exemption(settings: Settings, namespace: str) -> str | None:
    """Return why no policy applies in a namespace, None if policies do."""
    if namespace not in exempt_namespaces(settings):
        return None
    return f"the namespace {namespace} is exempt: the webhook is not asked about its objects"
