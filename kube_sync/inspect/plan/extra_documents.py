"""Documents from ConfigMaps beside policies: JSON data, last good versions, a canary.

Invariant: they are what a replicator would load at its start. State of a running replicator only,
such as the last good value of a key that is no JSON now, is left out and noted; so is a canary that
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
from kube_sync.policies.last_good import NAME, UNREADABLE, unpacked
from kube_sync.policies.set_compiler import Versions
from kube_sync.policies.staging.canary import CanaryKeeper
from kube_sync.replicator.datamaps import RESERVED, why_no_json


@dataclass(frozen=True, slots=True)
class ExtraDocuments:
    """Documents by the namespace and name of their place below `data`."""

    documents: Mapping[ObjectKey, bytes] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def places(self) -> list[DataPath]:
        """The paths of the documents, which no policy may use."""
        return [(key.namespace, key.name) for key in self.documents]


async def extra_documents(configmaps: Iterable[Item], settings: Settings) -> ExtraDocuments:
    """Return the JSON documents beside the objects. Raises Retriable."""
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
    return ExtraDocuments(documents, tuple(notes))


def last_good(configmaps: Iterable[Item], settings: Settings) -> Versions:
    """Return the recorded last good versions, none if the record cannot be read."""
    where = record_of(settings)
    try:
        return next((unpacked(item.body) for item in configmaps if item.key == where), {})
    except UNREADABLE:
        return {}


def record_of(settings: Settings) -> ObjectKey:
    """Return the key of the replicator's record."""
    return ObjectKey(settings.coordination.namespace, NAME)


@dataclass(frozen=True, slots=True)
class CanaryInEffect:
    """A canary that decides on the objects of its side."""

    policy: PolicyMap
    side: Side

    @property
    def place(self) -> ObjectKey:
        """The policy it stands for."""
        return self.policy.stands_for or self.policy.key

    @property
    def candidates(self) -> Candidates:
        """It as a candidate for that policy; its modules keep the ids that their author knows."""
        return Candidates([(called(self.policy.key), self.place, self.policy.modules)])

    def __str__(self) -> str:
        return f"{called(self.policy.key)}, a canary of {sides.description(self.side)}"


async def in_effect(configmaps: Iterable[Item], policies: Policies) -> CanaryInEffect | None:
    """Return the canary that decides, None if none does. Raises Retriable."""
    keeper = CanaryKeeper()
    keeper.look(await staged_of(configmaps, policies))
    if not isinstance(keeper.policy, PolicyMap) or keeper.effect is None:
        return None
    return CanaryInEffect(keeper.policy, keeper.effect)


def canary_note(canary: CanaryInEffect, keys: Iterable[ObjectKey]) -> str:
    """Return the note on a canary, since a plan evaluates only the policies in force."""
    on = sum(map(canary.side.has, keys))
    what = f"{canary}, decides on {on} of these workloads"
    return f"{what}: they are counted by what is in force, before and after"


def _document(found: ConfigMap, without: Iterable[str]) -> bytes:
    values = {name: text for name, text in found.data.items() if name not in without}
    return msgspec.json.encode({name: msgspec.Raw(text.encode()) for name, text in values.items()})
