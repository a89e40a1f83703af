"""Between a plan and the brakes: how the copies of a policy stand, and what of a plan may be done.

Pure. Keeps true: what brings or changes a copy is done as planned; what takes one away only if the
brakes let it go, and then by the time that they say.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from math import ceil
from typing import Final, Protocol

from kube_sync.policysync.brakes import Standing
from kube_sync.policysync.copies import CopyKey, Placed
from kube_sync.policysync.desired import Desired
from kube_sync.policysync.plan import Apply, Leave, Plan, Remove, Step
from kube_sync.safety import Held

# What says that a cluster is there: of many that are gone at once, it may be that which is wrong.
_CLUSTERS: Final = frozenset(["ManagedClusters"])
_NAMELESS: Final = frozenset(["copies that name no Gateway"])


class Takes(Protocol):
    """Who lets copies go."""

    def take(self, key: CopyKey, now: float) -> Held | float:
        """Return from when on a copy may be removed (Unix seconds), or what it waits for."""
        ...

    def approval(self, key: CopyKey) -> str:
        """Return the name that lets its removal through, "" where none has to."""
        ...


@dataclass(frozen=True, slots=True)
class Braked:
    """The steps that may be done, what waits for what, and when to look again (Unix seconds)."""

    plan: Plan
    held: Mapping[str, Held]  # by cluster
    approved: Mapping[str, str]  # likewise, the name that lets a removal through


def standings(
    wanted: Desired | None,
    placed: Mapping[str, Placed],
    *,
    gone: AbstractSet[str] = frozenset(),
    managed: AbstractSet[str] = frozenset(),
    vanished: str = "",
) -> dict[str, Standing]:
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
        found[cluster] = Standing(sources, kept, at_once, one.leaving)
    return found


def braked(found: Plan, placed: Mapping[str, Placed], brakes: Takes, now: float) -> Braked:
    """Return what of a plan may be done now (Unix seconds); `placed` is what it was made of."""
    steps: list[Step] = []
    times = [] if found.again is None else [found.again]
    held: dict[str, Held] = {}
    approved: dict[str, str] = {}
    for step in found.steps:
        if isinstance(step, Apply):
            steps.append(step)
            continue
        said, name = brakes.take(step.key, now), brakes.approval(step.key)
        if name:
            approved[step.key.cluster] = name
        if isinstance(said, Held):
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
