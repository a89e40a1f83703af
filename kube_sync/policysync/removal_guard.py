"""The brakes of policy sync: which removals of copies are permitted, which are held, and why.

Pure: no I/O and no clock; `now` is Unix seconds that never go back within a process. It does not
deal with creates and updates of copies, which remove nothing.

How a reconciler of one policy at a time uses it:
1. `set_copies` with all copies of a policy, whenever the state of any of them changes.
2. `weigh` about once a second; before the first time, all policies must have been reported. It
   sees all of them at once, so that copies that vanish in many small steps count as one removal.
3. `permit` for each unwanted copy. A time: remove it from then on, until then mark it so.
   Held: leave it as it is, and ask again after the next `weigh` with another result.

A removal is held until there are fewer, or until it is approved and the grace has passed:
time alone does not release it. The time in a copy's mark is since when it is unwanted
plus the grace, so that after a restart an approval still names the same removals.
`recent_removals` returns the removals within the window, and `add_recent` gives them to the brakes
of the next process: they are one removal, whichever process does them.
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
from kube_sync.policysync.recent_removals import RecentRemovals
from kube_sync.runtime.freshness import Stale

_WEIGH_SECONDS = 1.0
_MAX_AGE_SECONDS = 5.0  # an older result of `weigh` may be outdated


@dataclass(frozen=True, slots=True)
class CopyState:
    """The desired state of a copy that is placed.

    `sources`: the objects that want it, or did until lately: `Gateway infra/edge` (its placement),
    `GatewayClass edge` (its parameters). An unwanted copy without any: somebody changed just that
    policy, which was deleted or targets something else. A caller that cannot distinguish a deleted
    policy from a kind that is no longer served names the kind as a source.
    """

    sources: frozenset[str] = frozenset()
    wanted: bool = True
    at_once: bool = False  # nobody can want it back: no grace
    remove_after: float | None = None  # its removal mark: Unix seconds


@dataclass(frozen=True, slots=True)
class HoldReport:
    """The reasons of holds, and how many copies are unwanted, of how many."""

    holds: tuple[Withheld, ...]
    unwanted: int
    copies: int


@dataclass(slots=True)
class _Tally:
    """The clusters with copies of a source, and which of them go."""

    clusters: set[str] = field(default_factory=set)
    kept: set[str] = field(default_factory=set)
    gone: set[CopyKey] = field(default_factory=set)

    def lost(self, share: float) -> str:
        """Return the lost part of it, empty if it is small."""
        lost = {key.cluster for key in self.gone} - self.kept
        # One cluster at a time is no shrinking, however few there are.
        is_large = len(lost) > max(1, share * len(self.clusters))
        emptied = not self.kept and len(self.gone) > 1
        if share >= 1 or not (is_large or emptied):
            return ""
        return f"{len(self.clusters) - len(lost)} of {len(self.clusters)} clusters are left"


class Brakes:
    """Decides on removals of copies by its arguments alone."""

    def __init__(self, limits: Limits, *, grace: float, window: float) -> None:
        """`limits`: stale, shrink and mass. `window`: removals within it are one (s)."""
        self._limits = limits
        self._grace = grace
        self._window = window
        self._in_force: dict[PolicyId, Mapping[str, CopyState]] = {}
        self._since: dict[CopyKey, int] = {}  # since when each is unwanted (Unix seconds)
        # Removals without an approval, with their last time, and the sources they had.
        self._recent: dict[CopyKey, tuple[float, frozenset[str]]] = {}
        self._approvals: Approvals[CopyKey] = Approvals()
        self._weighed: Mapping[CopyKey, Step] = {}
        self._at = -inf
        self._stale: Withheld | None = None
        self._mass: Withheld | None = None
        self._shrunk: Mapping[str, Withheld] = {}
        self.held: dict[CopyKey, PendingChange] = {}  # since when each was first held

    def set_copies(self, policy: PolicyId, copies: Mapping[str, CopyState], now: float) -> None:
        """Set all placed copies of a policy, by cluster; none: forget it."""
        before = self._in_force.pop(policy, {})
        if copies:
            self._in_force[policy] = dict(copies)
        for cluster in before.keys() | copies.keys():
            key, one = CopyKey(policy, cluster), copies.get(cluster)
            if one is None or one.wanted:
                self._since.pop(key, None)
                self.held.pop(key, None)
            elif key not in self._since:
                since = now if one.remove_after is None else one.remove_after - self._grace
                self._since[key] = int(min(since, now))

    @property
    def recent_removals(self) -> RecentRemovals:
        """The removals within the window without an approval, their times, and their sources."""
        return self._recent

    def add_recent(self, removals: RecentRemovals) -> None:
        """Add the removals of other processes, which count as those of this one."""
        for key, one in removals.items():
            if key not in self._recent or self._recent[key][0] < one[0]:
                self._recent[key] = one

    def weigh(self, stale: Iterable[Stale], approved: Collection[str], now: float) -> HoldReport:
        """Weigh all unwanted copies together.

        `stale`: each source that is not current, with an age of infinity if it never was;
        `approved`: the names that operators approved.
        """
        self._recent = {k: one for k, one in self._recent.items() if now - one[0] < self._window}
        self._at, self._weighed = now, {key: self._step(key) for key in self._since}
        waiting = self._approvals.weigh(self._weighed, approved, 0)
        copies = sum(map(len, self._in_force.values()))
        copies += sum(self._copy_state(key) is None for key in self._recent)
        few = allowed(copies, self._limits)
        lost = self._lossy_sources(waiting) if waiting else {}
        mass = _mass({*waiting, *self._recent}, copies, few) if waiting else ""
        offer = self._approvals.offer(waiting, self._weighed, few) if lost or mass else ""
        release = f"{{}}, or approve {offer}"
        self._stale = _not_current(stale, self._limits)
        back = release.format("the clusters are back")
        self._shrunk = {s: Withheld("fleet", why, back, approve=offer) for s, why in lost.items()}
        fewer = release.format("fewer are to be removed")
        self._mass = Withheld("mass", mass, fewer, approve=offer) if mass else None
        return HoldReport(tuple(self._holds()), len(self._weighed), copies)

    def permit(self, key: CopyKey, now: float) -> Withheld | float:
        """Return from when on a copy may be removed (Unix seconds), or why it is held."""
        since, step = self._since.get(key), self._weighed.get(key)
        if since is None or step != self._step(key) or now - self._at > _MAX_AGE_SECONDS:
            until, reason = now + _WEIGH_SECONDS, "not yet weighed together with all others"
            return self._hold(key, Withheld("unseen", reason, "the next look at all", until), now)
        approved = self._approvals.of(key, step) is not None
        state = self._in_force[key.policy][key.cluster]
        held = self._stale or (None if approved else self._too_many(state.sources))
        if held is not None:
            return self._hold(key, held, now)
        self.held.pop(key, None)
        if not approved:
            self._recent[key] = now, state.sources
        # The mark of an earlier, shorter grace still applies.
        at = since if state.at_once else min(since + self._grace, state.remove_after or inf)
        return float(at)

    def approval(self, key: CopyKey) -> str:
        """Return the approved name that permits a removal, "" if there is none."""
        step = self._weighed.get(key)
        return (self._approvals.of(key, step) or "") if step else ""

    def _hold(self, key: CopyKey, held: Withheld, now: float) -> Withheld:
        since = self.held[key].since if key in self.held else now
        self.held[key] = PendingChange(held, since)
        return held

    def _step(self, key: CopyKey) -> Step:
        sources = self._in_force[key.policy][key.cluster].sources
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

    def _copy_state(self, key: CopyKey) -> CopyState | None:
        return self._in_force.get(key.policy, {}).get(key.cluster)

    def _lossy_sources(self, waiting: Collection[CopyKey]) -> dict[str, str]:
        """Return the sources that lose many copies, and how many."""
        tallies: dict[str, _Tally] = defaultdict(_Tally)
        for copies in self._in_force.values():
            for cluster, one in copies.items():
                for source in one.sources:
                    tally = tallies[source]
                    tally.clusters.add(cluster)
                    if one.wanted:
                        tally.kept.add(cluster)
        requested = {key: self._in_force[key.policy][key.cluster].sources for key in waiting}
        gone = {key: sources for key, (_, sources) in self._recent.items()} | requested
        for key, sources in gone.items():
            found = self._copy_state(key)
            for source in sources if found is None or not found.wanted else ():
                tallies[source].clusters.add(key.cluster)
                tallies[source].gone.add(key)
        losses = {source: tally.lost(self._limits.shrink) for source, tally in tallies.items()}
        return {
            source: f"{source}: {losses[source]}" for source in sorted(losses) if losses[source]
        }


def brakes_of(settings: PolicySync) -> Brakes:
    """Return the brakes for the configuration section `policy_sync`."""
    own = settings.brakes
    limits = Limits(
        stale=own.stale_seconds or None,
        shrink=own.shrink_share,
        mass_share=own.mass_share,
        mass_floor=own.mass_floor,
    )
    return Brakes(limits, grace=settings.grace_seconds, window=own.window_seconds)


def _mass(counted: Collection[CopyKey], copies: int, few: float) -> str:
    """Return a text if they are too many; those of one policy or one cluster count as one."""
    one = min(len({key.policy for key in counted}), len({key.cluster for key in counted}))
    if len(counted) <= few or one == 1:
        return ""
    return f"{len(counted)} of {copies} copies would be removed"


def _not_current(stale: Iterable[Stale], limits: Limits) -> Withheld | None:
    """Return the hold for stale sources: of several, the one that is stale for longest."""
    worst = max(stale, key=lambda one: (one.age, one.source), default=None)
    if worst is None:
        return None
    if worst.age == inf:
        reason = f"{worst.source}: not known yet: {worst.reason}"
        return Withheld("fleet", reason, f"{worst.source}: known")
    if limits.stale is None or worst.age <= limits.stale:
        return None
    # Without its age: the message stays the same, and is written once.
    reason = f"{worst.source}: not current for more than {limits.stale:.0f} s: {worst.reason}"
    return Withheld("fleet", reason, f"{worst.source}: current again")
