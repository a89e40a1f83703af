from __future__ import annotations

import copy
import json
from collections.abc import Collection, Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_sync.guard import (
    HISTORY,
    Allowed,
    Assessment,
    Change,
    Fleet,
    Guard,
    Limits,
    Tightening,
    Withheld,
    approvals,
    read_history,
)
from kube_sync.guard.history import LENGTH, Entry, History
from kube_sync.guard.limits import Rate
from kube_sync.runtime.freshness import Stale
from tests.memory import remembered

WELL = Fleet(age=1, clusters=10, best=10, epoch_matches=True)
NOW = 1000.0


def move(before: str = "a", after: str = "b", namespace: str = "n") -> Change:
    return Change(namespace, before, after, frozenset([before]), frozenset([after]))


def grow() -> Change:
    return Change("n", "a", "ab", joined=frozenset("b"))


class Bench:
    """A guard, and objects whose histories are written as it says."""

    def __init__(self, limits: Limits | None = None) -> None:
        self.limits = limits or Limits(mass_floor=9)
        self.guard: Guard[str] = Guard(self.limits)
        self.histories: dict[str, History] = {}
        self.workloads: int | dict[str, int] = 100  # by namespace, or all of one

    def consider(
        self,
        wanted: Mapping[str, Change],
        fleet: Fleet = WELL,
        approved: Collection[str] = (),
        now: float = NOW,
    ) -> Assessment:
        both = {key: (change, self.histories.get(key, ())) for key, change in wanted.items()}
        number = self.workloads
        numbers = {"n": number} if isinstance(number, int) else number
        return self.guard.consider(both, fleet, numbers, approved, now)

    def take(self, key: str, change: Change, now: float = NOW) -> Allowed | Withheld:
        return self.guard.admit(key, change, self.histories.get(key, ()), now)

    def write(self, key: str, change: Change, now: float = NOW) -> Allowed | Withheld:
        verdict = self.take(key, change, now)
        if isinstance(verdict, Allowed):
            self.histories[key] = read_history({HISTORY: verdict.history}, now)
            self.guard.moved(key)
        return verdict

    def held(self, key: str, change: Change, now: float = NOW) -> Withheld:
        verdict = self.take(key, change, now)
        assert isinstance(verdict, Withheld)
        return verdict

    def restart(self, now: float = NOW) -> None:
        self.guard = Guard(self.limits)
        self.guard.recall({key: ("n", history) for key, history in self.histories.items()}, now)

    def lets_through(self, approval: str | None, wanted: Mapping[str, Change]) -> list[str]:
        """Return which would go if an operator gave this approval now; nothing is changed."""
        fork = copy.deepcopy(self)
        fork.consider(wanted, approved=[approval or ""])
        return [
            key for key, change in wanted.items() if isinstance(fork.take(key, change), Allowed)
        ]


@pytest.fixture
def bench() -> Bench:
    return Bench()


def _masses(number: int, **kwargs: str) -> dict[str, Change]:
    return {f"o{index}": move(**kwargs) for index in range(number)}


def test_a_move_goes_with_its_history(bench: Bench) -> None:
    bench.consider({"o": move()})
    assert bench.take("o", move()) == Allowed('[[0,"a"],[1000,"b",["a"]]]')
    assert bench.guard.held == {}


def test_a_move_that_was_not_weighed_with_the_others_waits_for_that(bench: Bench) -> None:
    assert bench.held("o", move()).until == NOW + 1
    bench.consider({"o": move(after="c")})
    held = bench.held("o", move())
    assert (held.kind, held.release) == ("unseen", "the next look at all of them")


def test_what_takes_nothing_away_waits_for_nothing() -> None:
    bench = Bench(Limits(Rate(1, 1), dwell=99, cooldown=99))
    bench.consider({}, Fleet(None, 0, 0, epoch_matches=False))
    for number in range(5):
        assert isinstance(bench.take(f"o{number}", grow()), Allowed)


def test_nothing_is_emptied_that_the_policy_did_not_evict(bench: Bench) -> None:
    change = replace(move(after=""), empties=True)
    bench.consider({"o": change}, approved=["everything"])
    held = bench.held("o", change)
    assert (held.kind, held.until, held.release) == ("empty", None, "the policy says `evict: true`")
    change = replace(change, evict=True)
    bench.consider({"o": change})
    assert isinstance(bench.take("o", change), Allowed)


