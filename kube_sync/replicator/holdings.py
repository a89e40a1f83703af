"""Which collections OPA holds below one root, written down in OPA itself.

Keeps true: a collection is entered before its data comes and struck out with it, so whatever an
earlier configuration left behind is found at the next load without reading the data; the names of
another root are not touched. The list is at `/kube_sync/collections/<root>`, a name to each key.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

import msgspec

from kube_sync.opa import paths
from kube_sync.opa.paths import DataPath

HOLDINGS: DataPath = ("kube_sync", "collections")


class ListApi(Protocol):
    """The part of OPA that a list needs."""

    async def get_data(self, path: DataPath) -> bytes | None:
        """Return the document at `path`, None where there is none."""
        ...

    async def put_data(self, path: DataPath, document: bytes) -> None:
        """Replace everything at `path`."""
        ...


class Holdings:
    """The list of one root."""

    def __init__(self, opa: ListApi, root: str, names: Iterable[str]) -> None:
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
        return _operation("add", (*HOLDINGS, self._root, name), value=True)

    def strike(self, name: str) -> list[bytes]:
        """Return the PATCH operations that remove a collection and its name."""
        return [
            _operation("remove", self.path(name)),
            _operation("remove", (*HOLDINGS, self._root, name)),
        ]


def _operation(kind: str, path: DataPath, **value: Any) -> bytes:  # noqa: ANN401 - JSON
    return msgspec.json.encode({"op": kind, "path": paths.pointer(path), **value})


def _names(document: bytes | None) -> frozenset[str]:
    try:
        return frozenset(msgspec.json.decode(document or b"{}", type=dict[str, Any]))
    except msgspec.ValidationError:
        return frozenset()  # somebody else's idea of it: nothing of ours is named there
