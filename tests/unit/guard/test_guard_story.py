"""Whatever is wanted, in whatever order, and whenever the process dies: the brakes hold."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from kube_sync.guard import (
    HISTORY,
    Allowed,
    Change,
    Fleet,
    Guard,
    Inventory,
    Limits,
    Placements,
    Tightening,
    compare,
    read_history,
)
from kube_sync.guard.limits import Rate
from kube_sync.guard.placements import PREFERENCES
from tests.parts import examples

WELL = Fleet(age=0, clusters=5, best=5, epoch_matches=True)
PLACEMENTS = Placements()

_rates = st.none() | st.builds(Rate, st.floats(0.5, 120), st.integers(1, 4))
_limits = st.builds(
    Limits,
    _rates,
    _rates,
    _rates,
    dwell=st.sampled_from([0.0, 5.0]),
    cooldown=st.sampled_from([0.0, 20.0]),
    oscillation=st.sampled_from([0.0, 60.0]),
)
_clusters = st.frozensets(st.sampled_from("xyz"))
_names = st.sampled_from(["n/a", "n/b", "n/c", "m/a", "m/b"])


def _value(clusters: frozenset[str]) -> str:
    return json.dumps({"clusters": {name: {"weight": 1} for name in sorted(clusters)}})


@dataclass
class _Object:
    annotations: dict[str, str] = field(default_factory=dict)
    moved: list[float] = field(default_factory=list)
    changed: list[float] = field(default_factory=list)


class Fleetwide(RuleBasedStateMachine):
    """A guard that dies now and then, beside a twin that is told the same."""

    @initialize(limits=_limits)
    def begin(self, limits: Limits) -> None:
        self.limits, self.now = limits, 1.7e9
        self.objects: dict[str, _Object] = {}
        self.wanted: dict[str, tuple[Change, dict[str, str]]] = {}
        self.spent: dict[tuple[str, str], list[float]] = {}
        self.guards: list[Guard[str]] = [Guard(limits), Guard(limits)]
        self.known: frozenset[str] | None = None  # the clusters that there are, if that is current
        self.nowhere: dict[str, Change] = {}  # that was found while it was

    @rule(seconds=st.floats(0, 40))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @rule(known=st.none() | st.frozensets(st.sampled_from("xyz"), min_size=1))
    def the_fleet_differs(self, known: frozenset[str] | None) -> None:
        self.known = known

    @rule(by=st.builds(Tightening, moves_burst=st.none() | st.just(1)))
    def a_policy_tightens(self, by: Tightening) -> None:
        for guard in self.guards:
            guard.tighten(by, {}, self.now)

    @rule(name=_names, clusters=_clusters, evict=st.booleans())
    def a_decision_changes(self, name: str, clusters: frozenset[str], evict: bool) -> None:  # noqa: FBT001 - drawn
        have = self.objects.setdefault(name, _Object()).annotations
        want = {**have, PREFERENCES: _value(clusters)}
        change = compare(PLACEMENTS, name.split("/", maxsplit=1)[0], have, want, evict=evict)
        self.wanted.pop(name, None)
        if change is not None:
            self.wanted[name] = (change, want)

    @rule(name=_names, clusters=_clusters, keep=st.booleans())
    def somebody_else_writes(self, name: str, clusters: frozenset[str], keep: bool) -> None:  # noqa: FBT001 - drawn
        known = self.objects.setdefault(name, _Object())
        history = {k: v for k, v in known.annotations.items() if k == HISTORY and keep}
        # Histories that are taken away are those of moves that nobody can count any more.
        if keep or HISTORY not in known.annotations:
            known.annotations = {**history, PREFERENCES: _value(clusters)}
            self.wanted.pop(name, None)

    @rule()
    def the_process_dies(self) -> None:
        histories = {
            name: (name.split("/")[0], read_history(known.annotations, self.now))
            for name, known in self.objects.items()
        }
        self.guards = [Guard(self.limits), Guard(self.limits)]
        for guard in self.guards:
            guard.recall(histories, self.now)
        self.nowhere = {}

    @rule(order=st.permutations(["n/a", "n/b", "n/c", "m/a", "m/b"]), written=st.booleans())
    def all_are_tried(self, order: list[str], written: bool) -> None:  # noqa: FBT001 - drawn
        both = {
            name: (change, read_history(self.objects[name].annotations, self.now))
            for name, (change, _) in self.wanted.items()
        }
        fleet = replace(WELL, inventory=None if self.known is None else Inventory(self.known))
        numbers = {"n": 3, "m": 2}
        seen = [guard.consider(both, fleet, numbers, (), self.now) for guard in self.guards]
        assert seen[0] == seen[1]
        self._compare(seen[0].nowhere)
        for name in order:
            if name in self.wanted:
                self._try(name, *self.wanted[name], written=written)

    def _compare(self, nowhere: frozenset[object]) -> None:
        """Without a fleet that is current, what was found to be nowhere stays so, and no more."""
        for name, (change, want) in self.wanted.items():
            if self.known is not None:
                self.nowhere.pop(name, None)
                on = PLACEMENTS.read(want)[PREFERENCES]
                if on and on.names and not on.names & self.known and not change.evict:
                    self.nowhere[name] = change
            elif name in self.nowhere and (
                change.evict or self.nowhere[name].after != change.after
            ):
                del self.nowhere[name]
        self.nowhere = {n: c for n, c in self.nowhere.items() if n in self.wanted}
        assert nowhere == self.nowhere.keys()

    def _try(self, name: str, change: Change, want: dict[str, str], *, written: bool) -> None:
        known = self.objects[name]
        history = read_history(known.annotations, self.now)
        one, other = (guard.admit(name, change, history, self.now) for guard in self.guards)
        assert one == other
        if not isinstance(one, Allowed):
            assert one.until is None or one.until > self.now
            return
        if not written:
            for guard in self.guards:
                guard.refund(name, self.now)
            return
        for guard in self.guards:
            guard.moved(name)
        del self.wanted[name]
        assert change.evict or not (change.empties or name in self.nowhere)
        if change.is_move:
            self._check_pause(known)
            known.moved.append(self.now)
            for scope in (("moves", ""), ("namespace", change.namespace)):
                self.spent.setdefault(scope, []).append(self.now)
            for cluster in change.left:
                self.spent.setdefault(("cluster", cluster), []).append(self.now)
        known.changed.append(self.now)
        known.annotations = {**want, HISTORY: one.history}

    def _check_pause(self, known: _Object) -> None:
        assert all(self.now >= at + self.limits.cooldown for at in known.moved)
        assert all(self.now >= at + self.limits.dwell for at in known.changed)

    @invariant()
    def no_window_has_more_than_its_budget(self) -> None:
        for (kind, _), times in getattr(self, "spent", {}).items():
            rate: Rate | None = getattr(self.limits, {"moves": "moves"}.get(kind, kind))
            for first, start in enumerate(times if rate else ()):
                assert rate is not None
                count = len(times) - first
                assert count <= rate.burst + (times[-1] - start) * rate.per_second + 0.01


Fleetwide.TestCase.settings = settings(max_examples=examples(80), stateful_step_count=40)
test_no_story_exceeds_a_budget = Fleetwide.TestCase


@settings(max_examples=examples(40))
@given(
    _limits,
    st.builds(Tightening, moves_per_minute=st.floats(0.1, 99), cooldown_seconds=st.floats(0, 99)),
    st.lists(st.tuples(st.integers(0, 4), st.floats(0, 5)), max_size=20),
)
def test_what_a_tightened_guard_lets_go_the_other_would_have_too(
    limits: Limits, by: Tightening, steps: list[tuple[int, float]]
) -> None:
    """Both are asked the same; what only one lets go is not written, and given back."""
    loose: Guard[int] = Guard(limits)
    tight: Guard[int] = Guard(limits)
    now = 1.7e9
    tight.tighten(by, {}, now)
    for number, (key, seconds) in enumerate(steps):
        now += seconds
        change = Change("n", f"{number}", f"{number + 1}", frozenset("x"))
        verdicts = []
        for guard in (loose, tight):
            guard.consider({key: (change, ())}, WELL, {"n": 1}, (), now)
            verdicts.append(guard.admit(key, change, (), now))
        free, held = verdicts
        assert isinstance(free, Allowed) or not isinstance(held, Allowed)
        for guard, verdict in zip((loose, tight), verdicts, strict=True):
            if isinstance(verdict, Allowed) and isinstance(held, Allowed):
                guard.moved(key)
                guard.forget(key)
            elif isinstance(verdict, Allowed):
                guard.refund(key, now)
