"""Cache of the worker clusters of MultiKueue: admission checks, their configs, the clusters."""

from __future__ import annotations

from collections.abc import Callable

from kube_sync.kube.cache import Cache
from kube_sync.kube.kueue import ClusterState, cluster_state, config_clusters, config_name
from kube_sync.remediation.sinks.nomination import Fleet


class Workers:
    """The worker clusters, once all three kinds are listed."""

    def __init__(self, changed: Callable[[], None]) -> None:
        """Call `changed` when the fleet differs, or may be known now."""
        self._changed = changed
        self._fleet: Fleet | None = None
        self.checks = Cache[str](config_name, self._differ, changed)
        self.configs = Cache[tuple[str, ...]](config_clusters, self._differ, changed)
        self.clusters = Cache[ClusterState](cluster_state, self._differ, changed)

    @property
    def fleet(self) -> Fleet | None:
        """The worker clusters; None while they are not known, or their kinds are not served."""
        caches = (self.checks, self.configs, self.clusters)
        if not all(cache.served for cache in caches):
            return None
        if self._fleet is None:
            self._fleet = Fleet(
                {key.name: config for key, config in self.checks.objects.items()},
                {key.name: names for key, names in self.configs.objects.items()},
                {key.name: state for key, state in self.clusters.objects.items()},
            )
        return self._fleet

    def _differ(self, _changes: object) -> None:
        self._fleet = None
        self._changed()