@pytest.mark.parametrize(
    ("fleet", "reason", "release"),
    [
        (replace(WELL, age=None), "it is not known which clusters", "the fleet is loaded again"),
        (replace(WELL, epoch_matches=False), "it is not known", "the fleet is loaded again"),
        (replace(WELL, age=61.0), "the fleet was last seen 61 s ago (limit 60 s)", "the fleet is"),
        (
            replace(WELL, stale=Stale("clusters", 61.0, "503")),
            "clusters: not current for 61 s (limit 60 s): 503",
            "clusters: current again",
        ),
        (replace(WELL, clusters=0), "there is no cluster", "a cluster is there"),
        (replace(WELL, clusters=6), "6 of 10 clusters are left", "the clusters are back, or appr"),
    ],
)
def test_a_fleet_that_is_not_to_be_trusted_holds_all_moves(
    fleet: Fleet, reason: str, release: str
) -> None:
    bench = Bench(Limits(stale=60, shrink=0.3, mass_floor=9))
    assessment = bench.consider({"o": move()}, fleet)
    held = bench.held("o", move())
    assert assessment == Assessment((held,), 1, 100)
    assert (held.kind, held.until) == ("fleet", None)
    assert held.reason.startswith(reason)
    assert held.release.startswith(release)
    well = replace(WELL, clusters=7, age=60, stale=Stale("clusters", 60.0, "503"))
    assert not bench.consider({"o": move()}, well).holds
    assert isinstance(bench.take("o", move()), Allowed)


def test_a_fleet_without_an_age_limit_may_be_old(bench: Bench) -> None:
    old = replace(WELL, age=1e6, stale=Stale("clusters", 1e6, "503"))
    assert not bench.consider({"o": move()}, old).holds


SHRUNK = replace(WELL, clusters=6)
_FLEET = Limits(shrink=0.3, mass_share=0, mass_floor=9)


def _approve_on(bench: Bench, fleet: Fleet, wanted: Mapping[str, Change]) -> str:
    (held,) = bench.consider(wanted, fleet).holds
    assert held.kind == "fleet"
    assert held.approve is not None
    assert held.approve in held.release
    return held.approve


def test_an_approval_of_moves_on_a_smaller_fleet_accepts_its_size() -> None:
    bench = Bench(_FLEET)
    name = _approve_on(bench, SHRUNK, {"o": move()})
    assert bench.consider({"o": move()}, SHRUNK, [name]) == Assessment((), 1, 100, accepted=True)
    assert isinstance(bench.take("o", move()), Allowed)
    assert not bench.consider({}, replace(SHRUNK, best=6), [name]).accepted


@pytest.mark.parametrize(
    ("wanted", "fleet"),
    [
        ({"o": move(after="c")}, SHRUNK),
        ({"other": move()}, SHRUNK),
        ({}, SHRUNK),
        ({"o": move()}, replace(SHRUNK, clusters=5)),
    ],
)
def test_an_approval_on_a_smaller_fleet_opens_nothing_for_other_moves_or_fewer_clusters(
    wanted: Mapping[str, Change], fleet: Fleet
) -> None:
    """The counts may be the same again in any week, in this process or in another."""
    bench = Bench(_FLEET)
    name = _approve_on(bench, SHRUNK, {"o": move()})
    for _ in range(2):
        assessment = bench.consider(wanted, fleet, [name])
        assert (len(assessment.holds), assessment.accepted) == (1, False)
        assert assessment.holds[0].approve != name
        bench.restart()


def test_a_smaller_fleet_asks_for_no_approval_of_nothing() -> None:
    (held,) = Bench(_FLEET).consider({"o": grow()}, SHRUNK).holds
    assert (held.approve, held.release) == (None, "the clusters are back")


def test_an_approval_on_a_smaller_fleet_covers_the_mass_and_survives_a_restart() -> None:
    bench = Bench(_FLEET)
    wanted = _masses(30)
    fleet, mass = bench.consider(wanted, SHRUNK).holds
    assert (fleet.kind, mass.kind) == ("fleet", "mass")
    assert fleet.approve is not None
    assert fleet.approve != mass.approve
    assert not bench.consider(wanted, SHRUNK, [fleet.approve]).holds
    for number in range(10):
        key = f"o{number}"
        assert isinstance(bench.write(key, wanted.pop(key)), Allowed)
    for _ in range(2):
        bench.restart()
        again = bench.consider(wanted, SHRUNK, [fleet.approve])
        assert (again.holds, again.accepted) == ((), True)
    bench.restart()
    del wanted["o20"]
    assert bench.consider(wanted, SHRUNK, [fleet.approve]).holds, "no more the same set"


def test_a_shrinking_that_only_tighter_limits_hold_can_be_approved(bench: Bench) -> None:
    bench.guard.tighten(Tightening(shrink_share=0.05), {}, NOW)
    fleet, wanted = replace(WELL, clusters=9), {"o": move()}
    (held,) = bench.consider(wanted, fleet).holds
    assert held.approve is not None
    assert bench.consider(wanted, fleet, [held.approve]).accepted


def test_an_approval_of_a_mass_opens_nothing_once_the_fleet_has_shrunk() -> None:
    bench = Bench(_FLEET)
    name = _approve(bench, _masses(30))
    (held,) = bench.consider(_masses(30), SHRUNK, [name]).holds
    assert held.kind == "fleet"
    assert held.approve is not None
    assert not bench.consider(_masses(30), SHRUNK, [name, held.approve]).holds


