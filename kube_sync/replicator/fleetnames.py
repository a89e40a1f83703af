"""The names of the clusters as OPA holds them: what decided placements are compared with here.

Their labels are not kept, so cluster selectors are judged by the remediator alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from kube_sync.objects import ObjectKey
from kube_sync.safety import Inventory
from kube_sync.settings import CLUSTERS


class Collection(Protocol):
    """What OPA holds of one collection."""

    name: str
    known: bool

    @property
    def loaded(self) -> bool:
        """Whether OPA was given all of it."""
        ...

    def keys(self) -> Iterable[ObjectKey]:
        """Every object that OPA holds."""
        ...


def fleet_names(collections: Iterable[Collection]) -> Inventory | None:
    """Return the clusters that are replicated, None where there are none, or nobody knows."""
    found = next((one for one in collections if one.name == CLUSTERS), None)
    if found is None or not found.known or not found.loaded:
        return None
    keys = [*found.keys()]
    names = frozenset(key.name for key in keys)
    qualified = frozenset(str(key) for key in keys if key.namespace)
    return Inventory(names, qualified=qualified) if keys else None
