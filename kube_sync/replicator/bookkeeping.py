"""What OPA itself keeps of the writes: the collections below one root, and the last batch.

Keeps true: a collection is entered before its data comes and struck out with it, so whatever an
earlier configuration left behind is found at the next load without reading the data; the names of
another root are not touched. The list is at `/kube_sync/collections/<root>`, a name to each key.

No batch is ever applied twice: `/kube_sync/fence/<instance>` holds one key, the number of the last
one. Every batch takes its predecessor's number away and puts its own there, so in whatever order
PATCHes arrive, only the next one is taken: one that is late finds its predecessor gone and is
refused whole (404). After an answer that never came the number tells whether the batch is in.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from kube_sync.errors import NO_JSON, Retriable
from kube_sync.opa.client import OpaClient
from kube_sync.opa.paths import DataPath, add_operation, remove_operation

HOLDINGS: DataPath = ("kube_sync", "collections")
FENCE: DataPath = ("kube_sync", "fence")


class RootIndex:
    """The list of one root."""

    def __init__(self, opa: OpaClient, root: str, names: Iterable[str]) -> None:
        """`names` are the collections that are about to be loaded."""
        self._opa = opa
        self._root = root
        self._names = frozenset(names)
        self.stale: tuple[str, ...] = ()  # left by an earlier configuration

    async def open(self) -> None:
        """Find out what is stale, and enter what is coming. Raises SyncError."""
        listed = _names(await self._opa.get_data((*HOLDINGS, self._root)))
        self.stale = tuple(sorted(listed - self._names))
        document = msgspec.json.encode(dict.fromkeys(sorted(listed | self._names), True))
        await self._opa.put_data((*HOLDINGS, self._root), document)

    def path(self, name: str) -> DataPath:
        """Return where a collection's data lies."""
        return (self._root, name)

    def enter(self, name: str) -> bytes:
        """Return the PATCH operation that adds a name; adding it again changes nothing."""
        return add_operation((*HOLDINGS, self._root, name), b"true")

    def strike(self, name: str) -> list[bytes]:
        """Return the PATCH operations that remove a collection and its name."""
        return [
            remove_operation(self.path(name)),
            remove_operation((*HOLDINGS, self._root, name)),
        ]


class Fence:
    """The number of the last batch that OPA is known to have taken."""

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
        """Return the operation that begins to count, and forgets what other epochs counted."""
        value = {self._instance: {self._name(0): True}}
        return add_operation(FENCE, msgspec.json.encode(value))

    def step(self) -> tuple[bytes, bytes]:
        """Return the operations that let the next batch through, once."""
        return (
            remove_operation((*self._path, self._name(0))),
            add_operation((*self._path, self._name(1)), b"true"),
        )

    def passed(self) -> None:
        """Note that the next batch is in."""
        self._last += 1

    async def let_through(self) -> bool:
        """Ask OPA whether it has taken the next batch already. Raises SyncError."""
        document = await self._opa.get_data(self._path)
        try:
            found = msgspec.json.decode(document or b"{}", type=dict[str, bool])
        except NO_JSON as error:
            msg = f"what answers is not OPA: {error}"
            raise Retriable(msg) from error
        return found == {self._name(1): True}

    def _name(self, ahead: int) -> str:
        return str(self._last + ahead)


def _names(document: bytes | None) -> frozenset[str]:
    try:
        return frozenset(msgspec.json.decode(document or b"{}", type=dict[str, Any]))
    except msgspec.ValidationError:
        return frozenset()  # somebody else's idea of it: nothing of ours is named there
