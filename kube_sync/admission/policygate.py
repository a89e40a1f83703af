"""Does a policy exist? If one may, whatever cannot be decided is denied.

Known from a watch, not asked for with each request. Until the first LIST is in, and again once
the watch has been lost for a while, the answer is yes: a door that nobody guards stays shut.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from kube_sync.kube.policymaps import PolicyMaps

_BOUND_SECONDS = 30.0


class PolicyGate:
    """Whether any of the policy namespaces holds a policy ConfigMap, or may."""

    def __init__(
        self,
        maps: Sequence[PolicyMaps],
        *,
        static: bool,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Count a policy that OPA was started with (`static`) as one that always exists."""
        self._maps = maps
        self._static = static
        self._clock = clock
        # By Store: one namespace may be in two of them, and each has a watch of its own.
        self._lost_at: dict[PolicyMaps, float] = {}

    def lost(self, maps: PolicyMaps) -> None:
        """Say that a Store's collection cannot be watched now."""
        self._lost_at.setdefault(maps, self._clock())

    def found(self, maps: PolicyMaps) -> None:
        """Say that a Store's collection is watched (again)."""
        self._lost_at.pop(maps, None)

    def modules(self) -> dict[str, str]:
        """Return the policy modules in those ConfigMaps: source by `<namespace>/<name>/<key>`."""
        return {i: source for maps in self._maps for m in maps for i, source in m.modules.items()}

    @property
    def policy_may_exist(self) -> bool:
        """True unless it is known that there is none."""
        return (
            self._static
            or any(len(found) or not found.listed for found in self._maps)
            or any(self._clock() - since > _BOUND_SECONDS for since in self._lost_at.values())
        )
