"""An adaptive limit on concurrent requests: additive increase, multiplicative decrease. Pure.

The limit follows what the server shows: how many of our requests wait there, and whether it refuses
some. By Little's law, of `limit` requests in flight `limit * (1 - base / mean)` wait, where `mean`
is their mean latency and `base` that of few requests (TCP Vegas; Netflix's concurrency-limits does
the same for services). A few are kept waiting, so that the server never runs dry; more would add
latency for others and no throughput.

- The limit was reached and fewer than `_FEW` wait: one more.
- More than `_MANY` wait: a tenth less.
- The server is overloaded (429, no answer in time): half, once for the requests in flight together.
- Every `_REMEASURE_SECONDS` of load a few requests measure `base` anew (Envoy's minRTT, BBR's
  ProbeRTT), since the server or the network may have become slower.

Latency alone never lowers the limit below `_MANY`, so load by others cannot starve us.
"""

from __future__ import annotations

import math
from typing import Final

_FEW, _MANY = 12.0, 16.0  # waiting requests
_LESS, _HALF = 0.9, 0.5
_MEASURING = 4  # concurrent requests while `base` is measured; also the first limit
_SAMPLES = 10  # at least, for a mean
_REMEASURE_SECONDS = 30.0

LOWEST: Final = 1
HIGHEST: Final = 64


class Aimd:
    """The limit, from reported latencies and overloads; all times are seconds of one clock."""

    def __init__(self, lowest: int = LOWEST, highest: int = HIGHEST) -> None:
        """Keep the limit between `lowest` and `highest`; it is constant if they are equal."""
        self._lowest, self._highest = lowest, highest
        self._limit = float(self._within(_MEASURING))
        self._base = math.inf  # seconds; not measured yet
        self._measuring = False
        self._measure_at = math.inf
        self._lowered_at = -math.inf
        self._since, self._count, self._total, self._peak = -math.inf, 0, 0.0, 0

    @property
    def limit(self) -> int:
        """The number of requests that may be in flight."""
        return self._within(min(self._limit, _MEASURING) if self._measuring else self._limit)

    def answered(self, started: float, now: float, in_flight: int) -> None:
        """Record a successful request; `in_flight` counts it too."""
        if started < self._since:
            return  # it shows the limit before this one
        self._count += 1
        self._total += now - started
        self._peak = max(self._peak, in_flight)
        if self._count >= max(_SAMPLES, self.limit):
            self._adapt(self._total / self._count, now)

    def overloaded(self, started: float, now: float) -> None:
        """Record a request that the server refused, or did not answer, because of its load."""
        if started < self._lowered_at:
            return  # it was in flight with one that lowered the limit
        self._limit = self._within(self._limit * _HALF)
        self._measuring = False
        self._lowered_at = now
        self._begin(now)

    def _adapt(self, mean: float, now: float) -> None:
        if self._measuring or mean < self._base:
            self._base = mean
        waiting = self.limit * (1 - self._base / mean) if mean else 0.0
        if self._measuring:
            self._measuring, self._measure_at = False, now + _REMEASURE_SECONDS
        elif waiting > _MANY:
            self._limit = self._within(min(self._limit - 1, self._limit * _LESS))
        elif waiting < _FEW and self._peak >= self.limit:
            self._limit = self._within(self._limit + 1)
        if self._measure_at == math.inf:
            self._measure_at = now + _REMEASURE_SECONDS
        elif now >= self._measure_at and self._limit > _MEASURING:
            self._measuring = True
        self._begin(now)

    def _begin(self, now: float) -> None:
        """Begin a window: what it measures are the requests that start from now on."""
        self._since, self._count, self._total, self._peak = now, 0, 0.0, 0

    def _within(self, limit: float) -> int:
        return max(self._lowest, min(self._highest, int(limit)))
