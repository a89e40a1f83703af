"""Selects the resource to follow for each kind of a topology, and the kinds of policies.

Pure. Invariant: a kind is followed in the preferred version among those served; the configuration
of a kind of policies takes precedence over what its definition declares.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from kube_sync.kube.definitions import Definition
from kube_sync.kube.discovery import Resource, preference
from kube_sync.objects import GroupVersionResource
from kube_sync.topology.gateway.kinds import SERVICE
from kube_sync.topology.hints import LABEL
from kube_sync.topology.nodes import NAMESPACE, GroupKind, Kind
from kube_sync.topology.policies import PolicyKind
from kube_sync.topology.policy_definitions import declared
from kube_sync.topology.raw_json import Malformed

# Kinds that every API server has, without a lookup.
BUILTIN: Final = {
    NAMESPACE: GroupVersionResource("", "v1", "namespaces"),
    SERVICE: GroupVersionResource("", "v1", "services"),
}


@dataclass(frozen=True, slots=True)
class Choice:
    """How a kind is followed."""

    kind: Kind
    gvr: GroupVersionResource
    uid: str = ""  # of its definition: another definition of the same name is another kind


@dataclass(frozen=True, slots=True)
class Chosen:
    """The wanted kinds that exist."""

    choices: Mapping[GroupKind, Choice] = field(default_factory=dict)
    policies: Mapping[GroupKind, PolicyKind] = field(default_factory=dict)
    wrong: Mapping[GroupKind, str] = field(default_factory=dict)  # invalid declarations


class Chooser:
    """The wanted kinds of a topology, and how they are found."""

    def __init__(
        self,
        kinds: Iterable[Kind],
        named: Iterable[PolicyKind] = (),
        builtin: Mapping[GroupKind, GroupVersionResource] = BUILTIN,
    ) -> None:
        """`kinds` are targetables and other objects, `named` the configured kinds of policies."""
        self.kinds = {NAMESPACE: Kind(NAMESPACE, namespaced=False)} | {k.id: k for k in kinds}
        self.named = {kind.id: kind for kind in named if kind.id not in self.kinds}
        self.builtin = {
            id_: Choice(kind, builtin[id_]) for id_, kind in self.kinds.items() if id_ in builtin
        }
        self.looked_for = frozenset({*self.kinds, *self.named})
        self.groups = frozenset(id_.group for id_ in self.looked_for - self.builtin.keys())

    def matters(self, definition: Definition) -> bool:
        """Return whether a definition is of a wanted kind, or of policies."""
        return _kind_of(definition) in self.looked_for or LABEL in definition.labels

    def by_definitions(
        self, definitions: Iterable[Definition], before: Mapping[GroupKind, PolicyKind]
    ) -> Chosen:
        """Choose by definitions; an invalid declaration keeps what was `before`."""
        choices, policies, wrong = dict(self.builtin), dict[GroupKind, PolicyKind](), {}
        for definition in definitions:
            id_, gvr = _kind_of(definition), definition.gvr
            if gvr is None or id_ in choices:
                continue
            kind = self.kinds.get(id_)
            if kind is None:
                policy = self.named.get(id_) or before.get(id_)
                if id_ not in self.named:
                    try:
                        policy = declared(definition.body, self.kinds.values())
                    except Malformed as error:
                        wrong[id_] = str(error)
                if policy is None:
                    continue
                policies[id_] = policy
                kind = replace(policy.node_kind, namespaced=definition.namespaced)
            choices[id_] = Choice(kind, gvr, definition.uid)
        return Chosen(choices, policies, wrong)

    def by_discovery(self, resources: Iterable[Resource]) -> Chosen:
        """Choose by what is served."""
        choices, policies = dict(self.builtin), {}
        for found in sorted(resources, key=lambda found: preference(found.gvr.version)):
            id_ = GroupKind(found.gvr.group, found.kind)
            if id_ not in self.looked_for or id_ in choices or not found.can_be_followed:
                continue
            kind = self.kinds.get(id_)
            if kind is None:
                policies[id_] = self.named[id_]
                kind = replace(self.named[id_].node_kind, namespaced=found.namespaced)
            choices[id_] = Choice(kind, found.gvr)
        return Chosen(choices, policies)


def _kind_of(definition: Definition) -> GroupKind:
    return GroupKind(definition.group, definition.kind)
