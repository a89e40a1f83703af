"""Conditions of nodes, with the types of GEP-713 and the Gateway API."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from kube_sync.topology.nodes import Locator

ACCEPTED, RESOLVED = "Accepted", "ResolvedRefs"


class Condition(NamedTuple):
    """One condition of a node; statuses are those of Kubernetes: True, False, Unknown."""

    locator: Locator
    type: str
    status: str
    reason: str
    message: str


class Effect(NamedTuple):
    """The condition type that reports whether a policy is in force, and its reasons if it is."""

    type: str
    whole: str
    partly: str


PROGRAMMED = Effect("Programmed", "Programmed", "PartiallyProgrammed")  # GEP-713
ENFORCED = Effect("Enforced", "Enforced", "Enforced")  # Kuadrant: the message has the extent
EFFECTS = {effect.type: effect for effect in (PROGRAMMED, ENFORCED)}
_NAMES = 16  # in one message, which people read


def listed(names: Iterable[str], between: str = ", ", most: int = _NAMES) -> str:
    """Return names sorted and without duplicates, the first of them if there are many."""
    found = sorted(set(names))
    more = f" and {len(found) - most} more" if len(found) > most else ""
    return between.join(found[:most]) + more
