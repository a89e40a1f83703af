"""What is said of an object: conditions, as GEP-713 and the Gateway API name them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from kube_sync.topology.identity import Locator

ACCEPTED, RESOLVED = "Accepted", "ResolvedRefs"


class Condition(NamedTuple):
    """One condition of a node; statuses are those of Kubernetes: True, False, Unknown."""

    locator: Locator
    type: str
    status: str
    reason: str
    message: str


class Effect(NamedTuple):
    """The condition that says whether a policy is in force, and its reasons where it is."""

    type: str
    whole: str
    partly: str


PROGRAMMED = Effect("Programmed", "Programmed", "PartiallyProgrammed")  # GEP-713
ENFORCED = Effect("Enforced", "Enforced", "Enforced")  # Kuadrant: how far, the message tells
EFFECTS = {effect.type: effect for effect in (PROGRAMMED, ENFORCED)}
_NAMES = 16  # in one message, which people read


def listed(names: Iterable[str], between: str = ", ", most: int = _NAMES) -> str:
    """Return names in order, once each, the first of them where there are many."""
    found = sorted(set(names))
    more = f" and {len(found) - most} more" if len(found) > most else ""
    return between.join(found[:most]) + more
