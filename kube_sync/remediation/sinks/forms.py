"""Forms: what publishing a placement needs to know of one kind of objects.

To publish as another kind, write its `Shape` (`kube/ocmdecisions.py` is the smallest) and a Form
here; watch, cache and slices are those of `PlacementDecisionSink`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from kube_sync.kube.ocmdecisions import (
    OCM_GROUP_INDEX,
    OCM_GROUP_NAME,
    OCM_PLACEMENT,
    ocm_shape,
)
from kube_sync.kube.placementdecisions import DECISION_INDEX, DECISION_KEY, PLACEMENT_KEY, SIG
from kube_sync.kube.reflector import Store
from kube_sync.kube.slices import Shape
from kube_sync.remediation.sinks.profiles import Profiles


class Form(Protocol):
    """One kind of published objects."""

    @property
    def name(self) -> str:
        """The name of the sink in metrics and logs."""
        ...

    @property
    def shape(self) -> Shape:
        """The shape of the kind."""
        ...

    @property
    def namespace(self) -> str | None:
        """The namespace of all slices; None: that of the placed resource."""
        ...

    @property
    def known(self) -> bool:
        """Whether `locate` can answer."""
        ...

    def subscribe(self, changed: Callable[[], None]) -> None:
        """Call `changed` when `locate` may answer otherwise."""
        ...

    def locate(self, cluster: str, before: str | None) -> str | None:
        """Return the namespace to publish with a cluster; None: it cannot be published.

        `before`: the one that is published now.
        """
        ...

    def labels(self, key: str, index: int, own: str | None) -> Mapping[str, str]:
        """Return the labels of a slice; `own`: the workload's placement key, if it has one."""
        ...


class SigForm:
    """PlacementDecisions of SIG Multicluster: clusters are references to ClusterProfiles."""

    name = "placement_decisions"
    shape = SIG
    namespace = None

    def __init__(self, profiles: str | None) -> None:
        """`profiles`: the namespace of all ClusterProfiles; None: they are watched."""
        self._subscriber: Callable[[], None] | None = None
        self._profiles = Profiles(profiles, self._changed)

    @property
    def profiles(self) -> Store | None:
        """The Store for the metadata of ClusterProfiles; None: not needed."""
        return self._profiles.store

    @property
    def known(self) -> bool:
        """Whether all ClusterProfiles are known."""
        return self._profiles.known

    def subscribe(self, changed: Callable[[], None]) -> None:
        """Call `changed` when the namespace of a cluster may differ."""
        self._subscriber = changed

    def locate(self, cluster: str, before: str | None) -> str | None:
        """Return the namespace of a cluster's ClusterProfile."""
        return self._profiles.locate(cluster, before)

    def labels(self, key: str, index: int, own: str | None) -> Mapping[str, str]:
        """Return the labels of KEP-5313."""
        return {DECISION_KEY: key, PLACEMENT_KEY: own or key, DECISION_INDEX: str(index)}

    def _changed(self) -> None:
        if self._subscriber is not None:
            self._subscriber()


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