def test_what_is_asked_for_on_a_smaller_fleet_stays_while_little_changes() -> None:
    bench = Bench(_FLEET)
    wanted = _masses(4)
    name = _approve_on(bench, SHRUNK, wanted)
    wanted |= {"new1": move(), "new2": move()}
    assert _approve_on(bench, SHRUNK, wanted) == name
    assert bench.consider(wanted, SHRUNK, [name]).accepted
    many = {f"new{number}": move() for number in range(5)} | wanted
    assert _approve_on(bench, SHRUNK, many) != name, "most of it was not asked for"


def test_a_mass_of_moves_is_held_until_it_is_approved() -> None:
    bench = Bench(Limits(mass_share=0.2, mass_floor=9))
    assert not bench.consider(_masses(20)).holds
    wanted = _masses(21)
    (held,) = bench.consider(wanted).holds
    assert (held.kind, held.reason) == ("mass", "21 of 100 workloads of namespace n would move")
    assert bench.held("o3", wanted["o3"]) == held
    assert held.approve is not None
    assert not bench.consider(wanted, approved=[held.approve]).holds
    assert isinstance(bench.take("o3", wanted["o3"]), Allowed)


def test_a_few_moves_are_no_mass_in_a_small_fleet(bench: Bench) -> None:
    bench.workloads = 9
    assert not bench.consider(_masses(9)).holds


def test_what_cannot_go_anyway_is_no_part_of_a_mass(bench: Bench) -> None:
    """Else workloads that no cluster fits would stop all others for ever."""
    bench.guard = Guard(Limits(oscillation=99, mass_share=0, mass_floor=9))
    emptied = {key: replace(change, empties=True) for key, change in _masses(50).items()}
    frozen = {f"f{number}": move() for number in range(50)}
    for key in frozen:
        bench.histories[key] = (Entry(970, "a"), Entry(980, "b"), Entry(990, "a"))
    more = {f"g{number}": grow() for number in range(50)}
    assessment = bench.consider({**emptied, **frozen, **more, "o": move()})
    assert assessment == Assessment((), 1, 100)


def _approve(bench: Bench, wanted: Mapping[str, Change], now: float = NOW) -> str:
    (held,) = bench.consider(wanted, now=now).holds
    assert held.approve is not None
    assert not bench.consider(wanted, approved=[held.approve], now=now).holds
    return held.approve


def test_an_approval_of_one_change_opens_no_door_for_another() -> None:
    bench = Bench(Limits(mass_share=0, mass_floor=9))
    name = _approve(bench, _masses(30))
    (held,) = bench.consider(_masses(30, after="c"), approved=[name]).holds
    assert held.approve != name


def test_an_approval_lets_each_move_through_once() -> None:
    bench = Bench(Limits(mass_share=0, mass_floor=9))
    there, back = _masses(30), _masses(30, before="b", after="a")
    name = _approve(bench, there)
    for key, change in there.items():
        assert isinstance(bench.write(key, change), Allowed)
    other = _approve(bench, back, NOW + 20)
    bench.consider(back, approved=[name, other], now=NOW + 20)
    for key, change in back.items():
        assert isinstance(bench.write(key, change, NOW + 20), Allowed)
    (held,) = bench.consider(there, approved=[name, other], now=NOW + 40).holds
    assert held.approve not in (name, other)


def test_what_is_asked_for_stays_the_same_while_little_changes() -> None:
    """Somebody has to have time to read it."""
    bench = Bench(Limits(mass_share=0, mass_floor=9))
    wanted = _masses(30)
    (first,) = bench.consider(wanted).holds
    del wanted["o3"]
    wanted |= {f"new{number}": move() for number in range(9)}
    (second,) = bench.consider(wanted).holds
    assert first.approve == second.approve
    assert first.approve is not None
    assert not bench.consider(wanted, approved=[first.approve]).holds
    wanted["new10"] = move()
    (third,) = bench.consider(wanted, approved=[first.approve]).holds
    assert third.reason == "10 of 100 workloads of namespace n would move"


def test_an_approval_holds_while_its_moves_go_one_by_one_and_across_a_restart() -> None:
    bench = Bench(Limits(mass_share=0, mass_floor=9))
    wanted = _masses(30)
    name = _approve(bench, wanted)
    for number in range(10):
        key = f"o{number}"
        assert isinstance(bench.write(key, wanted.pop(key)), Allowed)
        assert not bench.consider(wanted, approved=[name]).holds
    bench.restart()
    assert not bench.consider(wanted, approved=[name]).holds
    assert bench.consider(wanted, approved=["moves-another"]).holds, "it was taken back"
    bench.restart()
    assert bench.consider({**wanted, "more": move()}, approved=[name]).holds
    bench.consider(wanted)
    assert name not in remembered(bench.guard, str), "what is taken back costs no memory"


