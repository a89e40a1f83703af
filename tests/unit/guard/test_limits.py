from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_sync.config import Guard as Settings
from kube_sync.errors import Undecided
from kube_sync.guard.limits import (
    Limits,
    Rate,
    Tightening,
    limits_of,
    parse_tightening,
    stricter,
)


def test_the_configuration_gives_the_limits() -> None:
    assert limits_of(Settings()) == Limits(
        Rate(60, 20), Rate(30, 10), Rate(30, 10), 30, 120, 3600, 60, 0.3, 0.2, 10
    )


def test_nought_is_no_limit() -> None:
    limits = limits_of(Settings(moves_per_minute=0, stale_seconds=0))
    assert (limits.moves, limits.stale) == (None, None)
    assert limits.namespace is not None


def test_a_policy_tightens_by_the_names_of_the_configuration() -> None:
    by = parse_tightening(
        {"moves_per_minute": 6, "cooldown_seconds": 600, "not_before": {"n/a": 7}}
    )
    assert by == Tightening(moves_per_minute=6, cooldown_seconds=600, not_before={"n/a": 7})
    limits = limits_of(Settings()).tightened(by)
    assert (limits.moves, limits.cooldown) == (Rate(6, 20), 600)
    assert set(Settings.__struct_fields__) - {"placements", "known_clusters"} == set(
        Tightening.__struct_fields__
    ) - {"not_before"}


@pytest.mark.parametrize(
    "document",
    [
        7,
        {"move_per_minute": 1},
        {"moves_per_minute": 0},
        {"moves_burst": 0},
        {"mass_share": 2},
        {"not_before": {"n/a": "noon"}},
        {"not_before": {"n/a": 1e300}},
        {"cooldown_seconds": 1e300},
        {"moves_per_minute": 5e-324},  # a token in no time that a timer takes
        {"moves_burst": 10**30},  # nothing that the stream could carry
        {"mass_floor": 10**30},
    ],
)
def test_a_limit_that_cannot_be_read_is_not_taken_for_none(document: object) -> None:
    with pytest.raises(Undecided, match=r"^data\.kube_sync_budget: "):
        parse_tightening(document)


def test_what_is_limited_is_told_by_name() -> None:
    by = parse_tightening({"mass_share": 0, "moves_burst": 2, "not_before": {"n/a": 7}})
    assert by.named() == {"mass_share": 0, "moves_burst": 2}


def test_a_policy_can_limit_what_has_no_limit() -> None:
    none = Limits()
    assert none.tightened(Tightening(moves_per_minute=6, moves_burst=3)).moves == Rate(6, 3)
    assert none.tightened(Tightening(moves_per_minute=6)).moves == Rate(6, 1)
    assert none.tightened(Tightening(moves_burst=3)).moves is None
    assert none.tightened(Tightening(stale_seconds=3)).stale == 3


_number = st.floats(0.1, 100)
_share = st.floats(0, 1)
_rate = st.none() | st.builds(Rate, _number, st.integers(1, 9))
limits_ = st.builds(
    Limits,
    _rate,
    _rate,
    _rate,
    _number,
    _number,
    _number,
    st.none() | _number,
    _share,
    _share,
    st.integers(0, 9),
)
_numbers = (
    "moves_per_minute",
    "namespace_moves_per_minute",
    "cluster_moves_per_minute",
    "dwell_seconds",
    "cooldown_seconds",
    "oscillation_seconds",
    "stale_seconds",
)
_bursts = ("moves_burst", "namespace_moves_burst", "cluster_moves_burst", "mass_floor")
tightenings = st.fixed_dictionaries(
    {},
    optional=dict.fromkeys(_numbers, _number)
    | {name: st.integers(1, 9) for name in _bursts}
    | dict.fromkeys(("shrink_share", "mass_share"), _share),
).map(parse_tightening)


def _is_slower(one: Rate | None, other: Rate | None) -> bool:
    return other is None or (
        one is not None and one.per_minute <= other.per_minute and one.burst <= other.burst
    )


def test_the_stricter_of_two_documents_is_one_that_policies_could_have_said() -> None:
    one = {"moves_burst": 3, "dwell_seconds": 5, "not_before": {"n/a": 7, "n/b": 8}}
    other = {"moves_burst": 2, "dwell_seconds": 6, "mass_floor": 0, "not_before": {"n/a": 9}}
    both = {"moves_burst": 2, "dwell_seconds": 6, "mass_floor": 0}
    assert stricter(one, other) == both | {"not_before": {"n/a": 9, "n/b": 8}}
    assert stricter({"moves_burst": 3}, {"mass_share": 0}) == {"moves_burst": 3, "mass_share": 0}


def test_no_document_limits_nothing() -> None:
    document = {"moves_burst": 3}
    assert stricter(None, document) is document
    assert stricter(document, None) is document
    assert stricter(None, None) is None


def test_what_cannot_be_read_is_not_taken_for_none() -> None:
    with pytest.raises(Undecided):
        stricter({"moves": 1}, {"moves_burst": 3})


def _is_stricter(one: Limits, other: Limits) -> bool:
    rates = ("moves", "namespace", "cluster")
    return (
        all(_is_slower(getattr(one, name), getattr(other, name)) for name in rates)
        and all(getattr(one, n) >= getattr(other, n) for n in ("dwell", "cooldown", "oscillation"))
        and all(getattr(one, n) <= getattr(other, n) for n in ("shrink", "mass_share"))
        and one.mass_floor <= other.mass_floor
        and (other.stale is None or (one.stale is not None and one.stale <= other.stale))
    )


@given(limits_, tightenings, tightenings)
def test_the_stricter_of_two_limits_all_that_either_does(
    limits: Limits, one: Tightening, other: Tightening
) -> None:
    both = one.stricter(other)
    for by in (one, other):
        assert _is_stricter(limits.tightened(both), limits.tightened(by))
    assert both.stricter(one) == both


@given(limits_, tightenings)
def test_tightening_never_loosens(limits: Limits, by: Tightening) -> None:
    tight = limits.tightened(by)
    for name in ("moves", "namespace", "cluster"):
        assert _is_slower(getattr(tight, name), getattr(limits, name))
    for name in ("dwell", "cooldown", "oscillation"):
        assert getattr(tight, name) >= getattr(limits, name)
    for name in ("shrink", "mass_share", "mass_floor"):
        assert getattr(tight, name) <= getattr(limits, name)
    assert limits.stale is None or (tight.stale is not None and tight.stale <= limits.stale)
    assert tight.tightened(by) == tight
