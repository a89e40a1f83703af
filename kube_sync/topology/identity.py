"""What a node is called: its kind, and the locator that is its key everywhere.

Keeps true: two nodes never share a locator, and a locator does not depend on the version of an
API. A section has the locator of its object and its own name behind a `#`, so that a reference to
{kind: Gateway, name: gw, sectionName: http} is the locator of a listener without looking it up.
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
    """Return where a node is found; namespace is "" for what lies in none."""
    inside = f"{namespace}/{name}" if namespace else name
    return Locator(f"{str(kind).lower()}:{inside}" + (f"#{section}" if section else ""))
