"""The brakes of policy sync: which copies may be taken away now, which wait, and for what.

Pure: no I/O and no clock; `now` is Unix seconds that never go back within a process. What brings a
copy to a cluster, or changes one, is not its business: that takes nothing away.

How it is used, by a reconciler that takes one policy at a time:
1. `want` with all copies of a policy, whenever any of them stands otherwise.
2. `weigh` once a second will do; before the first time, all policies have to have been told. It
   sees all of them at once, so that whatever vanishes in many small steps counts as one.
3. `take` for each copy that is not wanted. A time: remove it from then on, until then mark it so.
   Held: leave it as it is, and ask again after the next `weigh` that says something else.

What waits, waits until it is fewer, or until it is approved and has been unwanted for the grace:
time alone makes nothing of it. The time that a copy is marked with is since when it is not wanted
plus the grace, so that after a restart an approval still names the same removals. What went within
the window is told by `let_go`, and to the brakes of the next process by `recall`: it is one removal
whoever does it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from math import inf

from kube_sync.config import PolicySync
from kube_sync.guard import Limits, PendingChange, Withheld
from kube_sync.guard.approvals import Approvals, Step
from kube_sync.guard.assessment import allowed
from kube_sync.policysync.copies import CopyKey, PolicyId
from kube_sync.policysync.recent_removals import LetGo
from kube_sync.runtime.freshness import Stale

_LOOKS_SECONDS = 1.0
_KEPT_SECONDS = 5.0  # what was weighed longer ago may be otherwise by now


@dataclass(frozen=True, slots=True)
class CopyState:
    """How a copy that is placed stands with the hub.

    `sources`: by whom it is wanted, or was until lately, as `Gateway infra/edge` (its placement) or
    `GatewayClass edge` (its parameters). None of a copy that is not wanted: somebody did this to
    just that policy, which was deleted or targets something else. Whoever cannot tell a policy that
    was deleted from a kind that is not served any more names the kind as a source.
    """

    sources: frozenset[str] = frozenset()
    wanted: bool = True
    at_once: bool = False  # nobody can want it back: no grace
    leaving: float | None = None  # as it is marked: Unix seconds


@dataclass(frozen=True, slots=True)
class HoldReport:
    """What holds, and how many copies are not wanted, of how many."""

    holds: tuple[Withheld, ...]
    unwanted: int
    copies: int


@dataclass(slots=True)
class _Tally:
    """The clusters that a source has copies on, and what goes of them."""

    clusters: set[str] = field(default_factory=set)
    kept: set[str] = field(default_factory=set)
    gone: set[CopyKey] = field(default_factory=set)

    def lost(self, share: float) -> str:
        """Return how much of it goes, empty where that is not much."""
        lost = {key.cluster for key in self.gone} - self.kept
        # One cluster at a time is no shrinking, however few there are.
        many = len(lost) > max(1, share * len(self.clusters))
        emptied = not self.kept and len(self.gone) > 1
        if share >= 1 or not (many or emptied):
            return ""
        return f"{len(self.clusters) - len(lost)} of {len(self.clusters)} clusters are left"


class Brakes:
    """What is held and what may go; it decides by its arguments alone."""

    def __init__(self, limits: Limits, *, grace: float, window: float) -> None:
        """`limits`: stale, shrink and mass. `window`: removals so near together are one (s)."""
        self._limits = limits
        self._grace = grace
        self._window = window
        self._standing: dict[PolicyId, Mapping[str, CopyState]] = {}
        self._since: dict[CopyKey, int] = {}  # since when each is not wanted (Unix seconds)
        # What was let go without an approval, when at last, and what it had stood on.
        self._let: dict[CopyKey, tuple[float, frozenset[str]]] = {}
        self._approvals: Approvals[CopyKey] = Approvals()
        self._weighed: Mapping[CopyKey, Step] = {}
        self._at = -inf
        self._stale: Withheld | None = None
        self._mass: Withheld | None = None
        self._shrunk: Mapping[str, Withheld] = {}
        self._held: dict[CopyKey, PendingChange] = {}

    @property
    def held(self) -> Mapping[CopyKey, PendingChange]:
        """The removals that wait, each since when it was held first."""
        return self._held

    def want(self, policy: PolicyId, copies: Mapping[str, CopyState], now: float) -> None:
        """Take in all copies that are placed of a policy, by cluster; none: forget it."""
        before = self._standing.pop(policy, {})
        if copies:
            self._standing[policy] = dict(copies)
        for cluster in before.keys() | copies.keys():
            key, one = CopyKey(policy, cluster), copies.get(cluster)
            if one is None or one.wanted:
                self._since.pop(key, None)
                self._held.pop(key, None)
            elif key not in self._since:
                begun = now if one.leaving is None else one.leaving - self._grace
                self._since[key] = int(min(begun, now))

    @property
    def let_go(self) -> LetGo:
        """What was let go within the window without an approval, when, and what it stood on."""
        return self._let

    def recall(self, let: LetGo) -> None:
        """Take in what other processes let go: it counts as what this one did."""
        for key, one in let.items():
            if key not in self._let or self._let[key][0] < one[0]:
                self._let[key] = one

    def weigh(self, stale: Iterable[Stale], approved: Collection[str], now: float) -> HoldReport:
        """Weigh all that is not wanted together.

        `stale`: each source that is not current, with an age of infinity where it never was;
        `approved`: the names that operators approved.
        """
        self._let = {k: one for k, one in self._let.items() if now - one[0] < self._window}
        self._at, self._weighed = now, {key: self._step(key) for key in self._since}
        waiting = self._approvals.weigh(self._weighed, approved, 0)
        copies = sum(map(len, self._standing.values()))
        copies += sum(self._found(key) is None for key in self._let)
        few = allowed(copies, self._limits)
        lost = self._lost(waiting) if waiting else {}
        mass = _mass({*waiting, *self._let}, copies, few) if waiting else ""
        offer = self._approvals.offer(waiting, self._weighed, few) if lost or mass else ""
        release = f"{{}}, or approve {offer}"
        self._stale = _not_current(stale, self._limits)
        back = release.format("the clusters are back")
        self._shrunk = {s: Withheld("fleet", why, back, approve=offer) for s, why in lost.items()}
        fewer = release.format("fewer are to be removed")
        self._mass = Withheld("mass", mass, fewer, approve=offer) if mass else None
        return HoldReport(tuple(self._holds()), len(self._weighed), copies)

    def take(self, key: CopyKey, now: float) -> Withheld | float:
        """Return from when on a copy may be removed (Unix seconds), or what it waits for."""
        begun, step = self._since.get(key), self._weighed.get(key)
        if begun is None or step != self._step(key) or now - self._at > _KEPT_SECONDS:
            until, reason = now + _LOOKS_SECONDS, "not yet weighed together with all others"
            return self._hold(key, Withheld("unseen", reason, "the next look at all", until), now)
        approved = self._approvals.of(key, step) is not None
        standing = self._standing[key.policy][key.cluster]
        held = self._stale or (None if approved else self._too_many(standing.sources))
        if held is not None:
            return self._hold(key, held, now)
        self._held.pop(key, None)
        if not approved:
            self._let[key] = now, standing.sources
        # A mark of a grace that was shorter then is kept to.
        at = begun if standing.at_once else min(begun + self._grace, standing.leaving or inf)
        return float(at)

    def approval(self, key: CopyKey) -> str:
        """Return the approved name that lets a removal through, "" where there is none."""
        step = self._weighed.get(key)
        return (self._approvals.of(key, step) or "") if step else ""

    def _hold(self, key: CopyKey, held: Withheld, now: float) -> Withheld:
        since = self._held[key].since if key in self._held else now
        self._held[key] = PendingChange(held, since)
        return held

    def _step(self, key: CopyKey) -> Step:
        sources = self._standing[key.policy][key.cluster].sources
        return (" ".join(sorted(sources)), "", self._since[key])

    def _too_many(self, sources: Collection[str]) -> Withheld | None:
        shrunk = (self._shrunk[source] for source in sorted(sources) if source in self._shrunk)
        return next(shrunk, self._mass)

    def _holds(self) -> Iterator[Withheld]:
        if self._weighed and self._stale is not None:
            yield self._stale
        yield from self._shrunk.values()
        if self._mass is not None:
            yield self._mass

    def _found(self, key: CopyKey) -> CopyState | None:
        return self._standing.get(key.policy, {}).get(key.cluster)

    def _lost(self, waiting: Collection[CopyKey]) -> dict[str, str]:
        """Return the sources of which much goes, and how much."""
        tallies: dict[str, _Tally] = defaultdict(_Tally)
        for copies in self._standing.values():
            for cluster, one in copies.items():
                for source in one.sources:
                    tally = tallies[source]
                    tally.clusters.add(cluster)
                    if one.wanted:
                        tally.kept.add(cluster)
        asked = {key: self._standing[key.policy][key.cluster].sources for key in waiting}
        gone = {key: sources for key, (_, sources) in self._let.items()} | asked
        for key, sources in gone.items():
            found = self._found(key)
            for source in sources if found is None or not found.wanted else ():
                tallies[source].clusters.add(key.cluster)
                tallies[source].gone.add(key)
        said = {source: tally.lost(self._limits.shrink) for source, tally in tallies.items()}
        return {source: f"{source}: {said[source]}" for source in sorted(said) if said[source]}


def brakes_of(settings: PolicySync) -> Brakes:
    """Return the brakes that the configuration section `policy_sync` gives."""
    own = settings.brakes
    limits = Limits(
        stale=own.stale_seconds or None,
        shrink=own.shrink_share,
        mass_share=own.mass_share,
        mass_floor=own.mass_floor,
    )
    return Brakes(limits, grace=settings.grace_seconds, window=own.window_seconds)


def _mass(counted: Collection[CopyKey], copies: int, few: float) -> str:
    """Return how many are too many; those of one policy or one cluster are one removal."""
    one = min(len({key.policy for key in counted}), len({key.cluster for key in counted}))
    if len(counted) <= few or one == 1:
        return ""
    return f"{len(counted)} of {copies} copies would be removed"


def _not_current(stale: Iterable[Stale], limits: Limits) -> Withheld | None:
    """Return what is to be current again first: of several, the one that is so for longest."""
    worst = max(stale, key=lambda one: (one.age, one.source), default=None)
    if worst is None:
        return None
    if worst.age == inf:
        reason = f"{worst.source}: not known yet: {worst.reason}"
        return Withheld("fleet", reason, f"{worst.source}: known")
    if limits.stale is None or worst.age <= limits.stale:
        return None
    # Without its age: what is told of it stays as it is, and is written once.
    reason = f"{worst.source}: not current for more than {limits.stale:.0f} s: {worst.reason}"
    return Withheld("fleet", reason, f"{worst.source}: current again")
