"""The guard of placement changes: rate limits, mass and fleet checks, dwell, approvals.

Use by a reconciler that handles one key at a time:
1. `recall` once, when all objects are known and before anything is written.
2. `consider` whenever the wanted changes, the fleet, the approvals or the time differ (once a
   second is enough). It needs all changes, since it holds those that are too many at once.
3. `admit` for each, one at a time. Allowed: write it with the history in one PATCH; then `moved`,
   or `refund` if it surely was not written, or nothing if that is not known. Withheld: retry at
   `until` or, without one, after the next `consider` with other holds.

Every change of a placement goes through the guard, since first placements and additions are part of
the history too, and a fight over them is one. Only moves are restrained: a first placement waits
neither for the budget nor for a stale fleet, as it takes nothing away.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from kube_sync.guard.approvals import Approvals, Step, on_fewer
from kube_sync.guard.assessment import (
    Assessment,
    Fleet,
    Numbers,
    allowed,
    assess_fleet,
    current_inventory,
    has_shrunk,
    is_mass_of_several,
    mass,
    namespaces_over,
)
from kube_sync.guard.budget import IDLE, Budget, Scope, scopes, scopes_of
from kube_sync.guard.digests import digest
from kube_sync.guard.history import (
    LENGTH,
    Entry,
    History,
    caught_up,
    extended,
    oscillates_until,
    settled,
    settles_at,
    stamp,
    write_history,
)
from kube_sync.guard.limits import Limits, Tightening
from kube_sync.guard.moves import Change
from kube_sync.guard.token_queue import TokenQueue
from kube_sync.guard.unknown_clusters import Nowhere
from kube_sync.guard.verdicts import Allowed, Kind, PendingChange, Withheld

K = TypeVar("K", bound=Hashable)

_RECHECK_SECONDS = 1.0
_WATCH_LAGS_SECONDS = 10.0
_MOST_REPLAYED = 10_000  # clusters left, in the histories of all objects
_FLEET = ("fleet",)  # owner of approvals on fewer clusters; the others are namespaces (strings)


@dataclass(frozen=True, slots=True)
class _Flight:
    """An allowed change whose outcome has not been reported yet."""

    history: History
    at: float
    spent: tuple[Scope, ...]


class Guard(Generic[K]):
    """Decides which changes are allowed and which are held, from its arguments alone.

    `str(key)` is the same in every process and has the uid: a new object has no history.
    """

    def __init__(self, limits: Limits) -> None:
        self._base = limits
        self._limits = limits
        self._not_before: Mapping[K, float] = {}
        self._unknown: Withheld | None = None
        self._budget = Budget(limits)
        self._tokens = TokenQueue()
        self._approvals: Approvals[K] = Approvals()
        self._approved: frozenset[str] = frozenset()
        self._wanted: dict[K, tuple[str, str, bool]] = {}
        self._fleet: Withheld | None = None
        self._masses: Mapping[str | None, Withheld] = {}  # by namespace; None: of several together
        # The history as it was written, where the watch cache may be older.
        self._written: dict[K, History] = {}
        self._flights: dict[K, _Flight] = {}
        self._held: dict[K, PendingChange] = {}
        self._nowhere: Nowhere[K] = Nowhere()

    @property
    def limits(self) -> Limits:
        """The limits in force."""
        return self._limits

    @property
    def held(self) -> Mapping[K, PendingChange]:
        """The changes that are held."""
        return self._held

    def tighten(self, by: Tightening, not_before: Mapping[K, float], now: float) -> None:
        """Apply the lower limits of `by`, in place of earlier ones.

        `not_before` gives the objects of `by.not_before` by their keys (Unix seconds) and is read
        on each use. No move is allowed before the next `consider`.
        """
        self._limits = self._base.tightened(by)
        self._unknown = None
        self._not_before = not_before
        # All were weighed by other limits: there may be too many of them now.
        self._wanted = {}
        # A refund would use another rate than the refill since.
        self._flights = {key: replace(f, spent=()) for key, f in self._flights.items()}
        self._budget.limit(self._limits, now)

    def withhold(self, reason: str) -> None:
        """Hold every move until `tighten`: the limits that policies set are not known."""
        self._unknown = Withheld("limits", reason, "data.kube_sync_budget can be used")

    def recall(self, histories: Mapping[K, tuple[str, History]], now: float) -> None:
        """Start from the histories of all objects: namespace and history of each, by its key."""
        self._budget = self._replayed(histories, now)
        self._tokens = TokenQueue()
        self._approvals = Approvals()
        self._approvals.recall((key, history) for key, (_, history) in histories.items())
        self._wanted, self._written, self._flights, self._held = {}, {}, {}, {}
        self._nowhere = Nowhere()

    def consider(
        self,
        wanted: Mapping[K, tuple[Change, History]],
        fleet: Fleet,
        workloads: Numbers,
        approved: Collection[str],
        now: float,
    ) -> Assessment:
        """Assess all wanted changes together, each with the history of its object.

        `workloads`: objects that are not idle, by namespace; `approved`: names of approvals.
        """
        self._approved = frozenset(approved)
        # A change before its `not_before` is weighed when that time has come, and held until then.
        self._wanted = {
            key: _weighed(change)
            for key, (change, _) in wanted.items()
            if not self._is_early(key, now)
        }
        self._drop([key for key in self._held if key not in wanted])
        inventory = current_inventory(fleet, self._limits)
        changes = ((key, change) for key, (change, _) in wanted.items())
        nowhere = self._nowhere.compare(inventory, changes, now, unlisted=fleet.unlisted)
        requested = self._requested(wanted, nowhere, now)
        spaces = {key: change.namespace for key, (change, _) in wanted.items() if not change.idle}
        parts = _by_namespace(requested, spaces)
        every = {key: step for key, step in requested.items() if key in spaces}
        sets = (*([every] if len(every) < len(requested) else []), *parts.values())
        waiting = self._approvals.weigh(requested, self._approved, fleet.clusters, sets)
        number = sum(workloads.values())
        accepted = self._assess_fleet(fleet, requested, allowed(number, self._limits))
        still = _by_namespace({key: requested[key] for key in waiting}, spaces)
        self._masses = self._assessed(still, requested, workloads)
        holds = (*([self._fleet] if self._fleet else []), *self._masses.values())
        return Assessment(holds, len(requested), number, accepted, nowhere)

    def admit(self, key: K, change: Change, history: History, now: float) -> Allowed | Withheld:
        """Allow one change and charge its tokens, or return why it is held.

        `history` is that of the object, as `read_history` returns it.
        """
        stale = self._is_stale(key, history, now)
        history = self._newest(key, change, history)
        held = (
            stale
            or self._restrained(key, change, history, now)
            or (self._charged(key, change, now) if change.is_move else None)
        )
        if held is not None:
            since = self._held[key].since if key in self._held else now
            self._held[key] = PendingChange(held, since)
            if held.kind != "budget":
                self._tokens.remove(key)
            return held
        self._drop([key])
        approval = self._approvals.of(key, _step(change, history)) or ""
        history = extended(history, _entry(change, approval, now))
        spent = scopes_of(change) if change.is_move else ()
        self._flights[key] = _Flight(history, now, spent)
        return Allowed(write_history(history), self._nowhere.warning(change))

    def moved(self, key: K) -> None:
        """Record that an allowed change was written."""
        if (flight := self._flights.pop(key, None)) is not None:
            self._written[key] = flight.history

    def refund(self, key: K, now: float) -> None:
        """Give back the tokens of an allowed change that was surely not written."""
        if (flight := self._flights.pop(key, None)) is not None:
            self._budget.refund(flight.spent, flight.at, now)

    def forget(self, key: K) -> None:
        """Forget a deleted object."""
        self._drop([key])
        self._written.pop(key, None)
        self._flights.pop(key, None)
        self._nowhere.forget(key)

    def _drop(self, keys: Collection[K]) -> None:
        for key in keys:
            self._held.pop(key, None)
            self._tokens.remove(key)

    def _is_stale(self, key: K, history: History, now: float) -> Withheld | None:
        """Hold a change that was computed from an object older than our own last write.

        Only for a while: somebody may have restored the object as a whole.
        """
        written = self._written.get(key, ())
        if _last(written) <= _last(history) or now > _last(written) + _WATCH_LAGS_SECONDS:
            return None
        reason, until = "the watch has not told of its last change yet", now + _RECHECK_SECONDS
        return Withheld("unseen", reason, "the watch tells of it", until)

    def _newest(self, key: K, change: Change, history: History) -> History:
        """Return the object's history up to its present placement."""
        written = self._written.get(key, ())
        newest = written if _last(written) >= _last(history) else history
        return caught_up(newest, change.before)

    def _requested(
        self, wanted: Mapping[K, tuple[Change, History]], nowhere: Collection[K], now: float
    ) -> dict[K, Step]:
        """Return the moves that nothing but their number holds."""
        requested = {}
        for key, (change, history) in wanted.items():
            newest = self._newest(key, change, history)
            stuck = (
                change.is_forbidden
                or key in nowhere
                or self._is_early(key, now)
                or self._is_stale(key, history, now)
                or self._oscillation(key, change, newest, now)
            )
            if change.is_move and not stuck:
                requested[key] = _step(change, newest)
        return requested

    def _restrained(self, key: K, change: Change, history: History, now: float) -> Withheld | None:
        if (held := self._without_cluster(key, change, now)) is not None:
            return held
        if (held := self._oscillation(key, change, history, now)) or not change.is_move:
            return held
        if self._unknown is not None:
            return self._unknown
        if self._is_early(key, now):
            return self._too_early(key, history, now)
        if self._wanted.get(key) != _weighed(change):
            reason, until = "not yet weighed together with all others", now + _RECHECK_SECONDS
            return Withheld("unseen", reason, "the next look at all of them", until)
        step = _step(change, history)
        return self._held_with_others(key, change, step) or self._too_early(key, history, now)

    def _without_cluster(self, key: K, change: Change, now: float) -> Withheld | None:
        if change.is_forbidden:
            return Withheld("empty", "it would run on no cluster", "the policy says `evict: true`")
        return self._nowhere.held(key, change, now)

    def _is_early(self, key: K, now: float) -> bool:
        return self._not_before.get(key, 0) > now

    def _held_with_others(self, key: K, change: Change, step: Step) -> Withheld | None:
        """Return the hold of the fleet or of a mass, unless an approval overrides it."""
        approved = self._approvals.of(key, step) is not None
        on_fewer = approved and self._approvals.is_on_fewer(key)
        if self._fleet is not None and not (on_fewer and self._fleet.approve):
            return self._fleet
        if approved or change.idle:
            return None
        return self._masses.get(None) or self._masses.get(change.namespace)

    def _assess_fleet(self, fleet: Fleet, requested: Mapping[K, Step], few: float) -> bool:
        """Set the hold of the fleet; return whether an operator accepted that it has shrunk."""
        shrunk = has_shrunk(fleet, self._limits)
        accepted = shrunk and self._approvals.accepts(requested, few)
        if accepted:  # as the next `fleet` will be
            fleet, shrunk = replace(fleet, best=fleet.clusters), False
        fewer = ""
        if requested and shrunk:
            fewer = on_fewer(
                self._approvals.offer(requested, requested, few, _FLEET), fleet.clusters
            )
        self._fleet = assess_fleet(fleet, self._limits, fewer)
        return accepted

    def _assessed(
        self,
        waiting: Mapping[str, Mapping[K, Step]],
        requested: Mapping[K, Step],
        workloads: Numbers,
    ) -> dict[str | None, Withheld]:
        """Return the mass holds of `waiting`: one for all of them, or one for each namespace."""
        moves = {namespace: len(steps) for namespace, steps in waiting.items()}
        if is_mass_of_several(moves, workloads, self._limits):
            together = [key for steps in waiting.values() for key in steps]
            number = sum(workloads.values())
            offer = self._approvals.offer(together, requested, allowed(number, self._limits))
            return {None: mass(len(together), number, offer)}
        found: dict[str | None, Withheld] = {}
        for namespace in namespaces_over(moves, workloads, self._limits):
            number, steps = workloads.get(namespace, 0), waiting[namespace]
            offer = self._approvals.offer(
                steps, requested, allowed(number, self._limits), namespace
            )
            found[namespace] = mass(len(steps), number, offer, namespace)
        return found

    def _oscillation(self, key: K, change: Change, history: History, now: float) -> Withheld | None:
        after = change.toward or change.after
        until = oscillates_until(history, after, self._limits.oscillation)
        if until is None or until <= now:
            return None
        name = "freeze-" + digest([str(key), change.before, after, settled(history)[-2].at])
        if name in self._approved:
            return None
        reason = "it goes back and forth between two placements"
        return Withheld("oscillation", reason, f"{_in(until, now)}, or approve {name}", until, name)

    def _too_early(self, key: K, history: History, now: float) -> Withheld | None:
        dwell, cooldown = settles_at(history, self._limits.dwell, self._limits.cooldown)
        reasons: tuple[tuple[Kind, float, str], ...] = (
            ("not_before", self._not_before.get(key, 0), "the policy lets it wait"),
            ("dwell", dwell, "its placement changed a moment ago"),
            ("cooldown", cooldown, "it moved a moment ago"),
        )
        kind, until, reason = max(reasons, key=lambda r: r[1])
        return Withheld(kind, reason, _in(until, now), until) if until > now else None

    def _charged(self, key: K, change: Change, now: float) -> Withheld | None:
        missing = self._tokens.acquire(self._budget, key, scopes_of(change), now)
        if missing is None:
            return None
        until, (scope, name) = missing
        where = {
            "moves": "",
            "idle": " of workloads without replicas",
            "namespace": f" in namespace {name}",
            "cluster": f" away from {name}",
        }
        return Withheld("budget", f"enough moves{where[scope]} for now", _in(until, now), until)

    def _replayed(self, histories: Mapping[K, tuple[str, History]], now: float) -> Budget:
        """Return the tokens spent by both limits, since which of them were in force is not known.

        The lower limits alone would count no more than their burst, and the rest be free once they
        end; the configured ones alone would miss what is not refilled yet at the lower rate.
        """
        budget, lower = Budget(self._base), Budget(self._limits)
        since = now - max(budget.fills_within, lower.fills_within)
        for at, _, spent in sorted(_spent(histories, now, since), key=lambda found: found[:2]):
            for one in (budget, lower):
                if spent:
                    one.replay(spent, at)
                else:
                    one.exhaust(at)
        budget.limit(self._limits, now)
        budget.at_least(lower, now)
        return budget