def test_an_approval_given_before_a_restart_counts_after_it() -> None:
    bench = Bench(Limits(mass_share=0, mass_floor=9))
    name = _approve(bench, _masses(30))
    bench.restart()
    assert not bench.consider(_masses(30), approved=[name]).holds


def test_what_is_approved_goes_although_others_wait() -> None:
    """Else whatever else is wanted meanwhile would take back what an operator said."""
    bench = Bench(Limits(mass_share=0))
    wanted = _masses(3)
    name = _approve(bench, wanted)
    (held,) = bench.consider({**wanted, "new": move()}, approved=[name]).holds
    assert held.reason == "1 of 100 workloads of namespace n would move"
    assert bench.held("new", move()) == held
    assert all(isinstance(bench.take(key, change), Allowed) for key, change in wanted.items())


def test_what_is_approved_is_no_other_move_of_the_same_object() -> None:
    bench = Bench(Limits(mass_share=0))
    wanted = _masses(3)
    name = _approve(bench, wanted)
    wanted["o1"] = move(after="c")
    bench.consider(wanted, approved=[name])
    assert bench.held("o1", wanted["o1"]).kind == "mass"


def test_an_answer_to_what_was_asked_a_moment_ago_lets_through_what_that_was() -> None:
    """In a fleet that never rests another is asked for before anybody has read the first."""
    bench = Bench(Limits(mass_share=0))
    wanted = _masses(3)
    (first,) = bench.consider(wanted).holds
    for number in range(5):
        wanted[f"new{number}"] = move()
        (last,) = bench.consider(wanted).holds
        assert last.approve != first.approve
    assert first.approve is not None
    bench.consider(wanted, approved=[first.approve])
    assert [key for key in wanted if isinstance(bench.take(key, move()), Allowed)] == [
        "o0",
        "o1",
        "o2",
    ]


def test_what_was_asked_for_long_ago_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(approvals, "_OFFERED", 11)
    bench = Bench(Limits(mass_share=0))
    names = [held.approve for n in range(1, 6) for held in bench.consider(_masses(n)).holds]
    more = _masses(10)
    assert [n for n in names if bench.lets_through(n, more)] == names[-2:], "4 and 5 moves"
    monkeypatch.setattr(approvals, "_OFFERED", 5)
    (held,) = bench.consider(_masses(9)).holds
    assert not any(bench.lets_through(name, more) for name in names)
    assert len(bench.lets_through(held.approve, more)) == 9, "what is asked for now stays"


def test_no_more_is_remembered_of_what_was_asked_for_than_is_looked_at() -> None:
    bench = Bench(Limits(mass_share=0))
    names = [held.approve for n in range(1, 50) for held in bench.consider(_masses(n)).holds]
    answered = [name for name in names if bench.lets_through(name, _masses(60))]
    assert answered == names[-32:]


def test_what_is_asked_for_again_is_what_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(Limits(mass_share=0))
    names = [
        held.approve
        for wanted in (_masses(2), _masses(2, after="c"), _masses(2), _masses(2))
        for held in bench.consider(wanted).holds
    ]
    assert names == [names[0], names[1], names[0], names[0]]
    monkeypatch.setattr(approvals, "_OFFERS", 2)
    bench.consider(_masses(9))
    known = [bool(bench.lets_through(name, {**_masses(9), "more": move()})) for name in names[:2]]
    assert known == [True, False], "the one that was asked for again is the newer one"


def test_moves_approved_on_a_smaller_fleet_go_although_others_wait() -> None:
    bench = Bench(Limits(shrink=0.3, mass_share=0))
    wanted = _masses(3)
    first, _ = bench.consider(wanted, SHRUNK).holds
    assert first.approve is not None
    more = {**wanted, "new": move()}
    assessment = bench.consider(more, SHRUNK, [first.approve])
    assert [held.kind for held in assessment.holds] == ["fleet", "mass"]
    assert not assessment.accepted, "others are wanted too"
    assert bench.held("new", move()).kind == "fleet"
    assert isinstance(bench.take("o1", wanted["o1"]), Allowed)
    bench.consider(more, replace(SHRUNK, clusters=5), [first.approve])
    assert bench.held("o2", wanted["o2"]).kind == "fleet", "one more is gone"
    bench.consider(more, replace(SHRUNK, age=None), [first.approve])
    assert bench.held("o2", wanted["o2"]).kind == "fleet", "nobody knows how many there are"


def test_an_approval_of_a_mass_lets_nothing_through_on_a_smaller_fleet() -> None:
    bench = Bench(Limits(shrink=0.3, mass_share=0))
    name = _approve(bench, _masses(3))
    bench.consider({**_masses(3), "new": move()}, SHRUNK, [name])
    assert bench.held("o1", move()).kind == "fleet"


