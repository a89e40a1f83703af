"""Memory that grows is told from memory that was only loaded anew."""

from __future__ import annotations

import pytest

from tools.soak.memory import LOADING, Sample, curve, slope_per_minute

HALF_AN_HOUR = 1800


def samples(kb: float, per_minute: float, *, seconds: int = HALF_AN_HOUR) -> list[Sample]:
    return [Sample(at, 0, kb + per_minute * at / 60) for at in range(0, seconds, 2)]


def test_flat_memory_is_bounded() -> None:
    found = curve(samples(100_000, 0), 6_000)
    assert (found.kb_per_minute, found.bounded, found.judged) == (0, True, True)
    assert (found.least_kb, found.median_kb, found.most_kb) == (100_000, 100_000, 100_000)


def test_leak_is_not_bounded_and_is_told_by_changes_too() -> None:
    found = curve(samples(100_000, 3_000), 6_000)
    assert found.kb_per_minute == pytest.approx(3_000)
    assert found.kb_per_1000_changes == pytest.approx(500)
    assert found.judged
    assert not found.bounded


def test_growth_that_has_ended_by_half_time_is_bounded() -> None:
    first = [Sample(at, 0, 50_000 + 100 * at) for at in range(0, 800, 2)]
    found = curve([*first, *(Sample(at, 0, 130_000) for at in range(800, 1800, 2))], 6_000)
    assert (found.kb_per_minute, found.bounded) == (0, True)


def test_start_from_little_memory_is_no_growth() -> None:
    """Each start loads everything again; between two starts nothing is compared."""
    loads = [
        Sample(start * 300 + at, start, 50_000 + 2_000 * min(at, LOADING))
        for start in range(6)
        for at in range(0, 300, 2)
    ]
    assert curve(loads, 6_000).kb_per_minute == 0


def test_leak_is_seen_although_the_process_is_killed_now_and_then() -> None:
    leaks = [
        Sample(start * 300 + at, start, 50_000 + 100 * at)
        for start in range(6)
        for at in range(0, 300, 2)
    ]
    assert curve(leaks, 6_000).kb_per_minute == pytest.approx(6_000)


def test_short_run_is_not_judged() -> None:
    found = curve(samples(100_000, 60_000, seconds=400), 6_000)
    assert not found.judged
    assert found.bounded


def test_process_that_never_ran_for_long_has_no_slope() -> None:
    found = curve([Sample(at, at, 1.0) for at in range(100)], 6_000)
    assert found.kb_per_minute is None
    assert found.bounded


def test_single_spike_does_not_move_the_slope() -> None:
    flat = samples(100_000, 0)
    spike = [*flat[:-1], Sample(flat[-1].at, 0, 900_000)]
    assert slope_per_minute(spike) == 0