def _spent(
    histories: Mapping[K, tuple[str, History]], now: float, since: float
) -> list[tuple[float, int, tuple[Scope, ...]]]:
    """Return when tokens were spent; without scopes: all of them. Unsorted.

    What was spent before `since` is refilled. Histories may be forged: where they name more than
    could have been spent in that time, all tokens count as spent and no history is used.
    """
    found: list[tuple[float, int, tuple[Scope, ...]]] = []
    named = 0
    for namespace, history in histories.values():
        for entry in history:
            if entry.left and (at := min(entry.at, now)) >= since:
                named += len(entry.left)
                if named > _MOST_REPLAYED:
                    return [(now, 0, ())]
                # Whether it was idle is not known.
                found.append((at, 1, (IDLE, *scopes(namespace, entry.left))))
        if len(history) == LENGTH and history[0].at and (at := min(history[0].at, now)) >= since:
            # It may have moved before that too; the clusters it left are not known.
            found.append((at, 0, ()))
    return found


def _weighed(change: Change) -> tuple[str, str, bool]:
    """Return the part of a change that has to be weighed again when it differs."""
    return change.before, change.after, change.idle


def _by_namespace(
    requested: Mapping[K, Step], namespaces: Mapping[K, str]
) -> dict[str, dict[K, Step]]:
    """Return the moves by namespace, without those that are not in `namespaces`."""
    found: dict[str, dict[K, Step]] = {}
    for key, step in requested.items():
        if (namespace := namespaces.get(key)) is not None:
            found.setdefault(namespace, {})[key] = step
    return found


def _entry(change: Change, approval: str, now: float) -> Entry:
    left = tuple(sorted(change.left))
    return Entry(stamp(now), change.after, left, approval, passing=bool(change.toward))


def _step(change: Change, history: History) -> Step:
    return (change.before, change.after, _last(history))


def _last(history: History) -> int:
    return history[-1].at if history else 0


def _in(until: float, now: float) -> str:
    return f"in {max(1, round(until - now))} s"
