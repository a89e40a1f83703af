"""Limits on moves: from the configuration, and lower ones from a policy.

A policy lowers them by the document `data.kube_sync_budget`, with the names of the configuration
section `remediate.guard`. A document never raises a limit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec

from kube_sync.config import Guard as Settings
from kube_sync.errors import Undecided, json_errors_as

# Bounded, so that every wait is a number of seconds that a timer accepts.
_NotNegative = Annotated[float, msgspec.Meta(ge=0, le=1_000_000_000)]
_Time = Annotated[float, msgspec.Meta(ge=0, le=100_000_000_000)]
# 0 is not "no limit" here: a policy stops moves by `not_before`.
_PerMinute = Annotated[float, msgspec.Meta(ge=0.000001, le=1_000_000_000)]
_Burst = Annotated[int, msgspec.Meta(ge=1, le=1_000_000_000)]
_Share = Annotated[float, msgspec.Meta(ge=0, le=1)]

_LONGER = ("dwell_seconds", "cooldown_seconds", "oscillation_seconds")
_BUCKETS = tuple(
    (f"{of}moves_per_minute", f"{of}moves_burst") for of in ("", "namespace_", "cluster_")
)


@dataclass(frozen=True, slots=True)
class Rate:
    """A token bucket: `per_minute` tokens a minute, at most `burst` at once."""

    per_minute: float
    burst: int

    @property
    def per_second(self) -> float:
        """Tokens that are refilled in a second."""
        return self.per_minute / 60


class Tightening(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Lower limits; None keeps one as it is. `not_before`: Unix seconds by `namespace/name`."""

    moves_per_minute: _PerMinute | None = None
    moves_burst: _Burst | None = None
    namespace_moves_per_minute: _PerMinute | None = None
    namespace_moves_burst: _Burst | None = None
    cluster_moves_per_minute: _PerMinute | None = None
    cluster_moves_burst: _Burst | None = None
    dwell_seconds: _NotNegative | None = None
    cooldown_seconds: _NotNegative | None = None
    oscillation_seconds: _NotNegative | None = None
    stale_seconds: _PerMinute | None = None
    shrink_share: _Share | None = None
    mass_share: _Share | None = None
    mass_floor: Annotated[int, msgspec.Meta(ge=0, le=1_000_000_000)] | None = None
    not_before: Mapping[str, _Time] = {}

    def named(self) -> dict[str, float]:
        """Return the limits that it sets, by their names."""
        found = {name: getattr(self, name) for name in self.__struct_fields__[:-1]}
        return {name: value for name, value in found.items() if value is not None}

    def stricter(self, other: Tightening) -> Tightening:
        """Return a tightening that is at least as strict as both."""
        if self == other:
            return self
        found: dict[str, Any] = {}
        for name in self.__struct_fields__[:-1]:
            pick = max if name in _LONGER else min
            values = [getattr(one, name) for one in (self, other)]
            found[name] = pick((v for v in values if v is not None), default=None)
        for rate, burst in _BUCKETS:
            # A rate alone has a burst of 1 if none is configured: no other one is lower.
            alone = any(getattr(t, rate) and not getattr(t, burst) for t in (self, other))
            if alone and found[burst]:
                found[burst] = 1
        both = {**self.not_before, **other.not_before}
        times = {name: max(time, self.not_before.get(name, 0)) for name, time in both.items()}
        return Tightening(**found, not_before=times)


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits in force: a Rate of None is no limit, times in seconds, shares from 0 to 1."""

    moves: Rate | None = None
    namespace: Rate | None = None
    cluster: Rate | None = None
    dwell: float = 0
    cooldown: float = 0
    oscillation: float = 0
    stale: float | None = None
    shrink: float = 1
    mass_share: float = 1
    mass_floor: int = 0

    def tightened(self, by: Tightening) -> Limits:
        """Return these limits, lower where `by` is lower."""
        return Limits(
            _slower(self.moves, by.moves_per_minute, by.moves_burst),
            _slower(self.namespace, by.namespace_moves_per_minute, by.namespace_moves_burst),
            _slower(self.cluster, by.cluster_moves_per_minute, by.cluster_moves_burst),
            max(self.dwell, by.dwell_seconds or 0),
            max(self.cooldown, by.cooldown_seconds or 0),
            max(self.oscillation, by.oscillation_seconds or 0),
            _least(self.stale, by.stale_seconds),
            min(self.shrink, self.shrink if by.shrink_share is None else by.shrink_share),
            min(self.mass_share, self.mass_share if by.mass_share is None else by.mass_share),
            min(self.mass_floor, self.mass_floor if by.mass_floor is None else by.mass_floor),
        )


def limits_of(guard: Settings) -> Limits:
    """Return the limits that the configuration section `remediate.guard` gives."""
    return Limits(
        _rate(guard.moves_per_minute, guard.moves_burst),
        _rate(guard.namespace_moves_per_minute, guard.namespace_moves_burst),
        _rate(guard.cluster_moves_per_minute, guard.cluster_moves_burst),
        guard.dwell_seconds,
        guard.cooldown_seconds,
        guard.oscillation_seconds,
        guard.stale_seconds or None,
        guard.shrink_share,
        guard.mass_share,
        guard.mass_floor,
    )


def parse_tightening(document: object) -> Tightening:
    """Parse the document `data.kube_sync_budget`, decoded from JSON.

    Raises Undecided: an invalid limit does not count as no limit.
    """
    with json_errors_as(Undecided, "data.kube_sync_budget"):
        return msgspec.convert(document, Tightening)


def stricter(one: object, other: object) -> object:
    """Return a document that is at least as strict as both, None if there is neither.

    Raises Undecided if one is invalid.
    """
    if one is None or other is None or one == other:
        return one if other is None else other
    both = parse_tightening(one).stricter(parse_tightening(other))
    named: dict[str, Any] = both.named()
    return named | ({"not_before": dict(both.not_before)} if both.not_before else {})


def _rate(per_minute: float, burst: int) -> Rate | None:
    return Rate(per_minute, burst) if per_minute else None


def _slower(rate: Rate | None, per_minute: float | None, burst: int | None) -> Rate | None:
    if rate is None:
        return None if per_minute is None else Rate(per_minute, burst or 1)
    return Rate(
        min(rate.per_minute, per_minute or rate.per_minute), min(rate.burst, burst or rate.burst)
    )


def _least(one: float | None, other: float | None) -> float | None:
    return min((value for value in (one, other) if value is not None), default=None)
