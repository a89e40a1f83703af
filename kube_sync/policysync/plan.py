"""What to do about the copies of one policy, given what is wanted and what is placed. Pure.

What is as it should be is not touched. A cluster that a placement gave up keeps its copy for the
grace, and when it comes back within, the copy stays. What nobody can want back goes at once: the
policy is deleted, its reference leads elsewhere, the cluster is gone. Where it is not known whether
a copy is wanted, it stays. What brings or changes a copy is done as planned; what takes one away
only if the brakes let it go, and then by the time that they say.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from math import ceil
from typing import Final, Protocol

from kube_sync.guard import Withheld
from kube_sync.policysync.copies import Copy, CopyKey, Placed
from kube_sync.policysync.desired import Desired
from kube_sync.policysync.removal_guard import CopyState


@dataclass(frozen=True, slots=True)
class Apply:
    """Make a copy as it is to be; it also takes away a mark that it may be removed."""

    copy: Copy

    @property
    def key(self) -> CopyKey:
        """Which copy it is about."""
        return self.copy.key


@dataclass(frozen=True, slots=True)
class Leave:
    """Mark a copy: from `at` (unix seconds) on it may be removed."""

    key: CopyKey
    at: float


@dataclass(frozen=True, slots=True)
class Remove:
    """Remove a copy."""

    key: CopyKey


Step = Apply | Leave | Remove

# Seconds that the clocks of two replicas may be apart.
_SKEW: Final = 60.0


@dataclass(frozen=True, slots=True)
class Plan:
    """The steps of now, by cluster, and when to look again (unix seconds)."""

    steps: tuple[Step, ...] = ()
    again: float | None = None


def plan(
    wanted: Desired | None,
    placed: Mapping[str, Placed],
    *,
    now: float,
    grace: float,
    gone: AbstractSet[str] = frozenset(),
) -> Plan:
    """Return the steps that make `placed` what is wanted; None: the policy is deleted.

    `now` and `grace` are seconds, `gone` are clusters that the hub has no more.
    """
    copies = {} if wanted is None else wanted.copies
    applied = {cluster: copy for cluster, copy in copies.items() if cluster not in gone}
    stays = set() if wanted is None else (wanted.uncertain | applied.keys()) - gone
    at_once = placed.keys() if wanted is None or grace <= 0 else wanted.abandoned | gone
    leaving = [
        _left(one, now, grace, at_once=cluster in at_once)
        for cluster, one in sorted(placed.items())
        if cluster not in stays
    ]
    steps = (*_applied(applied, placed), *(one for one in leaving if not isinstance(one, _Wait)))
    again = min((one.at for one in leaving if not isinstance(one, Remove)), default=None)
    return Plan(steps, again)


@dataclass(frozen=True, slots=True)
class _Wait:
    """It is marked already, and not due."""

    at: float


def _applied(copies: Mapping[str, Copy], placed: Mapping[str, Placed]) -> Iterator[Step]:
    for cluster, copy in sorted(copies.items()):
        found = placed.get(cluster)
        if found is None or found.digest != copy.digest or found.leaving is not None:
            yield Apply(copy)


def _left(one: Placed, now: float, grace: float, *, at_once: bool) -> Leave | Remove | _Wait:
    if at_once or (one.leaving is not None and one.leaving <= now):
        return Remove(one.key)
    # A mark beyond the grace is of a longer one, or of a clock that went wrong.
    if one.leaving is None or one.leaving > now + grace + _SKEW:
        return Leave(one.key, now + grace)
    return _Wait(one.leaving)


# What says that a cluster is there: of many that are gone at once, it may be that which is wrong.
_CLUSTERS: Final = frozenset(["ManagedClusters"])
_NAMELESS: Final = frozenset(["copies that name no Gateway"])


class Takes(Protocol):
    """Who lets copies go."""

    def take(self, key: CopyKey, now: float) -> Withheld | float:
        """Return from when on a copy may be removed (Unix seconds), or what it waits for."""
        ...

    def approval(self, key: CopyKey) -> str:
        """Return the name that lets its removal through, "" where none has to."""
        ...


@dataclass(frozen=True, slots=True)
class Braked:
    """The steps that may be done, what waits for what, and when to look again (Unix seconds)."""

    plan: Plan
    held: Mapping[str, Withheld]  # by cluster
    approved: Mapping[str, str]  # likewise, the name that lets a removal through


def standings(
    wanted: Desired | None,
    placed: Mapping[str, Placed],
    *,
    gone: AbstractSet[str] = frozenset(),
    managed: AbstractSet[str] = frozenset(),
    vanished: str = "",
) -> dict[str, CopyState]:
    """Return how each copy of a policy stands, for what `plan` is given.

    `managed`: clusters that the hub tells of, those that are gone included.
    `vanished`: what went so that there is no policy any more, as its kind; empty: it was deleted.
    """
    found = {}
    for cluster, one in placed.items():
        kept = wanted is not None and cluster in (wanted.copies.keys() | wanted.uncertain) - gone
        abandoned = wanted is not None and cluster in wanted.abandoned
        sources = frozenset(f"Gateway {gateway}" for gateway in one.gateways) or _NAMELESS
        if cluster in managed and (kept or cluster in gone):
            sources |= _CLUSTERS
        if not kept and (wanted is None or abandoned):
            sources = frozenset([vanished]) if vanished else frozenset()
        deleted = wanted is None and not vanished
        at_once = not kept and (deleted or abandoned or cluster in gone)
        found[cluster] = CopyState(sources, kept, at_once, one.leaving)
    return found


def braked(found: Plan, placed: Mapping[str, Placed], brakes: Takes, now: float) -> Braked:
    """Return what of a plan may be done now (Unix seconds); `placed` is what it was made of."""
    steps: list[Step] = []
    times = [] if found.again is None else [found.again]
    held: dict[str, Withheld] = {}
    approved: dict[str, str] = {}
    for step in found.steps:
        if isinstance(step, Apply):
            steps.append(step)
            continue
        said, name = brakes.take(step.key, now), brakes.approval(step.key)
        if name:
            approved[step.key.cluster] = name
        if isinstance(said, Withheld):
            held[step.key.cluster] = said
        elif said <= now:
            steps.append(Remove(step.key))
        else:
            times.append(said)
            steps += _marked(placed[step.key.cluster], said)
    times += [one.until for one in held.values() if one.until is not None]
    return Braked(Plan(tuple(steps), min(times, default=None)), held, approved)


def _marked(one: Placed, at: float) -> Iterator[Leave]:
    """Yield the step that marks a copy, unless it is marked so: marks are whole seconds."""
    if one.leaving is None or one.leaving > ceil(at):
        yield Leave(one.key, at)
