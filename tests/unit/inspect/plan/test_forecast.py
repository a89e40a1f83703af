"""The simulated clock, against the limits that it has to obey."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import msgspec
import pytest

from kube_sync.errors import Undecided
from kube_sync.guard import HISTORY, Change, Fleet, Limits, Tightening
from kube_sync.guard.history import Entry, History
from kube_sync.guard.limits import Rate
from kube_sync.inspect.plan.forecast import Forecast, Workload, forecast, tightening, workload

NOW = 1_000_000.0


def move(name: str = "", *left: str, evict: bool = False, empties: bool = False) -> Change:
    gone = frozenset(left or ("c1",))
    return Change("shop", f"before{name}", f"after{name}", gone, empties=empties, evict=evict)


def foreseen(
    wanted: Mapping[str, tuple[Change, History]],
    limits: Limits,
    *,
    workloads: dict[str, Workload] | None = None,
    by: Tightening | None = None,
    not_before: dict[str, float] | None = None,
    clusters: int = 3,
    numbers: dict[str, int] | None = None,
) -> Forecast:
    fleet = Fleet(0.0, clusters, 3, epoch_matches=True)
    by = by or Tightening()
    known = numbers or {"shop": 1000}
    return forecast(
        wanted, workloads or {}, known, fleet, limits, by=by, not_before=not_before or {}, now=NOW
    )


def moves(number: int) -> dict[str, tuple[Change, History]]:
    return {f"r/w{n:03}": (move(str(n)), ()) for n in range(number)}


def test_burst_goes_at_once_and_the_rest_at_the_rate() -> None:
    found = foreseen(moves(50), Limits(moves=Rate(60, 20)))
    times = sorted(found.seconds.values())
    assert times[:20] == [0.0] * 20
    assert times[20:] == pytest.approx(range(1, 31), abs=0.1)
    assert (found.held, found.holds) == ({}, ())
    assert found.lasts == pytest.approx(30, abs=0.1)


def test_policies_make_it_slower() -> None:
    found = foreseen(moves(5), Limits(), by=Tightening(moves_per_minute=6))
    assert sorted(found.seconds.values()) == pytest.approx([0, 10, 20, 30, 40], abs=0.1)


def test_object_that_waits_for_its_time_goes_then() -> None:
    found = foreseen(moves(2), Limits(), not_before={"r/w001": NOW + 100})
    assert found.seconds["r/w000"] == 0
    assert found.seconds["r/w001"] == pytest.approx(100, abs=2)


def test_mass_says_that_it_needs_an_approval_and_counts_from_there() -> None:
    found = foreseen(moves(30), Limits(mass_share=0.01))
    assert [hold.kind for hold in found.holds] == ["mass"]
    assert sorted(found.seconds.values()) == [0.0] * 30


def test_fleet_that_shrinks_needs_an_approval_too() -> None:
    found = foreseen(moves(1), Limits(shrink=0.3), clusters=1)
    assert [hold.kind for hold in found.holds] == ["fleet"]
    assert found.seconds == {"r/w000": 0.0}


def test_fleet_of_no_cluster_holds_everything_for_good() -> None:
    found = foreseen(moves(1), Limits(), clusters=0)
    assert found.seconds == {}
    assert found.held["r/w000"].kind == "fleet"


def test_workload_that_would_be_emptied_is_held_unless_the_policy_says_evict() -> None:
    wanted = {
        "r/a": (move("a", empties=True), ()),
        "r/b": (move("b", empties=True, evict=True), ()),
    }
    found = foreseen(wanted, Limits())
    assert {key: held.kind for key, held in found.held.items()} == {"r/a": "empty"}
    assert found.seconds == {"r/b": 0.0}


def test_what_moved_a_moment_ago_cools_down_first() -> None:
    history = (Entry(int(NOW) - 20, "before0", ("c9",)),)
    known = {"r/w000": Workload("shop", history)}
    wanted = {"r/w000": (move("0"), history)}
    found = foreseen(wanted, Limits(cooldown=120), workloads=known)
    assert found.seconds["r/w000"] == pytest.approx(100, abs=1)


def test_what_goes_back_and_forth_is_frozen() -> None:
    at = int(NOW) - 100
    history = (Entry(at, "before0"), Entry(at + 1, "after0"), Entry(at + 2, "before0"))
    found = foreseen({"r/w000": (move("0"), history)}, Limits(oscillation=3600))
    assert found.held["r/w000"].kind == "oscillation"


def test_history_is_read_off_the_object_where_it_has_one() -> None:
    text = msgspec.json.encode([[5, "a"]]).decode()
    assert workload("shop", {HISTORY: text}, NOW) == Workload("shop", (Entry(5, "a"),))
    assert workload("shop", {}, NOW) is None


def test_limits_that_cannot_be_read_are_not_no_limits() -> None:
    assert tightening(None) == Tightening()
    with pytest.raises(Undecided):
        tightening({"moves_per_minit": 3})


def test_namespaces_over_their_share_are_told_each_and_others_wait_for_nothing() -> None:
    wanted = {
        f"r/{space}{number}": (replace(move(f"{number}"), namespace=space), ())
        for space, many in (("shop", 45), ("bank", 45), ("mine", 1))
        for number in range(many)
    }
    numbers = {"shop": 100, "bank": 100, "mine": 100}
    found = foreseen(wanted, Limits(mass_share=0.2, mass_floor=10), numbers=numbers)
    assert [(held.kind, held.namespace) for held in found.holds] == [("mass", None)]
    numbers["mine"] = 1000
    found = foreseen(wanted, Limits(mass_share=0.2, mass_floor=10), numbers=numbers)
    assert [held.reason for held in found.holds] == [
        "45 of 100 workloads of namespace bank would move",
        "45 of 100 workloads of namespace shop would move",
    ]
    assert not found.held, "all go once they are approved"
