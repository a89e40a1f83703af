"""Tracks whether a policy may exist; if so, undecidable reviews are denied.

Known from a watch, not requested for each review. Until the first LIST is complete, and again once
the watch has been lost for a while, the answer is yes (fail closed).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Protocol

from kube_sync.kube.placementpolicies import PlacementPolicies
from kube_sync.kube.policymaps import PolicyMaps
from kube_sync.kube.staging import CANARY

_BOUND_SECONDS = 30.0


class Policy(Protocol):
    """A policy object."""

    @property
    def modules(self) -> Mapping[str, str]:
        """Its own modules, source by id; none if its rules are built in."""


class Policies(Protocol):
    """A Store of policies."""

    def __iter__(self) -> Iterator[Policy]: ...

    @property
    def listed(self) -> bool:
        """Whether it has completed a LIST."""


class PolicyGate:
    """Whether any of these stores holds a policy, or may."""

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
        """Record that a Store's collection cannot be watched now."""
        self._lost_at.setdefault(maps, self._clock())

    def found(self, maps: Policies) -> None:
        """Record that a Store's collection is watched (again)."""
        self._lost_at.pop(maps, None)

    def modules(self) -> dict[str, str]:
        """Return the modules of all policies: source by `<namespace>/<policy>/<key>`."""
        return {i: source for maps in self._maps for m in maps for i, source in m.modules.items()}

    @property
    def policy_may_exist(self) -> bool:
        """True unless it is known that there is none."""
        # Up to the first policy only, since this is asked for each review.
        return self._static or any(True for found in self._maps for _ in found) or self.is_blind

    @property
    def is_blind(self) -> bool:
        """Whether there may be unknown policies: a store is not listed yet, or lost for a while."""
        return any(not found.listed for found in self._maps) or any(
            self._clock() - since > _BOUND_SECONDS for since in self._lost_at.values()
        )


def canary_may_exist(policies: Iterable[PolicyMaps | PlacementPolicies]) -> bool:
    """Return whether a canary may decide on some of the objects."""
    return any(policy.stage == CANARY for found in policies for policy in found.staged)
