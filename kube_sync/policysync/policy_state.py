"""Collects the state of one policy: its desired and placed copies. No request, no clock.

Invariant: unknown is never "not wanted": a kind that cannot be watched just now, unreadable
parameters, a hub that is not listed yet keep the placed copies. An annotation of the ConfigMaps
with the parameters approves removals: who may change what is synced may approve the removals
that follow, and nobody else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from kube_sync.kube.approvals import APPROVED, approved
from kube_sync.objects import GroupVersionResource, ObjectKey
from kube_sync.policysync.copies import Placed, PolicyId
from kube_sync.policysync.desired import Desired, desired
from kube_sync.policysync.downstream import Downstream
from kube_sync.policysync.hubstate import HubState
from kube_sync.policysync.object_cache import Body
from kube_sync.policysync.parameters import reference
from kube_sync.policysync.placers import Placers, Subject
from kube_sync.policysync.targets import Targets
from kube_sync.policysync.validation import Valid
from kube_sync.topology.raw_json import text_if_any


@dataclass(frozen=True, slots=True)
class PolicyState:
    """The state of one policy."""

    policy: PolicyId
    wanted: Desired | None  # None: no copy is wanted
    placed: Mapping[str, Placed]
    gone: frozenset[str] = frozenset()  # clusters that the hub no longer has
    managed: frozenset[str] = frozenset()  # clusters of its copies that the hub lists
    vanished: str = ""  # the kind, if the policy is gone because its kind is
    body: Body | None = None  # the hub's object, if its kind is followed
    kind: Valid | None = None
    targets: Targets = field(default_factory=Targets)

    @property
    def missing(self) -> bool:
        """Whether it has copies, and is not on the hub although its kind is followed."""
        return self.wanted is None and not self.vanished and self.body is None and bool(self.placed)

    @property
    def gateways(self) -> frozenset[ObjectKey]:
        """The Gateways that it is synced with."""
        return frozenset(one.gateway for one in self.targets.targets)


def observe(
    subject: Subject,
    state: HubState,
    placers: Placers,
    gone: Callable[[Iterable[str]], frozenset[str]],
    downstream: Downstream,
) -> PolicyState:
    """Return the state of a policy; `gone` returns which of the given clusters no longer exist."""
    placed = placers.placed(subject)
    policy = PolicyId(_version(subject, state, placers), subject.namespace, subject.name)
    wanted = state.is_wanted(policy.gvr)
    if wanted is None:
        return PolicyState(policy, keep_all(placed), placed)
    if not wanted:
        return PolicyState(policy, None, placed, vanished=f"{policy.gvr} in no GatewayClass")
    verdict, source = state.verdict(policy.gvr), state.source(policy)
    if source is None or not isinstance(verdict, Valid):
        return PolicyState(policy, None, placed)
    if text_if_any(source.body, "metadata", "deletionTimestamp"):
        return PolicyState(policy, None, placed, body=source.body, kind=verdict)
    found = state.targets(policy, source.kind, source.body)
    copies = desired(source, found, state.placements(found), placed, downstream)
    clusters = gone(copies.copies.keys() | placed.keys())
    remaining = _without(copies, clusters)
    managed = clusters | state.managed_clusters(placed)
    return PolicyState(
        policy, remaining, placed, clusters, managed, body=source.body, kind=verdict, targets=found
    )


def _without(wanted: Desired, gone: frozenset[str]) -> Desired:
    """Remove the copies for clusters that are gone, and report that."""
    missing = [cluster for cluster in wanted.copies if cluster in gone]
    if not missing:
        return wanted
    copies = {cluster: copy for cluster, copy in wanted.copies.items() if cluster not in gone}
    problems = (f"the hub has no ManagedCluster {cluster}" for cluster in missing)
    return replace(wanted, copies=copies, problems=(*wanted.problems, *problems))


def keep_all(placed: Mapping[str, Placed]) -> Desired:
    """Return the desired state if it is unknown: placed copies stay."""
    return Desired(uncertain=frozenset(placed))


def _version(subject: Subject, state: HubState, placers: Placers) -> GroupVersionResource:
    """Return the version in which a policy is synced, or was."""
    for gvr in state.merged_parameters.kinds:
        if (gvr.group, gvr.resource) == (subject.group, subject.resource):
            return gvr
    known = {policy.gvr for policy in placers.ids(subject)}
    return max(known, default=GroupVersionResource(subject.group, "v1", subject.resource))


def approved_in(state: HubState, now: float) -> frozenset[str]:
    """Return the names that are approved now (Unix seconds)."""
    found: set[str] = set()
    for body in state.classes.objects.values():
        key = reference(body)
        configmap = state.configmaps.get(key) if isinstance(key, ObjectKey) else None
        annotation = text_if_any(configmap, "metadata", "annotations", APPROVED)
        found |= approved(annotation, now).keys()
    return frozenset(found)
