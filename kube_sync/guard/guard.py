"""The brakes of whatever moves workloads: a few at a time, not too often, and none by accident.

How it is used, by a reconciler that takes one key at a time:
1. `recall` once, when all objects are known and before anything is written.
2. `consider` whenever the changes that are wanted differ, or the fleet, the approvals or the time
   (once a second will do): it must be told all of them, since it stops what is too much at once.
3. `take` for each, one at a time. Go: write it, with the history, in one PATCH; then `moved`, or
   `refund` if it surely was not written, or nothing if nobody knows. Held: ask again at `until`
   or, without one, after the next `consider` whose holds differ.

Only changes of the placement are its business; they all go through it, since first placements and
additions are part of a history too, and a fight over them is one. It restrains only moves: a first
placement waits for no budget, and not for a stale fleet, as it takes nothing away.
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
    current_inventory,
    has_shrunk,
    is_mass_of_several,
    judge_fleet,
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

_LOOKS_SECONDS = 1.0
_WATCH_LAGS_SECONDS = 10.0
_MOST_REPLAYED = 10_000  # clusters that were left, in the histories of all objects
_FLEET = ("fleet",)  # what an approval on fewer clusters is of; a namespace is a string


@dataclass(frozen=True, slots=True)
class _Flight:
    """A change that was let go and of which nobody said yet what became of it."""

    history: History
    at: float
    spent: tuple[Scope, ...]


class Guard(Generic[K]):
    """What is held and what may go; it decides by its arguments alone.

    A key names one object for as long as it lives, in every process: `str(key)` is the same in all
    and has the uid in it, so that an object of the same name begins anew.
    """

    def __init__(self, limits: Limits) -> None:
        self._base = limits
        self._limits = limits
        self._not_before: Mapping[K, float] = {}
        self._unknown: Withheld | None = None
        self._budget = Budget(limits)
        self._turns = TokenQueue()
        self._approvals: Approvals[K] = Approvals()
        self._approved: frozenset[str] = frozenset()
        self._wanted: dict[K, tuple[str, str, bool]] = {}
        self._fleet: Withheld | None = None
        self._masses: Mapping[str | None, Withheld] = {}  # by namespace, None: of several together
        # Newer than what a watch has told: the object as it was written.
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
        """The changes that wait."""
        return self._held

    def tighten(self, by: Tightening, not_before: Mapping[K, float], now: float) -> None:
        """Let the limits be as low as `by` says, in place of what was said before.

        `not_before` gives the objects of `by.not_before` by their keys (Unix seconds); it is looked
        at whenever one of them is asked for. No move goes before the next `consider`.
        """
        self._limits = self._base.tightened(by)
        self._unknown = None
        self._not_before = not_before
        # All of them were weighed by other limits: there may be too many of them now.
        self._wanted = {}
        # A refund would go by another rate than what came back meanwhile did.
        self._flights = {key: replace(f, spent=()) for key, f in self._flights.items()}
        self._budget.limit(self._limits, now)

    def withhold(self, reason: str) -> None:
        """Let nothing move until `tighten`: it is not known what policies limit."""
        self._unknown = Withheld("limits", reason, "data.kube_sync_budget can be used")

    def recall(self, histories: Mapping[K, tuple[str, History]], now: float) -> None:
        """Begin with what all objects tell: namespace and history of each, by its key."""
        self._budget = self._replayed(histories, now)
        self._turns = TokenQueue()
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
        """Weigh all changes that are wanted together, each with the history its object has.

        `workloads`: how many objects there are, but for idle ones; `approved`: the names that
        operators approved.
        """
        self._approved = frozenset(approved)
        # What waits for its time is weighed when that has come, and does not go before it is.
        self._wanted = {
            key: _weighed(change)
            for key, (change, _) in wanted.items()
            if not self._is_early(key, now)
        }
        self._drop([key for key in self._held if key not in wanted])
        inventory = current_inventory(fleet, self._limits)
        changes = ((key, change) for key, (change, _) in wanted.items())
        nowhere = self._nowhere.compare(inventory, changes, now)
        asked = self._asked(wanted, nowhere, now)
        spaces = {key: change.namespace for key, (change, _) in wanted.items() if not change.idle}
        parts = _by_namespace(asked, spaces)
        every = {key: step for key, step in asked.items() if key in spaces}
        sets = (*([every] if len(every) < len(asked) else []), *parts.values())
        waiting = self._approvals.weigh(asked, self._approved, fleet.clusters, sets)
        number = sum(workloads.values())
        accepted = self._judge_fleet(fleet, asked, allowed(number, self._limits))
        still = _by_namespace({key: asked[key] for key in waiting}, spaces)
        self._masses = self._judged(still, asked, workloads)
        holds = (*([self._fleet] if self._fleet else []), *self._masses.values())
        return Assessment(holds, len(asked), number, accepted, nowhere)

    def take(self, key: K, change: Change, history: History, now: float) -> Allowed | Withheld:
        """Let one change go, and charge it; or tell what it waits for.

        `history` is what the object has, as `read_history` gives it.
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
                self._turns.leave(key)
            return held
        self._drop([key])
        approval = self._approvals.of(key, _step(change, history)) or ""
        entry = Entry(stamp(now), change.after, tuple(sorted(change.left)), approval)
        history = extended(history, entry)
        spent = scopes_of(change) if change.is_move else ()
        self._flights[key] = _Flight(history, now, spent)
        return Allowed(write_history(history), self._nowhere.warning(change))

    def moved(self, key: K) -> None:
        """Take down that what was let go was written."""
        if (flight := self._flights.pop(key, None)) is not None:
            self._written[key] = flight.history

    def refund(self, key: K, now: float) -> None:
        """Give back what was charged: what was let go was surely not written."""
        if (flight := self._flights.pop(key, None)) is not None:
            self._budget.refund(flight.spent, flight.at, now)

    def forget(self, key: K) -> None:
        """Forget an object that is gone."""
        self._drop([key])
        self._written.pop(key, None)
        self._flights.pop(key, None)
        self._nowhere.forget(key)

    def _drop(self, keys: Collection[K]) -> None:
        for key in keys:
            self._held.pop(key, None)
            self._turns.leave(key)

    def _is_stale(self, key: K, history: History, now: float) -> Withheld | None:
        """Hold what is compared with an object as it was before our own last write.

        Not for long: it may be that somebody put the object back as a whole.
        """
        written = self._written.get(key, ())
        if _last(written) <= _last(history) or now > _last(written) + _WATCH_LAGS_SECONDS:
            return None
        reason, until = "the watch has not told of its last change yet", now + _LOOKS_SECONDS
        return Withheld("unseen", reason, "the watch tells of it", until)

    def _newest(self, key: K, change: Change, history: History) -> History:
        """Return the object's history up to what it has now."""
        written = self._written.get(key, ())
        newest = written if _last(written) >= _last(history) else history
        return caught_up(newest, change.before)

    def _asked(
        self, wanted: Mapping[K, tuple[Change, History]], nowhere: Collection[K], now: float
    ) -> dict[K, Step]:
        """Return the moves that would go if nothing but their number spoke against it."""
        asked = {}
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
                asked[key] = _step(change, newest)
        return asked

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
            reason, until = "not yet weighed together with all others", now + _LOOKS_SECONDS
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
        """Return what holds it with others, unless it was approved in spite of that."""
        approved = self._approvals.of(key, step) is not None
        on_fewer = approved and self._approvals.is_on_fewer(key)
        if self._fleet is not None and not (on_fewer and self._fleet.approve):
            return self._fleet
        if approved or change.idle:
            return None
        return self._masses.get(None) or self._masses.get(change.namespace)

    def _judge_fleet(self, fleet: Fleet, asked: Mapping[K, Step], few: float) -> bool:
        """Find what holds all for the fleet; return whether it is accepted that it has shrunk."""
        shrunk = has_shrunk(fleet, self._limits)
        accepted = shrunk and self._approvals.accepts(asked, few)
        if accepted:  # as `fleet` will say from the next time on
            fleet, shrunk = replace(fleet, best=fleet.clusters), False
        fewer = ""
        if asked and shrunk:
            fewer = on_fewer(self._approvals.offer(asked, asked, few, _FLEET), fleet.clusters)
        self._fleet = judge_fleet(fleet, self._limits, fewer)
        return accepted

    def _judged(
        self, waiting: Mapping[str, Mapping[K, Step]], asked: Mapping[K, Step], workloads: Numbers
    ) -> dict[str | None, Withheld]:
        """Return what holds `waiting`: all of them together, or some namespaces."""
        moves = {namespace: len(steps) for namespace, steps in waiting.items()}
        if is_mass_of_several(moves, workloads, self._limits):
            together = [key for steps in waiting.values() for key in steps]
            number = sum(workloads.values())
            offer = self._approvals.offer(together, asked, allowed(number, self._limits))
            return {None: mass(len(together), number, offer)}
        found: dict[str | None, Withheld] = {}
        for namespace in namespaces_over(moves, workloads, self._limits):
            number, steps = workloads.get(namespace, 0), waiting[namespace]
            offer = self._approvals.offer(steps, asked, allowed(number, self._limits), namespace)
            found[namespace] = mass(len(steps), number, offer, namespace)
        return found

    def _oscillation(self, key: K, change: Change, history: History, now: float) -> Withheld | None:
        until = oscillates_until(history, change.after, self._limits.oscillation)
        if until is None or until <= now:
            return None
        name = "freeze-" + digest([str(key), change.before, change.after, history[-2].at])
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
        missing = self._turns.take(self._budget, key, scopes_of(change), now)
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
        """Return what is spent by both limits, since nobody knows which of them were in force.

        By the lower ones alone no more than their burst would be, and the rest free once they end;
        by the configured ones alone, what has not come back at the lower rate.
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
    """Return when what was spent, all of it where no scope is named; in no order.

    What was spent before `since` has come back. Histories may be forged: where they name more than
    anybody could have spent in that time, all of it counts as spent, and none of them is followed.
    """
    found: list[tuple[float, int, tuple[Scope, ...]]] = []
    named = 0
    for namespace, history in histories.values():
        for entry in history:
            if entry.left and (at := min(entry.at, now)) >= since:
                named += len(entry.left)
                if named > _MOST_REPLAYED:
                    return [(now, 0, ())]
                # Nobody knows whether it was idle.
                found.append((at, 1, (IDLE, *scopes(namespace, entry.left))))
        if len(history) == LENGTH and history[0].at and (at := min(history[0].at, now)) >= since:
            # It may have moved before that too, from which clusters nobody knows.
            found.append((at, 0, ()))
    return found


def _weighed(change: Change) -> tuple[str, str, bool]:
    """Return what a change has to be weighed again for when it differs."""
    return change.before, change.after, change.idle


def _by_namespace(asked: Mapping[K, Step], namespaces: Mapping[K, str]) -> dict[str, dict[K, Step]]:
    """Return the moves of each namespace; one that has none of `namespaces` does not count."""
    found: dict[str, dict[K, Step]] = {}
    for key, step in asked.items():
        if (namespace := namespaces.get(key)) is not None:
            found.setdefault(namespace, {})[key] = step
    return found


def _step(change: Change, history: History) -> Step:
    return (change.before, change.after, _last(history))


def _last(history: History) -> int:
    return history[-1].at if history else 0


def _in(until: float, now: float) -> str:
    return f"in {max(1, round(until - now))} s"
