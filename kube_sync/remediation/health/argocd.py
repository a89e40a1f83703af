"""Health as Argo CD has it: that of a workload's Applications in each cluster.

A workload is healthy in a cluster if it has an Application there and each of these is `Healthy`.
The cluster of an Application is that which its destination names, or those that Argo CD has at its
server. While the Applications cannot be followed nothing is known, and what was seen last counts no
more; the same holds for the clusters of servers. Those are Secrets, and nobody needs the right to
list them before an Application names its cluster by a server.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from functools import partial

from kube_sync.kube.applications import APPLICATION_SETS, Application, parse_application
from kube_sync.kube.cache import Cache, Changes
from kube_sync.objects import GroupVersionResource, ObjectKey
from kube_sync.remediation.argocd.clusters import ArgoClusters
from kube_sync.remediation.decision_cache import Key
from kube_sync.remediation.plan import Current

_NONE = frozenset[str]()
_UNLISTED = "they are not listed yet"


class ArgoHealth:
    """The health of Applications, by workload and cluster."""

    def __init__(
        self, label: str | None, changed: Callable[[Iterable[ObjectKey] | None], None]
    ) -> None:
        """Call `changed` with the workloads whose health may have changed, None: of all.

        `label` names an Application's workload, None: the ApplicationSet that owns it is one.
        """
        self.trouble: str | None = "the Applications are not listed yet"
        self.clusters = ArgoClusters(self._clusters_changed)
        self.clusters_needed = asyncio.Event()  # an Application has named a server
        self._clusters_trouble: str | None = _UNLISTED
        self._label = label
        self._changed = changed
        self._by_workload: dict[ObjectKey, dict[ObjectKey, Application]] = {}
        self._by_server: Mapping[str, frozenset[str]] = {}
        self.store = Cache[Application](partial(parse_application, label=label), self._update)

    def report(self, reason: str | None) -> None:
        """Record why the Applications are not current, None: they are."""
        if reason != self.trouble:
            self.trouble = reason
            self._changed(None)

    def report_clusters(self, reason: str | None) -> None:
        """Record why the clusters of Argo CD are not current, None: they are."""
        if reason != self._clusters_trouble:
            self._clusters_trouble = reason
            self._changed(None)

    def healthy(self, key: Key, current: Current, clusters: frozenset[str]) -> frozenset[str]:
        """Return which of these clusters are healthy for the object."""
        del current
        found: dict[str, bool] = {}
        applications = self._applications(key).values()
        by_server = any(map(_is_by_server, applications))
        if by_server and self._clusters_trouble is not None:
            return _NONE  # it may be unhealthy in any of them
        for one in applications:
            for cluster in self._clusters_of(one):
                found[cluster] = found.get(cluster, True) and one.healthy
        return frozenset(cluster for cluster in clusters if found.get(cluster))

    def reader(self, gvr: GroupVersionResource) -> None:
        """Return nothing: objects do not have it."""
        del gvr

    def unmatched(self, key: Key) -> str | None:
        """Return which Application of an object is in no known cluster, and why."""
        is_early = self._clusters_trouble is _UNLISTED
        applications = self._applications(key)
        found = sorted(
            name
            for name, one in applications.items()
            if not self._clusters_of(one) and not (is_early and _is_by_server(one))
        )
        if not found:
            return None
        more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
        return f"Application {found[0]}{more} {self._why(applications[found[0]])}"

    def _why(self, found: Application) -> str:
        if not found.server:
            return "is for no cluster: its destination has neither name nor server"
        if self._clusters_trouble is not None:
            return f"is for {found.server}, and Argo CD's clusters are not known: " + (
                self._clusters_trouble
            )
        return f"is for {found.server}, where Argo CD knows no cluster"

    def _clusters_of(self, found: Application) -> frozenset[str]:
        if found.cluster:
            return frozenset([found.cluster])
        known = self._clusters_trouble is None and found.server
        return self._by_server.get(found.server, _NONE) if known else _NONE

    def _applications(self, key: Key) -> Mapping[ObjectKey, Application]:
        gvr, name = key
        kind = (gvr.group, gvr.resource)
        if self._label is None and kind != (APPLICATION_SETS.group, APPLICATION_SETS.resource):
            return {}
        return self._by_workload.get(name, {})

    def _clusters_changed(self, _changes: object) -> None:
        self._by_server = self.clusters.by_server()
        self._changed(None)

    def _update(self, changes: Changes[Application]) -> None:
        touched = set[ObjectKey]()
        for key, (before, now) in changes.items():
            if before is not None:
                self._remove(key, before)
                touched |= before.workloads
            if now is not None:
                if now.workloads and _is_by_server(now):
                    self.clusters_needed.set()
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


def _is_by_server(found: Application) -> bool:
    return bool(found.server) and not found.cluster
