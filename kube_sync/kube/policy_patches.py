"""Read and patch a policy of either kind as `kube-sync stage` does: texts, stage and place.

A policy's texts belong to the Rego version that its object states, in its label or its field.

Invariant: a patch changes only what it is for. The former version of a policy is kept in a
ConfigMap that is no policy, and no two policies of either kind share one. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

import msgspec

from kube_sync.kube.collection import Item
from kube_sync.kube.configmaps import CONFIGMAPS
from kube_sync.kube.meta import ObjectMeta
from kube_sync.kube.placementpolicies import KIND, PLACEMENT_POLICIES, read_policy
from kube_sync.kube.policynames import called, policy_key
from kube_sync.kube.staging import ACTIVE, LABEL, stage_of, stands_for
from kube_sync.objects import GroupVersionResource, ObjectKey
from kube_sync.regoversion import NAME

Json = dict[str, Any]
Texts = Mapping[str, str]

_BEFORE: Final = "-before"  # suffix of the ConfigMap that holds the former version


@dataclass(frozen=True, slots=True)
class Stageable:
    """A policy as it was read."""

    item: Item
    labels: Mapping[str, str]
    stage: str
    texts: dict[str, str]  # by key of a ConfigMap, or by name of a module
    rego_version: str | None = None  # the Rego version that it states for all of them

    @property
    def key(self) -> ObjectKey:
        """The object's key."""
        return self.item.key

    @property
    def place(self) -> ObjectKey:
        """The key of the object that it would replace."""
        return stands_for(self.item)


class Kind(Protocol):
    """The operations on one kind of policy."""

    @property
    def gvr(self) -> GroupVersionResource:
        """The resource of the kind."""

    def called(self, key: ObjectKey) -> str:
        """Return the name of a policy for messages."""

    def argument(self, name: str) -> str:
        """Return the argument of `kube-sync stage` that names a policy."""

    def before(self, key: ObjectKey) -> ObjectKey:
        """Return the key of the ConfigMap that holds a policy's former version."""

    def read(self, item: Item) -> Stageable:
        """Parse a policy. Raises msgspec.ValidationError if it has another shape."""

    def holding(self, found: Stageable, texts: Texts, rego_version: str | None) -> Json:
        """Return the merge patch (RFC 7386) that replaces its texts by exactly these."""

    def at(self, found: Stageable, stage: str) -> Json:
        """Return the merge patch that sets its stage."""

    def made(self, texts: Texts, rego_version: str | None) -> Json:
        """Return a new policy that is in force, with only labels as metadata."""


class _ConfigMap(msgspec.Struct):
    metadata: ObjectMeta
    data: dict[str, str] | None = None


class ConfigMapKind:
    """Policy ConfigMaps: one key for each text, a label for the stage."""

    gvr = CONFIGMAPS

    def called(self, key: ObjectKey) -> str:
        """Return its name: most policies are ConfigMaps."""
        return str(key)

    def argument(self, name: str) -> str:
        """Return its name."""
        return name

    def before(self, key: ObjectKey) -> ObjectKey:
        """Return its name with a suffix."""
        return ObjectKey(key.namespace, key.name + _BEFORE)

    def read(self, item: Item) -> Stageable:
        """Parse a policy. Raises msgspec.ValidationError if it has another shape."""
        found = msgspec.json.decode(item.body, type=_ConfigMap)
        labels = found.metadata.labels or {}
        return Stageable(item, labels, stage_of(labels), found.data or {}, labels.get(NAME))

    def holding(self, found: Stageable, texts: Texts, rego_version: str | None) -> Json:
        """Return the merge patch (RFC 7386) that replaces its texts by exactly these."""
        data = {**dict.fromkeys(found.texts.keys() - texts.keys()), **texts}
        if found.rego_version == rego_version:
            return {"data": data}
        return {"data": data, "metadata": {"labels": {NAME: rego_version}}}

    def at(self, found: Stageable, stage: str) -> Json:  # noqa: ARG002 - the label is all there is
        """Return the merge patch that sets its stage."""
        return {"metadata": {"labels": {LABEL: stage}}}

    def made(self, texts: Texts, rego_version: str | None) -> Json:
        """Return a new policy that is in force, with only labels as metadata."""
        metadata = {"labels": {} if rego_version is None else {NAME: rego_version}}
        return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": dict(texts)}


class _Module(msgspec.Struct):
    name: str
    rego: str


class _Spec(msgspec.Struct, rename="camel"):
    modules: list[_Module]
    rego_version: str | None = None


class _PlacementPolicy(msgspec.Struct):
    metadata: ObjectMeta
    spec: _Spec


class PlacementPolicyKind:
    """PlacementPolicies: one module for each text, a field for the stage."""

    gvr = PLACEMENT_POLICIES

    def called(self, key: ObjectKey) -> str:
        """Return its kind and name."""
        return called(policy_key(key))

    def argument(self, name: str) -> str:
        """Return its kind and name."""
        return f"{KIND.lower()}/{name}"

    def before(self, key: ObjectKey) -> ObjectKey:
        """Return its name with a suffix that no other former version has."""
        return ObjectKey(key.namespace, f"{key.name}{_BEFORE}.{KIND.lower()}")

    def read(self, item: Item) -> Stageable:
        """Parse a policy. Raises msgspec.ValidationError if it has another shape."""
        found = msgspec.json.decode(item.body, type=_PlacementPolicy)
        texts = {module.name: module.rego for module in found.spec.modules}
        labels = found.metadata.labels or {}
        version = found.spec.rego_version or labels.get(NAME)
        return Stageable(item, labels, read_policy(item).stage, texts, version)

    def holding(self, found: Stageable, texts: Texts, rego_version: str | None) -> Json:
        """Return the merge patch (RFC 7386) that replaces its texts by exactly these."""
        spec: Json = {"modules": _modules(texts)}  # a list is replaced whole
        if found.rego_version == rego_version:
            return {"spec": spec}
        label = {"metadata": {"labels": {NAME: None}}} if NAME in found.labels else {}
        return {"spec": {**spec, "regoVersion": rego_version}, **label}

    def at(self, found: Stageable, stage: str) -> Json:
        """Return the merge patch that sets its stage and removes a label that contradicts it."""
        label = {"metadata": {"labels": {LABEL: None}}} if LABEL in found.labels else {}
        return {"spec": {"stage": stage}, **label}

    def made(self, texts: Texts, rego_version: str | None) -> Json:
        """Return a new policy that is in force, with only labels as metadata."""
        version = PLACEMENT_POLICIES.api_version
        spec: Json = {"modules": _modules(texts), "stage": ACTIVE}
        if rego_version is not None:
            spec["regoVersion"] = rego_version
        return {"apiVersion": version, "kind": KIND, "metadata": {"labels": {}}, "spec": spec}


def _modules(texts: Texts) -> list[Json]:
    return [{"name": name, "rego": source} for name, source in texts.items()]
