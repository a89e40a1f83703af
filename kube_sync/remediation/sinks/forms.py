"""Forms: what publishing a placement needs to know of one kind of objects.

To publish as another kind, write its `Shape` (`kube/ocmdecisions.py` is the smallest) and a Form
here; watch, cache and slices are those of `PlacementDecisionSink`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

import structlog

from kube_sync.kube.cache import Cache, Changes
from kube_sync.kube.ocmdecisions import OCM_GROUP_INDEX, OCM_GROUP_NAME, OCM_PLACEMENT, ocm_shape
from kube_sync.kube.placementdecisions import DECISION_INDEX, DECISION_KEY, PLACEMENT_KEY, SIG
from kube_sync.kube.slices import Shape

log: structlog.stdlib.BoundLogger = structlog.get_logger()


class Form(Protocol):
    """One kind of published objects."""

    @property
    def name(self) -> str:
        """The name of the sink in metrics and logs."""

    @property
    def shape(self) -> Shape:
        """The shape of the kind."""

    @property
    def namespace(self) -> str | None:
        """The namespace of all slices; None: that of the placed resource."""

    @property
    def known(self) -> bool:
        """Whether `locate` can answer."""

    def subscribe(self, changed: Callable[[], None]) -> None:
        """Call `changed` when `locate` may answer otherwise."""

    def locate(self, cluster: str, before: str | None) -> str | None:
        """Return the namespace to publish with a cluster; None: it cannot be published.

        `before`: the one that is published now.
        """

    def labels(self, key: str, index: int, own: str | None) -> Mapping[str, str]:
        """Return the labels of a slice; `own`: the workload's placement key, if it has one."""


class SigForm:
    """PlacementDecisions of SIG Multicluster: clusters are references to ClusterProfiles.

    A placement names clusters only. If a name occurs in several namespaces, the first in
    alphabetical order is used; but a namespace once published is kept while it exists: a reader
    takes another namespace for another cluster, and would move the workload.
    """

    name = "placement_decisions"
    shape = SIG
    namespace = None

    def __init__(self, profiles: str | None) -> None:
        """`profiles`: the namespace of all ClusterProfiles; None: they are watched."""
        self._configured = profiles
        self._changed: Callable[[], None] = lambda: None
        self._found: dict[str, set[str]] = {}
        cache = Cache[bool](lambda _: True, self._differ, self._listed)
        self.profiles = cache if profiles is None else None  # for their metadata

    @property
    def known(self) -> bool:
        """Whether all ClusterProfiles are known."""
        return self.profiles is None or self.profiles.served

    def subscribe(self, changed: Callable[[], None]) -> None:
        """Call `changed` when the namespace of a cluster may differ."""
        self._changed = changed

    def locate(self, cluster: str, before: str | None) -> str | None:
        """Return the namespace of a cluster's ClusterProfile, `before` if that still exists."""
        if self._configured is not None:
            return self._configured
        found = self._found.get(cluster, set())
        return before if before in found else min(found, default=None)

    def labels(self, key: str, index: int, own: str | None) -> Mapping[str, str]:
        """Return the labels of KEP-5313."""
        return {DECISION_KEY: key, PLACEMENT_KEY: own or key, DECISION_INDEX: str(index)}

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

    def _listed(self) -> None:
        self._changed()


class OcmForm:
    """PlacementDecisions of Open Cluster Management: clusters are names."""

    name = "ocm_placement_decisions"
    known = True

    def __init__(self, namespace: str | None) -> None:
        """`namespace`: of all slices; None: that of the placed resource."""
        self.namespace = namespace
        self.shape = ocm_shape(namespace)

    def subscribe(self, changed: Callable[[], None]) -> None:
        """Do nothing: `locate` always answers the same."""

    def locate(self, cluster: str, before: str | None) -> str | None:  # noqa: ARG002 - of Form
        """Return no namespace: a name is enough."""
        return ""

    def labels(self, key: str, index: int, own: str | None) -> Mapping[str, str]:  # noqa: ARG002
        """Return the labels that OCM's readers select by.

        Not the workload's own key: whoever labels a workload could join another's placement.
        """
        return {OCM_PLACEMENT: key, OCM_GROUP_INDEX: "0", OCM_GROUP_NAME: ""}
