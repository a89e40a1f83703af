"""Bookkeeping inside OPA: the list of collections below one root, and the last applied batch.

Invariant: a collection is listed before its data is written, and removed from the list with it. So
the next load finds what an earlier configuration left behind without reading the data; the names of
another root are not touched. The list is at `/kube_sync/collections/<root>`, one key for each name.

No batch is applied twice: `/kube_sync/fence/<instance>` has one key, the number of the last batch.
Every batch removes its predecessor's number and adds its own. So in whatever order PATCHes arrive,
only the next one is accepted: a late one finds its predecessor gone and is rejected whole (404). If
an answer is lost, the number shows whether the batch was applied.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from kube_sync.errors import decoded
from kube_sync.opa.client import OpaClient
from kube_sync.opa.paths import DataPath, add_operation, remove_operation

HOLDINGS: DataPath = ("kube_sync", "collections")
FENCE: DataPath = ("kube_sync", "fence")


class RootIndex:
    """The list of the collections below one root."""

    def __init__(self, opa: OpaClient, root: str, names: Iterable[str]) -> None:
        """`names` are the collections that are about to be loaded."""
        self._opa = opa
        self._root = root
        self._names = frozenset(names)
        self.stale: tuple[str, ...] = ()  # left by an earlier configuration

    async def open(self) -> None:
        """Find stale collections, and list those to come. Raises SyncError."""
        listed = _names(await self._opa.get_data((*HOLDINGS, self._root)))
        self.stale = tuple(sorted(listed - self._names))
        document = msgspec.json.encode(dict.fromkeys(sorted(listed | self._names), True))
        await self._opa.put_data((*HOLDINGS, self._root), document)

    def path(self, name: str) -> DataPath:
        """Return the path of a collection's data."""
        return (self._root, name)

    def enter(self, name: str) -> bytes:
        """Return the PATCH operation that lists a name; it is idempotent."""
        return add_operation((*HOLDINGS, self._root, name), b"true")

    def strike(self, name: str) -> list[bytes]:
        """Return the PATCH operations that remove a collection and its name."""
        return [
            remove_operation(self.path(name)),
            remove_operation((*HOLDINGS, self._root, name)),
        ]


class Fence:
    """The number of the last batch that OPA is known to have applied."""

    def __init__(self, opa: OpaClient, instance: str) -> None:
        self._opa = opa
        self._path = (*FENCE, instance)
        self._instance = instance
        self._last = 0

    @property
    def next(self) -> int:
        """The number of the next batch."""
        return self._last + 1

    def raised(self) -> bytes:
        """Return the operation that starts the count, and removes the counts of other epochs."""
        value = {self._instance: {self._name(0): True}}
        return add_operation(FENCE, msgspec.json.encode(value))

    def step(self) -> tuple[bytes, bytes]:
        """Return the operations that let OPA accept the next batch exactly once."""
        return (
            remove_operation((*self._path, self._name(0))),
            add_operation((*self._path, self._name(1)), b"true"),
        )

    def passed(self) -> None:
        """Record that the next batch has been applied."""
        self._last += 1

    async def is_applied(self) -> bool:
        """Ask OPA whether it has applied the next batch already. Raises SyncError."""
        document = await self._opa.get_data(self._path)
        found = decoded(document or b"{}", dict[str, bool], "what answers is not OPA")
        return found == {self._name(1): True}

    def _name(self, ahead: int) -> str:
        return str(self._last + ahead)


def _names(document: bytes | None) -> frozenset[str]:
    try:
        return frozenset(msgspec.json.decode(document or b"{}", type=dict[str, Any]))
    except msgspec.ValidationError:
        return frozenset()  # written by somebody else: it lists nothing of ours
