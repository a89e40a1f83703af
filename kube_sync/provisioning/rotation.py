"""How a value is replaced that others hold copies of: announced, used, and only then forgotten.

Keeps true: what is in use now was announced at least one overlap ago, so that whoever has to accept
it has heard of it, and what was in use before is accepted for as long again. A run that fails or
comes late lengthens a step and shortens none. Pure.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Pace:
    """How long a value is used, and how long two are good at once, in seconds."""

    lifetime: float
    overlap: float


@dataclass(frozen=True, slots=True)
class Rotating(Generic[T]):
    """A value, the one that comes after it or went before it, and when that was last changed."""

    current: T
    since: float  # Unix seconds
    following: T | None = None
    previous: T | None = None

    @property
    def good(self) -> tuple[T, ...]:
        """Return all that are accepted, the one in use first."""
        others = (self.following, self.previous)
        return (self.current, *(value for value in others if value is not None))


def turned(held: Rotating[T], pace: Pace, now: float, make: Callable[[], T]) -> Rotating[T]:
    """Return the value one step further, or as it is where nothing is due."""
    age = now - held.since
    if held.following is not None:
        return Rotating(held.following, now, previous=held.current) if age >= pace.overlap else held
    if held.previous is not None and age >= pace.overlap:
        return Rotating(held.current, held.since)
    if age >= pace.lifetime:
        return Rotating(held.current, now, following=make(), previous=held.previous)
    return held
