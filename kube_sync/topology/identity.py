"""Identity of a node: its group and kind, and its locator, the key of a node everywhere.

Invariant: locators are unique, and do not depend on the version of an API. A section has the
locator of its object and its own name after a `#`, so that a reference to {kind: Gateway, name: gw,
sectionName: http} is converted to the locator of a listener without a lookup.
"""

from __future__ import annotations

from typing import NamedTuple, NewType

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
