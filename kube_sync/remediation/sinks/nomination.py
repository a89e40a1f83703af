"""Decide which worker clusters a Workload is nominated for. Pure.

A Workload is nominated under the conditions of Kueue's own dispatchers, in their order
(sigs.k8s.io/kueue, pkg/controller/workloaddispatcher/incrementaldispatcher.go): it is not being
deleted, its MultiKueue admission check is Pending, no cluster has admitted it, the check names
clusters, it is not finished, and its quota is reserved.

The policy's order is that of the weights of the placement, the highest first, and of the names
where they are equal. The first active cluster is nominated; if it does not admit the Workload in
time, the next one in addition. A cluster that the policy does not name, or that is not active, is
not nominated any more; one that a move takes away later (`Permitted.leaving`) stays until then, and
does not keep the first one of the policy from being nominated.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from kube_sync.decisions.decision import PLACEMENT
from kube_sync.guard.placements import read_preferences
from kube_sync.kube.kueue import ClusterState, Workload
from kube_sync.remediation.plan import Unusable, Wanted
from kube_sync.remediation.sinks.placement import NOT_NAMED, OWNER

MOST = 10  # nominated clusters of one Workload (workload_types.go, MaxItems)
SECONDS_KEY = "kube-sync.io/next-cluster-seconds"  # annotation, decided by policies
_PENDING = "Pending"
_MISSING = ClusterState(active=False, message="there is no MultiKueueCluster of this name")


@dataclass(frozen=True, slots=True)
class Fleet:
    """The clusters that Kueue may copy Workloads to.

    `checks` maps each AdmissionCheck of MultiKueue to the name of its MultiKueueConfig, `configs`
    maps these to their clusters.
    """

    checks: Mapping[str, str]
    configs: Mapping[str, Sequence[str]]
    clusters: Mapping[str, ClusterState]

    def state(self, cluster: str) -> ClusterState:
        """Return the state of a cluster."""
        return self.clusters.get(cluster, _MISSING)


@dataclass(frozen=True, slots=True)
class Permitted:
    """The clusters that a decision permits, the preferred first.

    `seconds`: for how long one may take until the next one is nominated. `leaving`: clusters that
    stay if they are nominated, until a move takes them away.
    """

    order: tuple[str, ...]
    seconds: float
    leaving: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Nomination:
    """The clusters to nominate.

    `reason` says what differs from what is nominated now, empty if nothing does. `seconds` is when
    the next cluster is due, None if there is none. `hold`: why there are none.
    """

    clusters: tuple[str, ...]
    reason: str = ""
    seconds: float | None = None
    hold: Unusable | None = None


def check_of(found: Workload, fleet: Fleet) -> str | None:
    """Return the MultiKueue admission check for which a Workload needs a nomination, if any."""
    if found.deleted:
        return None
    check = next(((name, state) for name, state in found.checks if name in fleet.checks), None)
    if check is None or check[1] != _PENDING or found.cluster is not None:
        return None
    return None if found.finished or not found.reserved else check[0]


def permitted(wanted: Wanted, seconds: float) -> Permitted | Unusable:
    """Return what a decision permits, by default for `seconds` each, or why it cannot be used."""
    annotations = {} if wanted.decision is None else wanted.decision.annotations
    text = annotations.get(PLACEMENT)
    if text is None or wanted.policy == OWNER:
        return Unusable("undecided", f"the decision has no {PLACEMENT}")
    if (order := order_of(text)) is None:
        return NOT_NAMED
    decided = tuple(name for name in order if name not in wanted.leaving)
    return Permitted(decided, seconds_of(annotations, seconds), wanted.leaving)


def order_of(preferences: str) -> tuple[str, ...] | None:
    """Return the clusters of replica-set-preferences, the preferred first.

    None if they cannot be listed: the value is invalid, or has `*`.
    """
    read = read_preferences(preferences)
    if read is None or read.open:
        return None
    entries = msgspec.json.decode(preferences)["clusters"]
    return tuple(sorted(read.names, key=lambda name: (-_weight(entries[name]), name)))


def _weight(entry: object) -> float:
    weight = entry.get("weight", 1) if isinstance(entry, Mapping) else 1
    return weight if isinstance(weight, int | float) else 1


def seconds_of(annotations: Mapping[str, str], default: float) -> float:
    """Return for how long a cluster may take until the next one is nominated."""
    try:
        seconds = float(annotations.get(SECONDS_KEY, default))
    except ValueError:
        return default
    return seconds if 0 < seconds < math.inf else default


def nominate(found: Workload, policy: Permitted, fleet: Fleet, now: float) -> Nomination | None:
    """Return the nomination of a Workload at `now` (Unix seconds), None if it needs none."""
    check = check_of(found, fleet)
    if check is None:
        return None
    config = fleet.checks[check]
    if not (listed := fleet.configs.get(config)):
        named = f"MultiKueueConfig {config}" if config else "no MultiKueueConfig"
        reason = f"AdmissionCheck {check} names {named}, which lists no clusters"
        return Nomination(found.nominated, hold=Unusable("no_config", reason))
    usable, stays = (
        [name for name in names if name in listed and fleet.state(name).active]
        for names in (policy.order, policy.leaving)
    )
    kept = tuple(name for name in found.nominated if name in usable or name in stays)
    gone = _gone(found, policy, listed, fleet)
    if not usable and not kept:
        return Nomination((), gone, hold=_nowhere(policy.order, listed, config, fleet))
    following = next((name for name in usable if name not in kept), None)
    if following is None or len(kept) >= MOST:
        return Nomination(kept, gone)
    if any(name in usable for name in kept):
        due = found.nominated_at + policy.seconds - now
        if due > 0:
            return Nomination(kept, gone, due)
        late = f"{kept[-1]} did not admit it within {policy.seconds:g} s"
        why = f"{late}: {following} is nominated too"
    else:
        first = "the policy's first" + ("" if following == policy.order[0] else " that is active")
        why = f"{following} is {first}"
    return Nomination((*kept, following), "; ".join(filter(None, [gone, why])))


def _gone(found: Workload, policy: Permitted, listed: Sequence[str], fleet: Fleet) -> str:
    """Say which nominated clusters leave, and why."""
    reasons = []
    for name in found.nominated:
        if name not in policy.order and name not in policy.leaving:
            reasons.append(f"{name} is left: no policy permits it")
        elif name not in listed:
            reasons.append(f"{name} is left: the admission check does not list it")
        elif not (state := fleet.state(name)).active:
            reasons.append(f"{name} is left: not active ({state.message})")
    return "; ".join(reasons)


def _nowhere(order: Sequence[str], listed: Sequence[str], config: str, fleet: Fleet) -> Unusable:
    if not order:
        return Unusable("no_cluster", "the policy permits no cluster")
    possible = [name for name in order if name in listed]
    if not possible:
        names, known = ", ".join(order), ", ".join(listed)
        reason = f"MultiKueueConfig {config} lists none of {names}, only {known}"
        return Unusable("no_cluster", reason)
    states = ", ".join(f"{name} ({fleet.state(name).message})" for name in possible)
    return Unusable("inactive", f"no cluster that the policy permits is active: {states}")
