"""What the policy reconciler needs to know of one load of OPA: its inputs and its callbacks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from kube_sync.kube.placementpolicies import PlacementPolicies
from kube_sync.kube.policymaps import PolicyMaps
from kube_sync.kube.staging import CANARY, CANDIDATE
from kube_sync.objects import ObjectKey
from kube_sync.opa.analysis.result import Reads
from kube_sync.opa.paths import DataPath
from kube_sync.policies.bundle import Stands
from kube_sync.policies.guard import Guard
from kube_sync.policies.placementpolicy_status import Policy
from kube_sync.policies.required_fields import Need
from kube_sync.policies.staging.canaries import StagedDecisions
from kube_sync.policies.trial_run import TakeSample

# Receives the digest of the modules in force, their number, and what the decision reads.
Changed = Callable[[str, int, Reads], None]


class Data(Protocol):
    """The replicated data that policies read; part of it may hold only the fields they read."""

    @property
    def narrowed(self) -> bool:
        """Whether any of it holds only the fields that are read."""

    def begin(self, needs: Iterable[Need | None]) -> None:
        """Load what these sets of policies need; None: their need is unknown.

        The first is the set that will be in force.
        """

    def hold(self, needs: Iterable[Need | None]) -> bool:
        """Hold also what these need; return whether OPA does already.

        If not, the reconciler is woken when it does.
        """

    def settle(self, need: Need | None) -> None:
        """Hold only this need: its set is in force, and no other may be."""

    def withheld(self, reads: Reads) -> Mapping[str, Sequence[str]]:
        """Return the fields that are read and excluded by the configuration, by module."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Epoch:
    """One load of OPA, as the policy reconciler sees it."""

    maps: Sequence[PolicyMaps]
    loaded: asyncio.Event  # set when the data is loaded
    applied: asyncio.Event  # set when the policies are in force for the first time
    changing: Callable[[], None]  # OPA may hold another set from now on
    changed: Changed  # always called after `changing`
    renamed: Changed  # called alone, if another set decides the same
    stands: Stands
    places: Callable[[], Sequence[DataPath]]  # paths of data besides the guard's
    staging: StagedDecisions
    data: Data  # the replicated data
    objects: Sequence[PlacementPolicies] = ()
    sample: TakeSample | None = None  # of OPA's data, to try policies on

    @property
    def policies(self) -> dict[ObjectKey, Policy]:
        """The current policies of both kinds."""
        found: dict[ObjectKey, Policy] = {p.key: p for maps in self.maps for p in maps}
        return found | {p.key: p for objects in self.objects for p in objects}

    @property
    def listed(self) -> bool:
        """Whether all policies have been listed."""
        return all(found.listed for found in self._stores)

    @property
    def namespaces(self) -> list[str]:
        """The policy namespaces."""
        return [found.namespace for found in self._stores]

    @property
    def _stores(self) -> Sequence[PolicyMaps | PlacementPolicies]:
        return [*self.maps, *self.objects]

    @property
    def candidates(self) -> list[Policy]:
        """The candidates: policies that are only compiled."""
        return [policy for found in self._stores for policy in found.candidates]

    @property
    def staged(self) -> list[Policy]:
        """The staged policies, without candidates."""
        maps = [policy for found in self.maps for policy in found.staged]
        objects = [policy for found in self.objects for policy in found.staged]
        return [*maps, *(policy for policy in objects if policy.stage != CANDIDATE)]

    @property
    def beside(self) -> list[Policy]:
        """The staged policies of lanes that never decide: all but canaries and candidates."""
        return [policy for policy in self.staged if policy.stage != CANARY]

    def guard(self, guard: Guard) -> Guard:
        """Return a guard for the paths of all data."""
        return replace(guard, data=[*guard.data, *self.places()])
