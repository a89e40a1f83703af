"""What is said of an object: conditions, as GEP-713 and the Gateway API name them."""

from __future__ import annotations

from typing import NamedTuple

from kube_sync.topology.identity import Locator

ACCEPTED, PROGRAMMED, RESOLVED = "Accepted", "Programmed", "ResolvedRefs"


class Condition(NamedTuple):
    """One condition of a node; statuses are those of Kubernetes: True, False, Unknown."""

    locator: Locator
    type: str
    status: str
    reason: str
    message: str
