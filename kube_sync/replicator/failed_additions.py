"""The objects that were not healthy where a move added them, as the remediator records on them.

Level-based: what counts is the record on the object (`guard.additions`), so neither process has to
tell the other, and a restart loses nothing. A failure stays counted until the record is another
one, also when its object is deleted.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

from kube_sync.errors import NO_JSON
from kube_sync.guard import ADDITION, read_addition
from kube_sync.kube.collection import Item
from kube_sync.kube.meta import object_meta
from kube_sync.objects import ObjectKey
from kube_sync.opa.sides import Side

_MARK: Final = ADDITION.encode()


class FailedAdditions:
    """The policies that decided on failed additions, by object."""

    def __init__(self, changed: Callable[[], None]) -> None:
        """Call `changed` when the failures differ."""
        self._changed = changed
        self._policies: dict[tuple[str, ObjectKey], str] = {}

    def note(self, collection: str, item: Item) -> None:
        """Read the record on an object of a collection."""
        known = (collection, item.key)
        if _MARK not in item.body and known not in self._policies:  # fast path: almost all
            return
        before, now = self._policies.pop(known, None), _failed_by(item)
        if now is not None:
            self._policies[known] = now
        if before != now:
            self._changed()

    def count(self, policy: str, side: Side) -> int:
        """Return how many objects of a side failed as decided by the policies of this digest."""
        return sum(found == policy and side.has(key) for (_, key), found in self._policies.items())


def _failed_by(item: Item) -> str | None:
    """Return the digest of the policies that decided on a failed addition, None if it is none."""
    try:
        annotations = object_meta(item.body).annotations or {}
    except NO_JSON:
        return None
    record = read_addition(annotations, math.inf)
    return None if record is None or record.step == "added" else record.policy
