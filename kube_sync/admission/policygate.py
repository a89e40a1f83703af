"""Does a policy exist? If one may, whatever cannot be decided is denied.

Known from a watch, not asked for with each request. Until the first LIST is in, and again once
the watch has been lost for a while, the answer is yes: a door that nobody guards stays shut.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Protocol

from kube_sync.kube.staging import CANARY

_BOUND_SECONDS = 30.0


class Policy(Protocol):
    """What may decide."""

    @property
    def modules(self) -> Mapping[str, str]:
        """Its own modules, source by id; none where its rules are built in."""
        ...


class Policies(Protocol):
    """A Store of policies."""

    def __iter__(self) -> Iterator[Policy]: ...

    def __len__(self) -> int: ...

    @property
    def listed(self) -> bool:
        """Whether it holds all that there are."""
        ...


class Staged(Protocol):
    """A policy that is staged."""

    @property
    def stage(self) -> str:
        """How far it has come."""
        ...


class Staging(Protocol):
    """Policies, of which some are staged."""

    @property
    def staged(self) -> Iterator[Staged]:
        """Those that are."""
        ...


class PolicyGate:
    """Whether any of these places holds a policy, or may."""

    def __init__(
        self,
        maps: Sequence[Policies],
        *,
        static: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Count a policy that OPA was started with (`static`) as one that always exists."""
        self._maps = maps
        self._static = static
        self._clock = clock
        # By Store: one namespace may be in two of them, and each has a watch of its own.
        self._lost_at: dict[Policies, float] = {}

    def lost(self, maps: Policies) -> None:
        """Say that a Store's collection cannot be watched now."""
        self._lost_at.setdefault(maps, self._clock())

    def found(self, maps: Policies) -> None:
        """Say that a Store's collection is watched (again)."""
        self._lost_at.pop(maps, None)

    def modules(self) -> dict[str, str]:
        """Return their modules: source by `<namespace>/<policy>/<key>`."""
        return {i: source for maps in self._maps for m in maps for i, source in m.modules.items()}

    @property
    def policy_may_exist(self) -> bool:
        """True unless it is known that there is none."""
        return self._static or any(len(found) for found in self._maps) or self.is_blind

    @property
    def is_blind(self) -> bool:
        """Whether there may be policies that are not seen: not listed yet, or lost for a while."""
        return any(not found.listed for found in self._maps) or any(
            self._clock() - since > _BOUND_SECONDS for since in self._lost_at.values()
        )


def canary_may_exist(policies: Iterable[Staging]) -> bool:
    """Tell whether one may decide on some of the objects."""
    return any(policy.stage == CANARY for found in policies for policy in found.staged)
