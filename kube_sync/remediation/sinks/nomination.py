"""Decide which worker clusters a Workload is nominated for. Pure.

A Workload is nominated under the conditions of Kueue's own dispatchers, in their order
(sigs.k8s.io/kueue, pkg/controller/workloaddispatcher/incrementaldispatcher.go): it is not being
deleted, its MultiKueue admission check is Pending, no cluster has admitted it, the check names
clusters, it is not finished, and its quota is reserved.

The policy's order is that of the weights of the placement, the highest first, and of the names
where they are equal. The first active cluster is nominated; if it does not admit the Workload in
time, the next one in addition. A cluster that the policy does not name, or that is not active, is
not nominated any more.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from kube_sync.decisions.decision import PLACEMENT
from kube_sync.guard.placements import read_preferences
from kube_sync.kube.kueue import ClusterState, Workload
from kube_sync.remediation.plan import Wanted

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
class Round:
    """The latest nomination of a Workload: since when its last cluster is nominated."""

    uid: str
    last: str
    since: float  # seconds


@dataclass(frozen=True, slots=True)
class Hold:
    """No cluster can be nominated, and why; the code is one word."""

    code: str
    reason: str


@dataclass(frozen=True, slots=True)
class Nomination:
    """The clusters to nominate.

    `reason` says what differs from what is nominated now, empty if nothing does. `seconds` is when
    the next cluster is due, None if there is none.
    """

    clusters: tuple[str, ...]
    reason: str = ""
    seconds: float | None = None
    hold: Hold | None = None


def check_of(found: Workload, fleet: Fleet) -> str | None:
    """Return the MultiKueue admission check for which a Workload needs a nomination, if any."""
    if found.deleted:
        return None
    check = next(((name, state) for name, state in found.checks if name in fleet.checks), None)
    if check is None or check[1] != _PENDING or found.cluster is not None:
        return None
    return None if found.finished or not found.reserved else check[0]


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


def permitted(wanted: Wanted | None, found: Workload) -> tuple[str, ...] | Hold | None:
    """Return the clusters that the decision permits, the preferred first; None: not decided yet.

    A Hold: the decision cannot be used, or the Workload does not have its placement.
    """
    if wanted is None or wanted.uid not in ("", found.uid):
        return None
    if wanted.decision is None or wanted.decision.errors:
        return Hold("undecided", _undecided(wanted))
    text = wanted.decision.annotations.get(PLACEMENT)
    if text is None:
        return Hold("undecided", f"the decision has no {PLACEMENT}")
    if text != found.annotations.get(PLACEMENT):
        return Hold("not_applied", "the Workload does not have the placement that was decided")
    order = order_of(text)
    return Hold("not_named", "the placement does not name its clusters") if order is None else order


def _undecided(wanted: Wanted) -> str:
    if wanted.failure is not None:
        return f"no usable decision: {wanted.failure}"
    if wanted.decision is None:
        return "no policy decides on it"
    return "the policy objects: " + "; ".join(wanted.decision.errors)


def seconds_of(found: Workload, default: float) -> float:
    """Return for how long a cluster may take until the next one is nominated."""
    try:
        seconds = float(found.annotations.get(SECONDS_KEY, default))
    except ValueError:
        return default
    return seconds if 0 < seconds < math.inf else default


def nominate(
    found: Workload,
    order: Sequence[str],
    fleet: Fleet,
    seconds: float,
    latest: Round | None,
    now: float,
) -> Nomination | None:
    """Return the nomination of a Workload, None if it needs none.

    `order` has the clusters that the policy permits, the preferred first.
    """
    check = check_of(found, fleet)
    if check is None:
        return None
    config = fleet.checks[check]
    if not (listed := fleet.configs.get(config)):
        named = f"MultiKueueConfig {config}" if config else "no MultiKueueConfig"
        reason = f"AdmissionCheck {check} names {named}, which lists no clusters"
        return Nomination(found.nominated, hold=Hold("no_config", reason))
    usable = [name for name in order if name in listed and fleet.state(name).active]
    kept = [name for name in found.nominated if name in usable]
    gone = _gone(found, order, listed, fleet)
    if not usable:
        return Nomination((), gone, hold=_nowhere(order, listed, config, fleet))
    if not kept:
        return _answer(
            [usable[0]], usable, [gone, f"{usable[0]} is {_first(usable, order)}"], seconds
        )
    since = _since(latest, found, kept, now)
    rest = () if len(kept) >= MOST else usable
    following = next((name for name in rest if name not in kept), None)
    if following is None or (due := since + seconds - now) > 0:
        left = None if following is None else due
        return Nomination(tuple(kept), gone, left)
    late = f"{kept[-1]} did not admit it within {seconds:g} s: {following} is nominated too"
    return _answer([*kept, following], usable, [gone, late], seconds)


def _since(latest: Round | None, found: Workload, kept: Sequence[str], now: float) -> float:
    """Return since when the last cluster is nominated; where that is not known, now."""
    known = latest is not None and (latest.uid, latest.last) == (found.uid, kept[-1])
    return latest.since if latest is not None and known else now


def _answer(
    names: Sequence[str], usable: Sequence[str], reasons: Sequence[str], seconds: float
) -> Nomination:
    more = len(names) < len(usable)
    return Nomination(tuple(names), "; ".join(filter(None, reasons)), seconds if more else None)


def _first(usable: Sequence[str], order: Sequence[str]) -> str:
    return "the policy's first" if usable[0] == order[0] else "the policy's first that is active"


def _gone(found: Workload, order: Sequence[str], listed: Sequence[str], fleet: Fleet) -> str:
    """Say which nominated clusters leave, and why."""
    reasons = []
    for name in found.nominated:
        if name not in order:
            reasons.append(f"{name} is left: no policy permits it")
        elif name not in listed:
            reasons.append(f"{name} is left: the admission check does not list it")
        elif not (state := fleet.state(name)).active:
            reasons.append(f"{name} is left: not active ({state.message})")
    return "; ".join(reasons)


def _nowhere(order: Sequence[str], listed: Sequence[str], config: str, fleet: Fleet) -> Hold:
    if not order:
        return Hold("no_cluster", "the policy permits no cluster")
    possible = [name for name in order if name in listed]
    if not possible:
        names, known = ", ".join(order), ", ".join(listed)
        reason = f"MultiKueueConfig {config} lists none of {names}, only {known}"
        return Hold("no_cluster", reason)
    states = ", ".join(f"{name} ({fleet.state(name).message})" for name in possible)
    return Hold("inactive", f"no cluster that the policy permits is active: {states}")