def test_a_move_waits_for_dwell_and_cooldown() -> None:
    bench = Bench(Limits(dwell=30, cooldown=100, mass_floor=9))
    bench.consider({"o": move()})
    bench.write("o", grow(), NOW)
    back = move("ab", "a")
    bench.consider({"o": back})
    held = bench.held("o", back, NOW + 11)
    assert (held.kind, held.until, held.release) == ("dwell", NOW + 30, "in 19 s")
    assert isinstance(bench.write("o", back, NOW + 30), Allowed)
    again = move("a", "c")
    bench.consider({"o": again})
    held = bench.held("o", again, NOW + 31)
    assert (held.kind, held.until) == ("cooldown", NOW + 130)
    bench.restart(NOW + 129)
    bench.consider({"o": again})
    assert bench.held("o", again, NOW + 129.9).kind == "cooldown"
    assert isinstance(bench.take("o", again, NOW + 130), Allowed)


def test_a_policy_can_let_one_object_wait() -> None:
    bench = Bench(Limits(cooldown=10, mass_floor=9))
    bench.guard.tighten(Tightening(cooldown_seconds=5), {"o": NOW + 50}, NOW)
    bench.consider({"o": move(), "p": move()})
    held = bench.held("o", move())
    assert (held.kind, held.until) == ("not_before", NOW + 50)
    assert isinstance(bench.take("p", move()), Allowed)
    assert bench.guard.limits.cooldown == 10
    bench.guard.tighten(Tightening(), {}, NOW)
    bench.consider({"o": move()})
    assert isinstance(bench.take("o", move()), Allowed)


def test_what_waits_for_its_time_is_no_part_of_a_mass_before() -> None:
    bench = Bench(Limits(mass_share=0, mass_floor=9))
    wanted = _masses(50)
    bench.guard.tighten(Tightening(), dict.fromkeys(wanted, NOW + 5), NOW)
    wanted["other"] = move()
    assert bench.consider(wanted) == Assessment((), 1, 100)
    assert isinstance(bench.take("other", move()), Allowed)
    assert bench.held("o1", move()).kind == "not_before"
    assert bench.held("o1", move(), NOW + 5).kind == "unseen", "it is weighed before it goes"
    (held,) = bench.consider(wanted, now=NOW + 5).holds
    assert bench.held("o1", move(), NOW + 5) == held
    assert held.reason == "51 of 100 workloads of namespace n would move"


def test_a_policy_can_lower_a_budget_while_moves_are_under_way() -> None:
    bench = Bench(Limits(Rate(60, 9), mass_floor=9))
    bench.consider({"o": move(), "p": move()})
    assert isinstance(bench.take("o", move()), Allowed)
    bench.guard.tighten(Tightening(moves_burst=1), {}, NOW)
    bench.guard.refund("o", NOW)
    bench.consider({"p": move()})
    assert bench.held("p", move()).kind == "budget"


def test_what_was_weighed_by_other_limits_is_weighed_again_before_it_goes() -> None:
    """Few may have become a mass; what takes nothing away waits for nobody."""
    bench = Bench(Limits(mass_share=0.5))
    bench.consider(_masses(10))
    assert isinstance(bench.take("o1", move()), Allowed)
    bench.guard.tighten(Tightening(mass_share=0), {}, NOW)
    assert bench.held("o2", move()).kind == "unseen"
    assert isinstance(bench.take("o3", grow()), Allowed)
    bench.consider(_masses(10))
    assert bench.held("o2", move()).kind == "mass"


def test_nothing_moves_while_it_is_not_known_what_policies_limit() -> None:
    bench = Bench()
    bench.guard.withhold("it cannot be read")
    bench.consider({"o": move(), "p": grow()})
    held = bench.held("o", move())
    assert (held.kind, held.reason, held.until) == ("limits", "it cannot be read", None)
    assert isinstance(bench.take("p", grow()), Allowed)
    bench.guard.tighten(Tightening(), {}, NOW)
    bench.consider({"o": move()})
    assert isinstance(bench.take("o", move()), Allowed)


def _back_and_forth(bench: Bench) -> None:
    for at, (before, after) in enumerate([("a", "b"), ("b", "a")]):
        bench.consider({"o": move(before, after)}, now=NOW + 20 * at)
        assert isinstance(bench.write("o", move(before, after), NOW + 20 * at), Allowed)


def test_an_object_that_goes_back_and_forth_freezes_until_the_window_has_passed() -> None:
    bench = Bench(Limits(oscillation=100, mass_floor=9))
    _back_and_forth(bench)
    bench.consider({"o": move()}, now=NOW + 40)
    held = bench.held("o", move(), NOW + 40)
    assert (held.kind, held.until) == ("oscillation", NOW + 100)
    assert held.release.startswith("in 60 s, or approve freeze-")
    bench.restart(NOW + 99)
    bench.consider({"o": move()}, now=NOW + 99)
    assert bench.held("o", move(), NOW + 99).kind == "oscillation"
    assert isinstance(bench.take("o", move(), NOW + 100), Allowed)


