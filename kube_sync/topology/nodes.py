"""The nodes of a topology, and how kinds of objects become nodes.

Invariant: an object is one node, and each of its sections is one more, named after it. A Kind is
all that a new kind of object needs: its group and kind, its role, and its sections. Locators are
unique, and do not depend on the version of an API. A section has the locator of its object and its
own name after a `#`, so that a reference to {kind: Gateway, name: gw, sectionName: http} is
converted to the locator of a listener without a lookup.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple, NewType

from kube_sync.errors import Terminal
from kube_sync.topology.raw_json import Malformed, text

Locator = NewType("Locator", str)  # as `gateway.gateway.networking.k8s.io:ns/gw#http`


class GroupKind(NamedTuple):
    """A kind of an API group; "" is the core group."""

    group: str
    kind: str

    def __str__(self) -> str:
        """`Gateway.gateway.networking.k8s.io`, or the bare kind of the core group."""
        return f"{self.kind}.{self.group}" if self.group else self.kind


NAMESPACE = GroupKind("", "Namespace")


def locator(kind: GroupKind, namespace: str, name: str, section: str = "") -> Locator:
    """Return the locator of a node; namespace is "" if cluster-scoped."""
    inside = f"{namespace}/{name}" if namespace else name
    return Locator(f"{str(kind).lower()}:{inside}" + (f"#{section}" if section else ""))


Body = Mapping[str, Any]


class Role(StrEnum):
    """What a node is for: to be targeted, to target, or to be there."""

    TARGETABLE = "targetable"
    POLICY = "policy"
    OBJECT = "object"


@dataclass(frozen=True, slots=True, eq=False)
class Node:
    """An object or a section of one; `body` is that object or section, as JSON."""

    locator: Locator
    kind: GroupKind
    namespace: str  # "" if cluster-scoped
    name: str  # of a section: `object#section`
    role: Role
    body: Body
    owner: Locator | None = None  # of a section: the object

    @property
    def full_name(self) -> str:
        """`namespace/name`, or the bare name if cluster-scoped."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


@dataclass(frozen=True, slots=True)
class Sections:
    """Parts of an object that are targetable by themselves, such as the listeners of a gateway."""

    kind: GroupKind
    read: Callable[[Body], Iterable[tuple[str, Body]]]  # from the object: names and bodies


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of objects that a topology has nodes for."""

    id: GroupKind
    role: Role = Role.TARGETABLE
    namespaced: bool = True
    sections: Sections | None = None
    # Keys under which `View.indexed` finds its objects, beside their names (client-go, IndexFunc).
    # It may raise Malformed: such an object has no keys.
    index: Callable[[Node], Iterable[Hashable]] | None = None


def kind_of(body: Body) -> GroupKind:
    """Return the kind of an object. Raises Malformed."""
    group, slash, _ = text(body, "apiVersion").partition("/")
    return GroupKind(group if slash else "", text(body, "kind"))


def node_of(kind: Kind, body: Body) -> Node:
    """Return the node of an object. Raises Terminal if it has no name."""
    try:
        namespace = text(body, "metadata", "namespace") if kind.namespaced else ""
        name = text(body, "metadata", "name")
    except Malformed as error:
        msg = f"{kind.id}: {error}"
        raise Terminal(msg) from error
    if not name:
        msg = f"{kind.id}: metadata.name: an object needs a name"
        raise Terminal(msg)
    return Node(locator(kind.id, namespace, name), kind.id, namespace, name, kind.role, body)


def sections_of(kind: Kind, node: Node) -> Iterator[Node]:
    """Yield the sections of an object. Raises Malformed."""
    if kind.sections is None:
        return
    for name, body in kind.sections.read(node.body):
        where = Locator(f"{node.locator}#{name}")
        full = f"{node.name}#{name}"
        yield Node(where, kind.sections.kind, node.namespace, full, kind.role, body, node.locator)
