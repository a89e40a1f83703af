"""What is said of an object: conditions, as GEP-713 and the Gateway API name them."""

from __future__ import annotations

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