def test_a_frozen_object_is_released_by_an_approval_once() -> None:
    bench = Bench(Limits(oscillation=100, mass_floor=9))
    _back_and_forth(bench)
    name = bench.held("o", move(), NOW + 40).approve
    assert name is not None
    bench.consider({"o": move()}, approved=[name], now=NOW + 40)
    assert isinstance(bench.write("o", move(), NOW + 40), Allowed)
    bench.consider({"o": move("b", "a")}, approved=[name], now=NOW + 60)
    assert bench.held("o", move("b", "a"), NOW + 60).kind == "oscillation"


def test_an_addition_is_frozen_by_the_placement_that_it_leads_to() -> None:
    bench = Bench(Limits(oscillation=100, mass_floor=9))
    for number, change in enumerate((move("a", "b"), move("b", "a"))):
        bench.consider({"o": change}, now=NOW + 10 * number)
        assert isinstance(bench.write("o", change, NOW + 10 * number), Allowed)
    addition = replace(grow(), toward="b")
    held = bench.held("o", addition, NOW + 30)
    assert held.kind == "oscillation"
    bench.consider({"o": addition}, approved=[str(held.approve)], now=NOW + 30)
    verdict = bench.write("o", addition, NOW + 30)
    assert isinstance(verdict, Allowed)
    last = bench.histories["o"][-1]
    assert (last.placement, last.passing) == ("ab", True)


def test_another_placement_than_the_two_is_no_oscillation() -> None:
    bench = Bench(Limits(oscillation=100, mass_floor=9))
    _back_and_forth(bench)
    bench.consider({"o": move("a", "c")}, now=NOW + 40)
    assert isinstance(bench.take("o", move("a", "c"), NOW + 40), Allowed)


def test_a_fight_over_an_addition_freezes_too(bench: Bench) -> None:
    bench.guard = Guard(Limits(oscillation=100))
    assert isinstance(bench.write("o", grow()), Allowed)
    assert bench.held("o", grow(), NOW + 20).kind == "oscillation"


def test_a_watch_that_lags_behind_our_own_write_is_waited_for(bench: Bench) -> None:
    """What it tells is how the object was: else that would be a fight, and another charge."""
    bench.consider({"o": move()})
    verdict = bench.take("o", move())
    assert isinstance(verdict, Allowed)
    bench.guard.moved("o")
    assert bench.consider({"o": move()}, now=NOW + 1).moves == 0
    assert bench.held("o", move(), NOW + 1).kind == "unseen"
    assert bench.consider({"o": move()}, now=NOW + 11).moves == 1, "somebody put it back"
    assert isinstance(bench.take("o", move(), NOW + 11), Allowed)


def test_a_history_that_somebody_took_away_is_remembered() -> None:
    bench = Bench(Limits(cooldown=50, mass_floor=9))
    bench.consider({"o": move()})
    bench.write("o", move())
    del bench.histories["o"]
    bench.consider({"o": move()}, now=NOW + 11)
    assert bench.held("o", move(), NOW + 11).kind == "cooldown"


def test_a_guard_that_begins_again_waits_for_nobody_from_before() -> None:
    """A Lease that is lost and held again: others moved meanwhile."""
    bench = Bench(Limits(Rate(6, 1), mass_floor=9))
    bench.consider({"o": move(), "p": move()})
    bench.take("o", move())
    bench.take("p", move())
    bench.guard.recall({}, NOW)
    assert bench.guard.held == {}
    bench.consider({"q": move()})
    assert isinstance(bench.take("q", move(), NOW + 5), Allowed)


def test_what_another_process_wrote_since_is_what_counts(bench: Bench) -> None:
    bench.guard = Guard(Limits(cooldown=50, mass_floor=9))
    bench.consider({"o": move()})
    bench.write("o", move())
    bench.histories["o"] = (*bench.histories["o"], Entry(1010, "c", ("b",)))
    bench.consider({"o": move("c", "d")})
    assert bench.held("o", move("c", "d"), NOW + 55).until == NOW + 60


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        (Limits(moves=Rate(6, 1)), "enough moves for now"),
        (Limits(namespace=Rate(6, 1)), "enough moves in namespace n for now"),
        (Limits(cluster=Rate(6, 1)), "enough moves away from a for now"),
    ],
)
def test_moves_wait_for_the_budget(limits: Limits, reason: str) -> None:
    bench = Bench(replace(limits, mass_floor=9))
    bench.consider({"o": move(), "p": move()})
    assert isinstance(bench.take("o", move()), Allowed)
    assert bench.held("p", move()) == Withheld("budget", reason, "in 10 s", NOW + 10)
    assert isinstance(bench.take("p", move(), NOW + 10), Allowed)


