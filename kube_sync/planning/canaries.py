"""The canary that is in effect, as its ConfigMap says: on which objects it decides, and by what.

Keeps true: one is in effect here where a replicator that starts would decide by it, from what its
status says of this very text; one that is being counted, was halted or was edited since is not.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kube_sync.kube.collection import Item
from kube_sync.kube.policymaps import PolicyMap
from kube_sync.kube.policynames import called
from kube_sync.objects import ObjectKey
from kube_sync.opa import sides
from kube_sync.opa.sides import Side
from kube_sync.planning.candidates import Candidates
from kube_sync.planning.snapshot import staged_of
from kube_sync.replicator.policies.canary import CanaryKeeper
from kube_sync.settings import Policies


@dataclass(frozen=True, slots=True)
class InEffect:
    """A canary that decides on the objects of its side."""

    policy: PolicyMap
    side: Side

    @property
    def place(self) -> ObjectKey:
        """What it stands for."""
        return self.policy.stands_for or self.policy.key

    @property
    def candidates(self) -> Candidates:
        """It as what is tried in its place; its modules keep the ids that their author knows."""
        return Candidates([(called(self.policy.key), self.place, self.policy.modules)])

    def __str__(self) -> str:
        return f"{called(self.policy.key)}, a canary of {sides.told(self.side)}"


async def in_effect(configmaps: Iterable[Item], policies: Policies) -> InEffect | None:
    """Return the canary that decides, None where none does. Raises Retriable."""
    keeper = CanaryKeeper()
    keeper.look(await staged_of(configmaps, policies))
    if not isinstance(keeper.policy, PolicyMap) or keeper.effect is None:
        return None
    return InEffect(keeper.policy, keeper.effect)


def counted(canary: InEffect, keys: Iterable[ObjectKey]) -> str:
    """Return what a plan has to say of a canary, which knows only what is in force."""
    on = sum(map(canary.side.has, keys))
    what = f"{canary}, decides on {on} of these workloads"
    return f"{what}: they are counted by what is in force, before and after"
