"""Health as Argo CD has it: that of a workload's Applications in each cluster.

A workload is healthy in a cluster if it has an Application there and each of these is `Healthy`.
While the Applications cannot be followed nothing is known, and what was seen last counts no more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from kube_sync.kube.applications import APPLICATION_SETS, Application, parse_application
from kube_sync.kube.cache import Cache, Changes
from kube_sync.kube.reflector import Store
from kube_sync.objects import ObjectKey
from kube_sync.remediation.decision_cache import Key
from kube_sync.remediation.plan import Current


class ArgoHealth:
    """The health of Applications, by workload and cluster."""

    def __init__(
        self, label: str | None, changed: Callable[[Iterable[ObjectKey] | None], None]
    ) -> None:
        """Call `changed` with the workloads whose health may have changed, None: of all.

        `label` names an Application's workload, None: the ApplicationSet that owns it is one.
        """
        self.trouble: str | None = "the Applications are not listed yet"
        self._label = label
        self._changed = changed
        self._by_workload: dict[ObjectKey, dict[ObjectKey, Application]] = {}
        self._cache = Cache[Application](partial(parse_application, label=label), self._update)

    @property
    def store(self) -> Store:
        """The Store of Applications."""
        return self._cache

    def report(self, reason: str | None) -> None:
        """Record why the Applications are not current, None: they are."""
        if reason != self.trouble:
            self.trouble = reason
            self._changed(None)

    def healthy(self, key: Key, current: Current, clusters: frozenset[str]) -> frozenset[str]:
        """Return which of these clusters are healthy for the object."""
        del current
        gvr, name = key
        kind = (gvr.group, gvr.resource)
        if self._label is None and kind != (APPLICATION_SETS.group, APPLICATION_SETS.resource):
            return frozenset()
        found: dict[str, bool] = {}
        for one in self._by_workload.get(name, {}).values():
            found[one.cluster] = found.get(one.cluster, True) and one.healthy
        return frozenset(cluster for cluster in clusters if found.get(cluster))

    def _update(self, changes: Changes[Application]) -> None:
        touched = set[ObjectKey]()
        for key, (before, now) in changes.items():
            if before is not None:
                self._remove(key, before)
                touched |= before.workloads
            if now is not None:
                for workload in now.workloads:
                    self._by_workload.setdefault(workload, {})[key] = now
                touched |= now.workloads
        self._changed(touched)

    def _remove(self, key: ObjectKey, found: Application) -> None:
        for workload in found.workloads:
            applications = self._by_workload[workload]
            del applications[key]
            if not applications:
                del self._by_workload[workload]