def test_nobody_waits_for_one_that_something_else_holds() -> None:
    bench = Bench(Limits(Rate(6, 1), mass_floor=9))
    bench.consider({"o": move(), "p": move(), "q": move()})
    bench.take("o", move())
    assert bench.held("p", move()).kind == "budget"
    bench.guard.tighten(Tightening(), {"p": NOW + 99}, NOW)
    bench.consider({"p": move(), "q": move()}, now=NOW + 10)
    assert bench.held("p", move(), NOW + 10).kind == "not_before"
    assert isinstance(bench.take("q", move(), NOW + 10), Allowed)


def test_a_refund_lets_another_go() -> None:
    bench = Bench(Limits(Rate(6, 1), mass_floor=9))
    bench.consider({"o": move(), "p": move()})
    assert isinstance(bench.take("o", move()), Allowed)
    bench.guard.refund("o", NOW)
    bench.guard.refund("o", NOW)
    assert isinstance(bench.take("p", move()), Allowed)
    bench.guard.moved("o")
    assert bench.held("o", move()).kind == "budget"


def test_a_restart_gives_no_new_budget() -> None:
    bench = Bench(Limits(Rate(6, 3), cluster=Rate(6, 2), mass_floor=9))
    bench.consider({"o": move(), "p": move(), "q": move(), "r": move("x", "y")})
    bench.write("o", move())
    bench.write("p", move())
    bench.restart()
    bench.consider({"q": move(), "r": move("x", "y")})
    assert bench.held("q", move()).reason == "enough moves away from a for now"
    assert isinstance(bench.take("r", move("x", "y")), Allowed)


@pytest.mark.parametrize("entries", [1, LENGTH], ids=["known", "more than is known"])
def test_a_restart_under_lower_limits_gives_no_new_budget_when_they_end(entries: int) -> None:
    bench = Bench(Limits(Rate(60, 20), mass_floor=99))
    for number in range(20):
        history = tuple(Entry(999, str(index), ("a",)) for index in range(entries))
        bench.histories[f"o{number}"] = history
    bench.guard.tighten(Tightening(moves_per_minute=6, moves_burst=1), {}, NOW)
    bench.guard.recall({key: ("n", history) for key, history in bench.histories.items()}, NOW)
    bench.guard.tighten(Tightening(), {}, NOW + 1)
    wanted = {f"p{number}": move() for number in range(20)}
    bench.consider(wanted, now=NOW + 1)
    gone = [key for key in wanted if isinstance(bench.take(key, move(), NOW + 1), Allowed)]
    assert len(gone) == 1, "what came back in a second at the configured rate"


def test_a_restart_under_lower_limits_gives_no_new_budget_of_these() -> None:
    """They may have been in force all the time."""
    bench = Bench(Limits(Rate(60, 20), mass_floor=99))
    bench.histories["o"] = (Entry(995, "b", ("a",)),)
    bench.guard.tighten(Tightening(moves_per_minute=6, moves_burst=1), {}, NOW)
    bench.guard.recall({"o": ("n", bench.histories["o"])}, NOW)
    bench.consider({"p": move()})
    held = bench.held("p", move())
    assert (held.kind, held.until) == ("budget", NOW + 5)


def test_a_restart_under_limits_that_only_a_policy_sets_gives_no_new_budget() -> None:
    bench = Bench(Limits(mass_floor=99))
    bench.histories["o"] = (Entry(995, "b", ("a",)),)
    bench.guard.tighten(Tightening(moves_per_minute=6), {}, NOW)
    bench.guard.recall({"o": ("n", bench.histories["o"])}, NOW)
    bench.consider({"p": move()})
    assert bench.held("p", move()).until == NOW + 5


def test_a_history_that_hides_more_counts_by_the_limits_that_come_back() -> None:
    """Also in what was moved from since, of which the lower burst alone would be spent."""
    bench = Bench(Limits(cluster=Rate(60, 20), mass_floor=99))
    bench.histories["o"] = tuple(Entry(1000, name, ("x",)) for name in "abcd")
    bench.guard.tighten(Tightening(cluster_moves_per_minute=60, cluster_moves_burst=1), {}, NOW)
    bench.guard.recall({"o": ("n", bench.histories["o"])}, NOW)
    wanted = {f"p{number}": move("y", "z") for number in range(20)}
    bench.consider(wanted, now=NOW + 5)
    assert bench.held("p0", wanted["p0"], NOW + 5).kind == "budget", "as if it had no lower burst"
    bench.guard.tighten(Tightening(), {}, NOW + 5)
    bench.consider(wanted, now=NOW + 5)
    gone = [key for key, m in wanted.items() if isinstance(bench.take(key, m, NOW + 5), Allowed)]
    assert len(gone) == 5


