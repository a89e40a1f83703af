"""What the resident memory of a process did, and whether it grows without bound. Pure.

A process that is started again begins anew, and grows while it loads: samples are compared with
those of the same start only, and what comes soon after a start is left out. The slope is the median
of the slopes between any two samples (Theil and Sen), which no single spike moves.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

LOADING = 180.0  # seconds after a start: on a full machine 50,000 objects take two minutes
_JUDGED_FROM = 300.0  # seconds in the second half: a shorter one is still warming up
_SHARE = 0.01  # of the median, a minute: in half an hour a third
_FLOOR_KB = 1024.0  # a minute
_THINNED = 400  # samples, since pairs grow with the square


@dataclass(frozen=True, slots=True)
class Sample:
    """The resident memory at a time (seconds since the run began), in the n-th start."""

    at: float
    start: int
    kb: float


@dataclass(frozen=True, slots=True)
class Curve:
    """What a process needed; slopes are of the second half, None where too little is known."""

    least_kb: float
    median_kb: float
    most_kb: float
    kb_per_minute: float | None
    kb_per_1000_changes: float | None
    limit_kb_per_minute: float
    judged: bool

    @property
    def bounded(self) -> bool:
        """Whether memory stays where it is, as far as that can be told."""
        slope = self.kb_per_minute
        return not self.judged or slope is None or slope <= self.limit_kb_per_minute


def curve(samples: Sequence[Sample], changes_per_minute: float) -> Curve:
    """Return what the samples come to; there has to be one at least."""
    sizes = [sample.kb for sample in samples]
    half = (samples[0].at + samples[-1].at) / 2
    slope = slope_per_minute([s for s in settled(samples) if s.at >= half])
    by_change = None
    if slope is not None and changes_per_minute:
        by_change = slope / changes_per_minute * 1000
    median = statistics.median(sizes)
    limit = max(_FLOOR_KB, median * _SHARE)
    judged = slope is not None and samples[-1].at - half >= _JUDGED_FROM
    return Curve(min(sizes), median, max(sizes), slope, by_change, limit, judged)


def settled(samples: Sequence[Sample]) -> list[Sample]:
    """Return the samples of processes that have done their loading."""
    began: dict[int, float] = {}
    for sample in samples:
        began.setdefault(sample.start, sample.at)
    return [s for s in samples if s.at >= began[s.start] + LOADING]


def slope_per_minute(samples: Sequence[Sample]) -> float | None:
    """Return the KB by which memory grows in a minute, None where no two samples compare."""
    thinned = samples[:: len(samples) // _THINNED + 1]
    slopes = [
        (b.kb - a.kb) / (b.at - a.at) * 60
        for a, b in combinations(thinned, 2)
        if a.start == b.start and b.at > a.at
    ]
    return statistics.median(slopes) if slopes else None
