"""Which batch OPA took last, kept in OPA itself, so that no batch is ever applied twice.

`/kube_sync/fence/<instance>` holds one key, the number of the last batch. Every batch takes its
predecessor's number away and puts its own there, so in whatever order PATCHes arrive, only the
next one is taken: one that is late finds its predecessor gone and is refused whole (404). After an
answer that never came the number tells whether the batch is in. It knows nothing of what a batch
holds, and it counts for one epoch.
"""

from __future__ import annotations

from typing import Protocol

import msgspec

from kube_sync.errors import NO_JSON, Retriable
from kube_sync.opa import paths
from kube_sync.opa.paths import DataPath

FENCE: DataPath = ("kube_sync", "fence")


class ReadApi(Protocol):
    """The part of OPA that is read from."""

    async def get_data(self, path: DataPath) -> bytes | None:
        """Return the document at `path`, None where there is none."""
        ...


class Fence:
    """The number of the last batch that OPA is known to have taken."""

    def __init__(self, opa: ReadApi, instance: str) -> None:
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
        return _operation("add", FENCE, value)

    def step(self) -> tuple[bytes, bytes]:
        """Return the operations that let the next batch through, once."""
        return (
            _operation("remove", (*self._path, self._name(0))),
            _operation("add", (*self._path, self._name(1)), value=True),
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


def _operation(kind: str, path: DataPath, value: object = None) -> bytes:
    operation = {"op": kind, "path": paths.pointer(path)}
    return msgspec.json.encode(operation if value is None else operation | {"value": value})
