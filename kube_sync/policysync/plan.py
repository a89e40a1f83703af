"""What to do about the copies of one policy, given what is wanted and what is placed. Pure.

What is as it should be is not touched. A cluster that a placement gave up keeps its copy for the
grace, and when it comes back within, the copy stays. What nobody can want back goes at once: the
policy is deleted, its reference leads elsewhere, the cluster is gone. Where it is not known whether
a copy is wanted, it stays.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Final

from kube_sync.policysync.copies import Copy, CopyKey, Placed
from kube_sync.policysync.desired import Desired


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
