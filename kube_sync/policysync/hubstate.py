"""The caches of the hub's controller, and the policies and classes that a change affects.

Stores of GatewayClasses, their ConfigMaps, Gateways, ListenerSets and the namespaces of these,
PlacementDecisions, ReferenceGrants, definitions, ManagedClusters and of the policies that are
synced. It makes no request.

Invariant: a change enqueues exactly the policies and the classes that it can affect; our own
writes (statuses, `policies-synced`) enqueue nothing. Unknown is never answered as "no": see
`is_wanted` and `ready`. A class that was once followed (its status shows it, also after a restart)
is not taken for another controller's by an error in its parameters: only parameters that can be
read, and name nothing, end that.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import Any, Final, NamedTuple

from kube_sync.objects import GroupVersionResource, ObjectKey
from kube_sync.policysync.copies import PLACED, STATUS, FeedbackField, PolicyId
from kube_sync.policysync.desired import Placement, placement, placement_of
from kube_sync.policysync.downstream import Source
from kube_sync.policysync.feedback_fields import fields_of
from kube_sync.policysync.hub_status_writer import is_ours
from kube_sync.policysync.object_cache import Body, ObjectCache
from kube_sync.policysync.parameters import (
    Invalid,
    MergedParameters,
    Parameters,
    merge_parameters,
    parse_parameters,
    reference,
)
from kube_sync.policysync.references import References
from kube_sync.policysync.targets import HubObjects, ListenerSets, Targets, resolve_targets
from kube_sync.policysync.validation import Valid, Verdict, syncable_kind, validate
from kube_sync.runtime.freshness import SETTLE_SECONDS, Freshness
from kube_sync.topology.raw_json import UNREADABLE, is_same, mapping, text_if_any

_GATEWAY: Final = "gateway.networking.k8s.io"
GATEWAY_CLASSES: Final = GroupVersionResource(_GATEWAY, "v1", "gatewayclasses")
GATEWAYS: Final = GroupVersionResource(_GATEWAY, "v1", "gateways")
LISTENER_SETS: Final = GroupVersionResource(_GATEWAY, "v1", "listenersets")
NAMESPACES: Final = GroupVersionResource("", "v1", "namespaces")
GRANTS: Final = GroupVersionResource(_GATEWAY, "v1beta1", "referencegrants")
CONFIGMAPS: Final = GroupVersionResource("", "v1", "configmaps")
DEFINITIONS: Final = GroupVersionResource("apiextensions.k8s.io", "v1", "customresourcedefinitions")
MANAGED_CLUSTERS: Final = GroupVersionResource(
    "cluster.open-cluster-management.io", "v1", "managedclusters"
)
# Parts of metadata that neither a status nor bookkeeping changes.
_RELEVANT_METADATA: Final = ("uid", "labels", "creationTimestamp", "deletionTimestamp")


class ChangeHandlers(NamedTuple):
    """Callbacks for changes."""

    policy: Callable[[PolicyId], None]  # it has to be reconciled
    gateway_class: Callable[[str], None]  # its conditions have to be reconciled
    kinds: Callable[[], None]  # something was listed, or the kinds to follow changed


class HubState:
    """All caches of the hub."""

    def __init__(
        self, handlers: ChangeHandlers, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._handlers = handlers
        self._clock = clock
        # Any LIST may be the last that was waited for.
        bodies = partial(ObjectCache, on_list_end=handlers.kinds, clock=clock)
        self.classes = ObjectCache(self._class_changed, self._read_all_parameters, clock=clock)
        self.configmaps = ObjectCache(
            self._configmap_changed, self._read_all_parameters, clock=clock
        )
        self.gateways = bodies(self._gateway_changed)
        self.decisions = bodies(self._decision_changed)
        self.listener_sets = bodies(self._listener_set_changed)
        self.namespaces = bodies(self._namespace_changed)
        self.grants = bodies(self._all_changed)
        self.definitions = ObjectCache(self._definition_changed, self._kinds_changed, clock=clock)
        self.clusters = bodies(self._cluster_changed)
        self.clusters_freshness = Freshness[None](clock, settle_seconds=SETTLE_SECONDS)
        self._policies: dict[GroupVersionResource, ObjectCache] = {}
        self._allowed: dict[GroupVersionResource, frozenset[str]] = {}
        self._references = References()
        self.parameters: dict[str, Parameters | Invalid] = {}  # by class
        self._followed: dict[str, bool] = {}  # whether a class named anything when last readable
        self.merged_parameters = MergedParameters(
            {}
        )  # of all classes: to be followed if they are Valid

    @property
    def ready(self) -> bool:
        """Whether enough is listed to decide which copies are unwanted."""
        needed = (self.classes, self.configmaps, self.gateways, self.decisions, self.definitions)
        return all(one.listed for one in needed) and self.grants.complete

    # Classes and kinds

    def verdict(self, gvr: GroupVersionResource) -> Verdict:
        """Return whether a kind can be synced, as far as that is known."""
        name = ObjectKey("", f"{gvr.resource}.{gvr.group}")
        definition, allowed = self.definitions.get(name), self._allowed.get(gvr)
        return validate(gvr, definition, allowed, listed=self.definitions.listed)

    def kind(self, gvr: GroupVersionResource) -> str:
        """Return the kind of a resource's objects, "" if it is not defined."""
        name = ObjectKey("", f"{gvr.resource}.{gvr.group}")
        return text_if_any(self.definitions.get(name), "spec", "names", "kind")

    def set_allowed_verbs(self, gvr: GroupVersionResource, verbs: Collection[str]) -> None:
        """Set the verbs of a kind that the API server allows us."""
        if self._allowed.get(gvr) != (found := frozenset(verbs)):
            self._allowed[gvr] = found
            self._kind_changed(gvr)

    @property
    def valid_kinds(self) -> frozenset[GroupVersionResource]:
        """The kinds to be followed."""
        kinds = self.merged_parameters.kinds
        return frozenset(gvr for gvr in kinds if isinstance(self.verdict(gvr), Valid))

    @property
    def syncable_kinds(self) -> Iterable[GroupVersionResource]:
        """The kinds that could be synced, wanted or not, each in one version."""
        found = (syncable_kind(body) for body in self.definitions.objects.values())
        return [gvr for gvr in found if gvr is not None]

    @property
    def cached_kinds(self) -> frozenset[GroupVersionResource]:
        """The kinds with a cache of policies, wanted or not."""
        return frozenset(self._policies)

    def policies(self, gvr: GroupVersionResource) -> ObjectCache:
        """Return the cache for a kind of policies, always the same until it is forgotten."""
        if gvr not in self._policies:

            def changed(key: ObjectKey, before: Body | None, after: Body | None) -> None:
                self._policy_changed(PolicyId(gvr, key.namespace, key.name), before, after)

            self._policies[gvr] = ObjectCache(changed, self._handlers.kinds, clock=self._clock)
        return self._policies[gvr]

    def forget(self, gvr: GroupVersionResource) -> None:
        """Drop the cache of a kind that is no longer followed."""
        if (found := self._policies.pop(gvr, None)) is not None:
            for key in found.objects:
                policy = PolicyId(gvr, key.namespace, key.name)
                self._references.put(policy, Targets())
                self._handlers.policy(policy)

    def is_wanted(self, gvr: GroupVersionResource) -> bool | None:
        """Return whether a kind is synced and listed; None: unknown, so its copies stay."""
        if gvr in self.merged_parameters.kinds:
            valid = isinstance(self.verdict(gvr), Valid)
            found = self._policies.get(gvr)
            return True if valid and found is not None and found.listed else None
        if not self.ready:
            return None
        lists = self.parameters.values()
        hidden = any(isinstance(one, Invalid) and not one.foreign for one in lists)
        return None if hidden else False

    # Policies

    def source(self, policy: PolicyId) -> Source | None:
        """Return a policy and its feedback fields, None if there is none."""
        verdict, body = self.verdict(policy.gvr), self._body(policy)
        if body is None or not isinstance(verdict, Valid):
            return None
        found = self.targets(policy, verdict.kind, body)
        names = frozenset(self._class_of(one.gateway) for one in found.targets)
        fields = self._fields(policy.gvr, verdict, names)
        return Source(policy, verdict.kind, body, fields, verdict.ancestors)

    def fields(self, gvr: GroupVersionResource) -> tuple[FeedbackField, ...]:
        """Return the feedback fields of a kind for any of its policies."""
        verdict = self.verdict(gvr)
        known = verdict if isinstance(verdict, Valid) else Valid("", ancestors=True)
        return self._fields(gvr, known, frozenset(self.merged_parameters.kinds.get(gvr, ())))

    def _fields(
        self, gvr: GroupVersionResource, kind: Valid, classes: frozenset[str]
    ) -> tuple[FeedbackField, ...]:
        own = fields_of(conditions=kind.conditions, ancestors=kind.ancestors)
        return (*own, *self.merged_parameters.fields(gvr, classes))

    def targets(self, policy: PolicyId, kind: str, body: Body) -> Targets:
        """Return the Gateways that a policy is synced with."""
        return resolve_targets(policy, kind, body, self._hub_objects(policy.gvr))

    def placements(self, found: Targets) -> Mapping[ObjectKey, Placement]:
        """Return the placements of the Gateways of a policy."""
        return {one.gateway: self._placement(one.gateway) for one in found.targets}

    def gone_clusters(self, clusters: Iterable[str]) -> frozenset[str]:
        """Return which of these clusters the hub no longer has, if its list is current.

        While its ManagedClusters are stale, `clusters_freshness`, it returns none.
        """
        if not self.clusters.listed or self.clusters_freshness.stale():
            return frozenset()
        managed = self.clusters.objects
        return frozenset(name for name in clusters if ObjectKey("", name) not in managed)

    def managed_clusters(self, clusters: Iterable[str]) -> frozenset[str]:
        """Return which of these clusters the hub has."""
        managed = self.clusters.objects
        return frozenset(name for name in clusters if ObjectKey("", name) in managed)

    def _body(self, policy: PolicyId) -> Body | None:
        found = self._policies.get(policy.gvr)
        return found.get(ObjectKey(policy.namespace, policy.name)) if found else None

    def _hub_objects(self, gvr: GroupVersionResource) -> HubObjects:
        by_class = self.merged_parameters.kinds.get(gvr, {})
        syncs: dict[str, bool | None] = {
            name: None if isinstance(found, Invalid) and not found.foreign else name in by_class
            for name, found in self.parameters.items()
        }
        listener_sets = ListenerSets(
            self.listener_sets.objects, self.namespaces.objects, self._listener_sets_problem()
        )
        return HubObjects(
            self.gateways.objects, syncs, list(self.grants.objects.values()), listener_sets
        )

    def _listener_sets_problem(self) -> str:
        needed = {"ListenerSets": self.listener_sets, "Namespaces": self.namespaces}
        unlisted = [name for name, one in needed.items() if not one.complete]
        return f"the hub's {unlisted[0]} are not listed" if unlisted else ""

    def _placement(self, gateway: ObjectKey) -> Placement:
        if (body := self.gateways.get(gateway)) is None:
            return Placement(problem="it is not there")
        inside = self.decisions.objects.items()
        return placement(body, [one for key, one in inside if key.namespace == gateway.namespace])

    def _class_of(self, gateway: ObjectKey) -> str:
        return text_if_any(self.gateways.get(gateway), "spec", "gatewayClassName")

    # Effects of changes

    def _policy_changed(self, policy: PolicyId, before: Body | None, after: Body | None) -> None:
        self._update_references(policy, after)
        if not is_same(relevant_parts(before), relevant_parts(after)):
            self._handlers.policy(policy)

    def _update_references(self, policy: PolicyId, body: Body | None) -> None:
        verdict = self.verdict(policy.gvr)
        kind = verdict.kind if isinstance(verdict, Valid) else ""
        found = Targets() if body is None else self.targets(policy, kind, body)
        self._references.put(policy, found)

    def _enqueue(self, policies: Iterable[PolicyId]) -> None:
        for policy in policies:
            self._handlers.policy(policy)

    def _refresh_references(self, policies: Iterable[PolicyId]) -> None:
        """Look up again which Gateways policies name through ListenerSets."""
        for policy in policies:
            self._update_references(policy, self._body(policy))
            self._handlers.policy(policy)

    def _gateway_changed(self, key: ObjectKey, before: Body | None, after: Body | None) -> None:
        if _relevant_of_gateway(before) != _relevant_of_gateway(after):
            self._enqueue(self._references.gateways.of([key]))

    def _listener_set_changed(
        self, key: ObjectKey, before: Body | None, after: Body | None
    ) -> None:
        if _mapping_at(before, "spec", "parentRef") != _mapping_at(after, "spec", "parentRef"):
            self._refresh_references(self._references.listener_sets.of([key]))

    def _namespace_changed(self, key: ObjectKey, before: Body | None, after: Body | None) -> None:
        if _mapping_at(before, "metadata", "labels") != _mapping_at(after, "metadata", "labels"):
            self._refresh_references(self._references.listener_sets.within(key.name))

    def _decision_changed(self, key: ObjectKey, before: Body | None, after: Body | None) -> None:
        names = {placement_of(one) for one in (before, after)} - {""}
        self._enqueue(
            self._references.gateways.of(
                gateway
                for gateway, body in self.gateways.objects.items()
                if gateway.namespace == key.namespace and placement_of(body) in names
            )
        )

    def _all_changed(self, _key: ObjectKey, _before: Body | None, _after: Body | None) -> None:
        self._enqueue(self._references.all())

    def _cluster_changed(self, _key: ObjectKey, before: Body | None, after: Body | None) -> None:
        if before is None or after is None:
            self._enqueue(self._references.all())

    def _class_changed(self, key: ObjectKey, _before: Body | None, _after: Body | None) -> None:
        self._read_parameters([key.name])

    def _configmap_changed(self, key: ObjectKey, _before: Body | None, _after: Body | None) -> None:
        named = [name for name, body in self.classes.objects.items() if reference(body) == key]
        self._read_parameters(name.name for name in named)

    def _read_all_parameters(self) -> None:
        """Parse all parameters: a class may have come before its ConfigMap was listed."""
        self._read_parameters(key.name for key in self.classes.objects)
        self._handlers.kinds()

    def _read_parameters(self, names: Iterable[str]) -> None:
        if not (self.classes.listed and self.configmaps.listed):
            return  # a class without its ConfigMap is not a class without parameters
        before = dict(self.parameters)
        for name in names:
            body = self.classes.get(ObjectKey("", name))
            self.parameters.pop(name, None)
            if body is None:
                self._followed.pop(name, None)
                continue
            self.parameters[name] = self._read(name, body)
            self._handlers.gateway_class(name)
        if self.parameters != before:
            # The list of one class may affect another class: see `merged_parameters`.
            self.merged_parameters = merge_parameters(self.parameters)
            for name in self.parameters:
                self._handlers.gateway_class(name)
            self._handlers.kinds()
            self._enqueue(self._references.all())

    def _read(self, name: str, body: Body) -> Parameters | Invalid:
        found = parse_parameters(body, self.configmaps.get)
        if isinstance(found, Parameters):
            self._followed[name] = bool(found.kinds or found.problems)
        elif found.foreign and self._followed.get(name, is_ours(body)):
            return Invalid(found.problem)
        return found

    def _definition_changed(
        self, key: ObjectKey, _before: Body | None, _after: Body | None
    ) -> None:
        for gvr in [*self.merged_parameters.kinds]:
            if f"{gvr.resource}.{gvr.group}" == key.name:
                self._kind_changed(gvr)

    def _kinds_changed(self) -> None:
        for gvr in [*self.merged_parameters.kinds]:
            self._kind_changed(gvr)
        self._handlers.kinds()  # also if none is wanted: there may be copies from before

    def _kind_changed(self, gvr: GroupVersionResource) -> None:
        for name in sorted(self.merged_parameters.kinds.get(gvr, {})):
            self._handlers.gateway_class(name)
        self._handlers.kinds()


def relevant_parts(policy: Body | None) -> Mapping[str, Any] | None:
    """Return the parts of a policy that its copies depend on: no status, nothing that we write."""
    if policy is None:
        return None
    metadata = policy.get("metadata")
    metadata = metadata if isinstance(metadata, Mapping) else {}
    annotations = metadata.get("annotations")
    annotations = dict(annotations) if isinstance(annotations, Mapping) else {}
    for ours in (PLACED, STATUS):
        annotations.pop(ours, None)
    rest = {name: value for name, value in policy.items() if name not in ("metadata", "status")}
    return {
        **rest,
        "metadata": {
            **{n: metadata.get(n) for n in _RELEVANT_METADATA},
            "annotations": annotations,
        },
    }


def _relevant_of_gateway(body: Body | None) -> tuple[str, str, Mapping[str, Any]] | None:
    if body is None:
        return None
    name = text_if_any(body, "spec", "gatewayClassName")
    return name, placement_of(body), _mapping_at(body, "spec", "allowedListeners")


def _mapping_at(body: Body | None, *path: str) -> Mapping[str, Any]:
    try:
        return {} if body is None else mapping(body, *path)
    except UNREADABLE:
        return {}
