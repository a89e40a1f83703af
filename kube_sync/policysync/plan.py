"""Plans the steps for the copies of one policy from the desired and the placed ones. Pure.

A copy that is right is not touched. A copy on a cluster that a placement dropped stays for the
grace period; if the cluster comes back within, the copy stays. A copy that nobody can want back is
removed at once: the policy is deleted, its reference changed, the cluster is gone. A copy that may
be wanted stays. Steps that create or change a copy are done as planned; removals only if the
brakes permit them, and then at the time that they set.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from math import ceil
from typing import Final

from kube_sync.guard import Withheld
from kube_sync.policysync.copies import Copy, CopyKey, Placed
from kube_sync.policysync.desired import Desired
from kube_sync.policysync.removal_guard import Brakes, CopyState


@dataclass(frozen=True, slots=True)
class Apply:
    """Create or update a copy; it also clears its removal mark."""

    copy: Copy

    @property
    def key(self) -> CopyKey:
        """The copy of the step."""
        return self.copy.key


@dataclass(frozen=True, slots=True)
class MarkForRemoval:
    """Mark a copy: from `at` (Unix seconds) on it may be removed."""

    key: CopyKey
    at: float


@dataclass(frozen=True, slots=True)
class Remove:
    """Remove a copy."""

    key: CopyKey


Step = Apply | MarkForRemoval | Remove

# Seconds of clock skew between two replicas.
_SKEW: Final = 60.0


@dataclass(frozen=True, slots=True)
class Plan:
    """The steps to do now, by cluster, and when to plan again (Unix seconds)."""

    steps: tuple[Step, ...] = ()
    plan_again_at: float | None = None


def plan(
    wanted: Desired | None,
    placed: Mapping[str, Placed],
    *,
    now: float,
    grace: float,
    gone: AbstractSet[str] = frozenset(),
) -> Plan:
    """Return the steps from `placed` to `wanted`; None: the policy is deleted.

    `now` and `grace` are seconds, `gone` are clusters that the hub no longer has.
    """
    copies = {} if wanted is None else wanted.copies
    applied = {cluster: copy for cluster, copy in copies.items() if cluster not in gone}
    kept = set() if wanted is None else (wanted.uncertain | applied.keys()) - gone
    at_once = placed.keys() if wanted is None or grace <= 0 else wanted.abandoned | gone
    leaving = [
        _removal_step(one, now, grace, at_once=cluster in at_once)
        for cluster, one in sorted(placed.items())
        if cluster not in kept
    ]
    steps = (
        *_apply_steps(applied, placed),
        *(one for one in leaving if not isinstance(one, _Wait)),
    )
    again = min((one.at for one in leaving if not isinstance(one, Remove)), default=None)
    return Plan(steps, again)


@dataclass(frozen=True, slots=True)
class _Wait:
    """It is marked already, and not due."""

    at: float


def _apply_steps(copies: Mapping[str, Copy], placed: Mapping[str, Placed]) -> Iterator[Step]:
    for cluster, copy in sorted(copies.items()):
        found = placed.get(cluster)
        if found is None or found.digest != copy.digest or found.remove_after is not None:
            yield Apply(copy)


def _removal_step(
    one: Placed, now: float, grace: float, *, at_once: bool
) -> MarkForRemoval | Remove | _Wait:
    if at_once or (one.remove_after is not None and one.remove_after <= now):
        return Remove(one.key)
    # A mark beyond the grace is from a longer grace, or from a wrong clock.
    if one.remove_after is None or one.remove_after > now + grace + _SKEW:
        return MarkForRemoval(one.key, now + grace)
    return _Wait(one.remove_after)


# The source of a cluster's existence: if many vanish at once, the source may be wrong.
_CLUSTERS: Final = frozenset(["ManagedClusters"])
_NAMELESS: Final = frozenset(["copies that name no Gateway"])


@dataclass(frozen=True, slots=True)
class Braked:
    """The permitted steps, the held ones, and when to plan again (Unix seconds)."""

    plan: Plan
    held: Mapping[str, Withheld]  # by cluster
    approved: Mapping[str, str]  # likewise, the name of a removal's approval


def copy_states(
    wanted: Desired | None,
    placed: Mapping[str, Placed],
    *,
    gone: AbstractSet[str] = frozenset(),
    managed: AbstractSet[str] = frozenset(),
    vanished: str = "",
) -> dict[str, CopyState]:
    """Return the state of each copy of a policy for the brakes, from the arguments of `plan`.

    `managed`: clusters that the hub lists, including those that are gone.
    `vanished`: the kind, if the policy went with its kind; empty: it was deleted.
    """
    states = {}
    for cluster, one in placed.items():
        is_wanted = (
            wanted is not None and cluster in (wanted.copies.keys() | wanted.uncertain) - gone
        )
        is_abandoned = wanted is not None and cluster in wanted.abandoned
        sources = frozenset(f"Gateway {gateway}" for gateway in one.gateways) or _NAMELESS
        if cluster in managed and (is_wanted or cluster in gone):
            sources |= _CLUSTERS
        if not is_wanted and (wanted is None or is_abandoned):
            sources = frozenset([vanished]) if vanished else frozenset()
        is_deleted = wanted is None and not vanished
        at_once = not is_wanted and (is_deleted or is_abandoned or cluster in gone)
        states[cluster] = CopyState(sources, is_wanted, at_once, one.remove_after)
    return states


def braked(found: Plan, placed: Mapping[str, Placed], brakes: Brakes, now: float) -> Braked:
    """Return the steps of a plan that may be done now (Unix seconds); `placed` as for `plan`."""
    steps: list[Step] = []
    times = [] if found.plan_again_at is None else [found.plan_again_at]
    held: dict[str, Withheld] = {}
    approved: dict[str, str] = {}
    for step in found.steps:
        if isinstance(step, Apply):
            steps.append(step)
            continue
        decision, name = brakes.permit(step.key, now), brakes.approval(step.key)
        if name:
            approved[step.key.cluster] = name
        if isinstance(decision, Withheld):
            held[step.key.cluster] = decision
        elif decision <= now:
            steps.append(Remove(step.key))
        else:
            times.append(decision)
            steps += _mark_steps(placed[step.key.cluster], decision)
    times += [one.until for one in held.values() if one.until is not None]
    return Braked(Plan(tuple(steps), min(times, default=None)), held, approved)


def _mark_steps(one: Placed, at: float) -> Iterator[MarkForRemoval]:
    """Yield the step that marks a copy, unless it has this mark: marks are whole seconds."""
    if one.remove_after is None or one.remove_after > ceil(at):
        yield MarkForRemoval(one.key, at)