def test_after_a_restart_only_what_did_not_come_back_is_spent() -> None:
    bench = Bench(Limits(Rate(6, 2), mass_floor=9))
    bench.histories["o"] = (Entry(900, "a", ("x",)),)
    bench.histories["p"] = (Entry(999, "a", ("x",)),)
    bench.histories["s"] = (Entry(900, "a", ("x",)),)
    bench.restart()
    bench.consider({"q": move(), "r": move()})
    assert isinstance(bench.take("q", move()), Allowed)
    assert bench.held("r", move()).kind == "budget"


def test_after_a_restart_a_clock_that_was_ahead_costs_no_more_than_now() -> None:
    bench = Bench(Limits(Rate(6, 1), mass_floor=9))
    bench.histories["o"] = (Entry(1005, "a", ("x",)),)
    bench.restart()
    bench.consider({"q": move()})
    assert bench.held("q", move()).until == NOW + 10
    assert isinstance(bench.take("q", move(), NOW + 10), Allowed)


def test_after_a_restart_a_full_history_may_hide_more() -> None:
    bench = Bench(Limits(Rate(6, 9), mass_floor=9))
    bench.histories["o"] = tuple(Entry(999, name, ("x",)) for name in "abcd")
    bench.histories["p"] = tuple(Entry(at, "abcd"[at]) for at in range(4))
    bench.restart()
    bench.consider({"q": move()})
    assert bench.held("q", move()).kind == "budget"


def test_after_a_restart_a_history_that_names_too_many_clusters_is_not_followed() -> None:
    """Histories can be forged: a few hundred of these took longer than a Lease lasts."""
    bench = Bench(Limits(Rate(60, 2), Rate(60, 2), Rate(60, 2), mass_floor=9))
    for number in range(20):
        left = tuple(f"{number}-{i}" for i in range(3000))
        bench.histories[f"o{number}"] = (Entry(999, "a", left),)
    bench.restart()
    replayed = {("moves",), ("namespace",), ("cluster",)}
    assert not any(one[:1] in replayed for one in remembered(bench.guard, tuple))
    bench.consider({"q": move()})
    assert bench.held("q", move()).until == NOW + 1
    assert isinstance(bench.take("q", move(), NOW + 1), Allowed)


FORGED = st.lists(
    st.tuples(
        st.integers(0, 1005),
        st.sampled_from("ab"),
        st.lists(st.sampled_from("axyz"), max_size=3),
        st.sampled_from(["", "moves-1"]),
    ),
    max_size=5,
).map(json.dumps)


@given(
    st.lists(FORGED, max_size=5),
    st.tuples(*[st.none() | st.builds(Rate, st.floats(1, 60), st.integers(1, 3))] * 3),
    st.integers(0, 200),
    st.builds(move, st.sampled_from("axyz"), st.just("b"), st.sampled_from("nm")),
)
def test_forged_histories_let_nothing_more_move_after_a_restart(
    forged: list[str],
    rates: tuple[Rate | None, Rate | None, Rate | None],
    later: int,
    wanted: Change,
) -> None:
    """What they cost others has come back in the time in which any budget comes back."""
    verdicts = []
    for texts in ([], forged):
        bench = Bench(Limits(*rates, mass_floor=99))
        bench.histories["o"] = (Entry(995, "a", ("a",)), Entry(1000, "b", ("x",)))
        told = ((f"f{i}", read_history({HISTORY: text}, NOW)) for i, text in enumerate(texts))
        bench.histories |= dict(told)
        bench.restart()
        bench.consider({"p": wanted}, now=NOW + later)
        verdicts.append(isinstance(bench.take("p", wanted, NOW + later), Allowed))
    honest, with_forged = verdicts
    assert honest or not with_forged
    fills_within = max((rate.burst / rate.per_second for rate in rates if rate), default=0)
    assert with_forged or later < fills_within


def test_what_waits_is_shown_since_when_until_it_goes_or_is_not_wanted() -> None:
    bench = Bench(Limits(Rate(6, 1), mass_floor=9))
    wanted = {"o": move(), "p": move(), "q": move()}
    bench.take("p", move(), NOW - 5)
    bench.consider(wanted)
    bench.take("o", move())
    held = bench.held("p", move())
    assert bench.guard.held["p"].held == held
    assert bench.guard.held["p"].since == NOW - 5
    bench.take("q", move())
    assert set(bench.guard.held) == {"p", "q"}
    bench.take("p", move(), NOW + 10)
    assert set(bench.guard.held) == {"q"}
    bench.consider({})
    assert bench.guard.held == {}


def test_an_object_that_is_gone_is_forgotten() -> None:
    bench = Bench(Limits(dwell=99, mass_floor=9))
    bench.consider({"o": move()})
    bench.write("o", move())
    bench.take("o", move("b", "c"))
    bench.guard.forget("o")
    assert bench.guard.held == {}
    assert remembered(bench.guard, Entry) == []
