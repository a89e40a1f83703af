"""Cache of the namespace of each ClusterProfile, since a placement names clusters only.

If a name occurs in several namespaces, the first in alphabetical order is used; but a namespace
once published is kept while it exists: a reader takes another namespace for another cluster, and
would move the workload.
"""

from __future__ import annotations

from collections.abc import Callable

import structlog

from kube_sync.kube.cache import Cache, Changes
from kube_sync.kube.reflector import Store

log: structlog.stdlib.BoundLogger = structlog.get_logger()


class Profiles:
    """All ClusterProfiles by name; none if one configured namespace has them all."""

    def __init__(self, namespace: str | None, changed: Callable[[], None]) -> None:
        """Call `changed` when the namespace of a cluster may differ."""
        self._namespace = namespace
        self._changed = changed
        self._found: dict[str, set[str]] = {}
        self._cache = Cache[bool](lambda _: True, self._differ, changed)

    @property
    def store(self) -> Store | None:
        """The Store for their metadata; None if the namespace is configured."""
        return self._cache if self._namespace is None else None

    @property
    def known(self) -> bool:
        """Whether all of them are known."""
        return self._namespace is not None or self._cache.served

    def locate(self, cluster: str, before: str | None) -> str | None:
        """Return the namespace of a cluster's ClusterProfile, `before` if that still exists."""
        if self._namespace is not None:
            return self._namespace
        found = self._found.get(cluster, set())
        return before if before in found else min(found, default=None)

    def _differ(self, changes: Changes[bool]) -> None:
        for key, (_, now) in changes.items():
            found = self._found.setdefault(key.name, set())
            if now:
                found.add(key.namespace)
                if len(found) > 1:
                    places = sorted(found)
                    log.warning("cluster_name_not_unique", cluster=key.name, namespaces=places)
            else:
                found.discard(key.namespace)
        self._changed()
