"""Rotates a value that others hold copies of: announce, use, and only then forget.

Invariant: the value in use was announced at least one overlap ago, so that all servers
accept it by then, and the value before it is accepted for as long after. A failed or
late run lengthens a step and shortens none. Pure.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Pace:
    """How long a value is used, and how long two are valid at once, in seconds."""

    lifetime: float
    overlap: float


@dataclass(frozen=True, slots=True)
class Rotating(Generic[T]):
    """A value, its successor or predecessor, and the time of the last change."""

    current: T
    since: float  # Unix seconds
    following: T | None = None
    previous: T | None = None

    @property
    def good(self) -> tuple[T, ...]:
        """Return all accepted values, the one in use first."""
        others = (self.following, self.previous)
        return (self.current, *(value for value in others if value is not None))


def rotated(held: Rotating[T], pace: Pace, now: float, make: Callable[[], T]) -> Rotating[T]:
    """Return the value after its next step, or unchanged if nothing is due."""
    age = now - held.since
    if held.following is not None:
        return Rotating(held.following, now, previous=held.current) if age >= pace.overlap else held
    if held.previous is not None and age >= pace.overlap:
        return Rotating(held.current, held.since)
    if age >= pace.lifetime:
        return Rotating(held.current, now, following=make(), previous=held.previous)
    return held
