"""How often a policy of the hub is told what its clusters say. Pure.

Each of many clusters answers in its own time, and each answer changes what there is to tell. So the
next telling waits the longer, the more clusters there are: what it costs the hub's API server does
not grow with them. The last answer is always told.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Generic, TypeVar

_K = TypeVar("_K")

_EACH_SECONDS: Final = 0.05  # for every cluster: 5 s of a hundred
_MOST_SECONDS: Final = 10.0


class Pace(Generic[_K]):
    """When each may be told again."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """`clock` is seconds that never go back."""
        self._clock = clock
        self._next: dict[_K, float] = {}

    def wait(self, key: _K) -> float:
        """Return the seconds until it may be told; 0: now."""
        return max(0.0, self._next.get(key, 0.0) - self._clock())

    def told(self, key: _K, clusters: int) -> None:
        """Note that it was told of so many clusters."""
        self._next[key] = self._clock() + min(_MOST_SECONDS, _EACH_SECONDS * clusters)

    def forget(self, key: _K) -> None:
        """Note that there is nothing more to tell."""
        self._next.pop(key, None)
