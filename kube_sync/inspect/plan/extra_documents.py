"""What ConfigMaps say beside policies: JSON data, the last good version of each policy, a canary.

Keeps true: it is what the replicator would make of them if it began now. What only a running one
knows, the last good value of a key that is no JSON now, is left out and noted; so is a canary that
is being counted, was halted or was edited since. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import msgspec

from kube_sync.config import Policies, Settings
from kube_sync.inspect.plan.candidates import Candidates
from kube_sync.inspect.plan.snapshot import data_of, staged_of
from kube_sync.kube.collection import Item
from kube_sync.kube.configmaps import ConfigMap
from kube_sync.kube.policymaps import PolicyMap
from kube_sync.kube.policynames import called
from kube_sync.objects import ObjectKey
from kube_sync.opa import sides
from kube_sync.opa.paths import DataPath
from kube_sync.opa.sides import Side
from kube_sync.policies.choice import Versions
from kube_sync.policies.last_good import NAME, UNREADABLE, unpacked
from kube_sync.policies.staging.canary import CanaryKeeper
from kube_sync.replicator.datamaps import RESERVED, why_no_json


@dataclass(frozen=True, slots=True)
class Beside:
    """Documents by the namespace and name that they lie at below `data`."""

    documents: Mapping[ObjectKey, bytes] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def places(self) -> list[DataPath]:
        """Where they lie, which no policy may take."""
        return [(key.namespace, key.name) for key in self.documents]


async def beside(configmaps: Iterable[Item], settings: Settings) -> Beside:
    """Return what lies beside the objects, as JSON. Raises Retriable."""
    found = await data_of(configmaps, settings.policies)
    reserved = {*RESERVED, settings.replicate.root}
    documents, notes = dict[ObjectKey, bytes](), list[str]()
    for key, one in sorted(found.items()):
        if key.namespace in reserved:
            notes.append(f"data ConfigMap {key} is left out: data.{key.namespace} is reserved")
            continue
        wrong = {name: why for name, text in one.data.items() if (why := why_no_json(text))}
        notes += [f"data ConfigMap {key}: {name} is left out: {w}" for name, w in wrong.items()]
        if len(wrong) < len(one.data):
            documents[key] = _document(one, wrong)
    return Beside(documents, tuple(notes))


def last_good(configmaps: Iterable[Item], settings: Settings) -> Versions:
    """Return the last good versions on record, none where that cannot be read."""
    where = record_of(settings)
    try:
        return next((unpacked(item.body) for item in configmaps if item.key == where), {})
    except UNREADABLE:
        return {}


def record_of(settings: Settings) -> ObjectKey:
    """Return where the replicator keeps that record."""
    return ObjectKey(settings.coordination.namespace, NAME)


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


def _document(found: ConfigMap, without: Iterable[str]) -> bytes:
    values = {name: text for name, text in found.data.items() if name not in without}
    return msgspec.json.encode({name: msgspec.Raw(text.encode()) for name, text in values.items()})
