"""One load of OPA, as far as policies are concerned: what there is, and who is told what."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from kube_sync.kube.placementpolicies import PlacementPolicies
from kube_sync.kube.policymaps import PolicyMaps
from kube_sync.kube.staging import CANARY, CANDIDATE
from kube_sync.objects import ObjectKey
from kube_sync.opa.analysis.reads import Reads
from kube_sync.opa.paths import DataPath
from kube_sync.policies.bundle_server import Stands
from kube_sync.policies.guard import Guard
from kube_sync.policies.placementpolicy_status import Policy
from kube_sync.policies.required_fields import Need
from kube_sync.policies.staging.canaries import StagedDecisions
from kube_sync.policies.trial_run import TakeSample

# Told the digest of the modules in force, how many they are, and what the decision reads.
Changed = Callable[[str, int, Reads], None]


class Data(Protocol):
    """What policies stand on: some of it may hold no more than they read."""

    @property
    def narrowed(self) -> bool:
        """Whether any of it holds only what is read."""
        ...

    def begin(self, needs: Iterable[Need | None]) -> None:
        """Load what these sets of policies need; None: what nobody knows."""
        ...

    def hold(self, needs: Iterable[Need | None]) -> bool:
        """Hold what these need beside what was needed before; returns whether OPA does.

        If not, the loader is woken when it does.
        """
        ...

    def settle(self, need: Need | None) -> None:
        """Hold only this: it is in force, and nothing else may be."""
        ...

    def withheld(self, reads: Reads) -> Mapping[str, Sequence[str]]:
        """Return what is read that the configuration keeps out, by module."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Epoch:
    """One load of OPA, as far as policies are concerned."""

    maps: Sequence[PolicyMaps]
    loaded: asyncio.Event  # the data is there
    applied: asyncio.Event  # set when the policies are, for the first time
    changing: Callable[[], None]  # OPA may hold another set from now on
    changed: Changed  # always told after that
    renamed: Changed  # told, without either, of another set that decides all alike
    stands: Stands
    places: Callable[[], Sequence[DataPath]]  # where data lies beside that of the guard
    staging: StagedDecisions
    data: Data  # what policies stand on
    objects: Sequence[PlacementPolicies] = ()
    sample: TakeSample | None = None  # of what OPA holds, to try policies on

    @property
    def policies(self) -> dict[ObjectKey, Policy]:
        """The policies as they are now, of either kind."""
        found: dict[ObjectKey, Policy] = {p.key: p for maps in self.maps for p in maps}
        return found | {p.key: p for objects in self.objects for p in objects}

    @property
    def listed(self) -> bool:
        """Whether these are all that there are."""
        return all(found.listed for found in self._stores)

    @property
    def namespaces(self) -> list[str]:
        """Where they are."""
        return [found.namespace for found in self._stores]

    @property
    def _stores(self) -> Sequence[PolicyMaps | PlacementPolicies]:
        return [*self.maps, *self.objects]

    @property
    def candidates(self) -> list[Policy]:
        """Those that are only compiled."""
        return [policy for found in self._stores for policy in found.candidates]

    @property
    def staged(self) -> list[Policy]:
        """Those that are not meant to decide yet, but for candidates."""
        maps = [policy for found in self.maps for policy in found.staged]
        objects = [policy for found in self.objects for policy in found.staged]
        return [*maps, *(policy for policy in objects if policy.stage != CANDIDATE)]

    @property
    def beside(self) -> list[Policy]:
        """Those that are staged beside what is in force, canaries being no part of that."""
        return [policy for policy in self.staged if policy.stage != CANARY]

    def guard(self, guard: Guard) -> Guard:
        """Return a guard of the places of all data there is."""
        return replace(guard, data=[*guard.data, *self.places()])
