"""Stream the JSON document of a whole collection to OPA while its LIST pages arrive.

A LIST is ordered by key, so the objects of a namespace come together and the document can be
written without buffering it. Invariant: an object that comes out of order is not written into a
second member of its namespace (it would win, and drop the rest of the namespace). `add` returns it
to be sent afterwards. Memory is a few pages, since the producer waits for the reader.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass

import msgspec

from kube_sync.decisions.classes import Members
from kube_sync.objects import ObjectKey
from kube_sync.replicator.held import Held

_PAGES_AHEAD = 2
# Returns the equal key and uid that are kept elsewhere, or those that it is given.
Known = Callable[[ObjectKey, str], tuple[ObjectKey, str]]
EVERYWHERE = ""  # the scope of a LIST of all namespaces


class Abandoned(Exception):
    """The LIST broke off: the document will never be complete."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """One object to be written into the document."""

    key: ObjectKey
    version: str
    body: bytes
    uid: str = ""


class FirstLoad:
    """One document: a producer calls `add`, then `finish` or `abandon`; a reader reads `chunks`."""

    def __init__(
        self,
        held: Held | None = None,
        members: Members | None = None,
        known: Known = lambda key, uid: (key, uid),
    ) -> None:
        """Record the objects in the document in `held`, and in `members` their classes."""
        self._known = known
        self.held = Held() if held is None else held
        self.members = Members() if members is None else members
        self.bytes = 0  # of the objects in it
        self.abandoned = False
        self._finished = False
        self._chunks: deque[bytes] = deque([b"{"])
        self._changed = asyncio.Event()
        self._read = asyncio.Event()
        self._open = ""  # the namespace being written, "" for none
        self._closed: set[str] = set()
        self._separator = b""

    async def add(self, objects: Iterable[Loaded]) -> list[Loaded]:
        """Write a page; return the objects out of order. Waits while the reader is behind."""
        late = self.put(objects)
        while len(self._chunks) > _PAGES_AHEAD:
            self._read.clear()
            await self._read.wait()
        return late

    def put(self, objects: Iterable[Loaded]) -> list[Loaded]:
        """Write objects without waiting; return those out of order."""
        late: list[Loaded] = []
        parts: list[bytes] = []
        for found in objects:
            if found.key.namespace in self._closed:
                late.append(found)
                continue
            if found.key.namespace != self._open:
                parts.append(self._turn_to(found.key.namespace))
            parts += (self._separator, msgspec.json.encode(found.key.name), b":", found.body)
            self._separator = b","
            key, uid = self._known(found.key, found.uid)
            self.held.put(key, found.version, found.body)
            self.members.note(key, self.members.read(found.body, uid))
            self.bytes += len(found.body)
        self._put(b"".join(parts))
        return late

    def finish(self) -> None:
        """Mark the document as complete."""
        self._finished = True
        self._put(self._close() + b"}")

    def abandon(self) -> None:
        """Mark the document as never to be completed; its reader raises Abandoned."""
        self.abandoned = True
        self._changed.set()

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield the document as it grows. Raises Abandoned."""
        while True:
            while self._chunks and not self.abandoned:
                chunk = self._chunks.popleft()
                self._read.set()
                yield chunk
            if self.abandoned:
                raise Abandoned
            if self._finished:
                return
            self._changed.clear()
            await self._changed.wait()

    def _turn_to(self, namespace: str) -> bytes:
        """Close the open namespace and open another one, "" for none."""
        end = self._close()
        separator = b"," if len(self.held) else b""
        if not namespace:
            self._separator = separator
            return end
        self._open, self._separator = namespace, b""
        return end + separator + msgspec.json.encode(namespace) + b":{"

    def _close(self) -> bytes:
        if not self._open:
            return b""
        self._closed.add(self._open)
        self._open = ""
        return b"}"

    def _put(self, chunk: bytes) -> None:
        if chunk:
            self._chunks.append(chunk)
        self._changed.set()


class Scopes:
    """The namespaces of a collection that are listed separately: those pending or without the kind.

    The first document is complete when no scope is pending any more.
    """

    def __init__(self, scopes: Iterable[str]) -> None:
        self.awaited = set(scopes)  # not listed yet
        self._together = len(self.awaited) > 1
        self._missing: set[str] = set()  # those whose last LIST did not find the kind

    @property
    def missing(self) -> bool:
        """Whether the last LIST of any scope did not find the kind."""
        return bool(self._missing)

    def awaits(self, scope: str) -> bool:
        """Return whether the first LIST of a scope is still pending."""
        return bool(self.awaited) if scope == EVERYWHERE else scope in self.awaited

    def gathers(self, scope: str) -> bool:
        """Return whether the first LIST of `scope` must be buffered: others share its document."""
        return self._together and scope in self.awaited

    def abandons(self, scope: str) -> bool:
        """Return whether the document is lost if the first LIST of `scope` breaks off."""
        return self.awaits(scope) and not self.gathers(scope)

    def listed(self, scope: str, *, known: bool) -> None:
        """Record a LIST, and whether it found the kind."""
        if scope == EVERYWHERE:
            self.awaited.clear()
            self._missing.clear()
        self.awaited.discard(scope)
        self._missing.discard(scope)
        if not known:
            self._missing.add(scope)

    def await_instead(self, scopes: Iterable[str]) -> None:
        """Replace the pending scopes by these."""
        self.awaited = set(scopes)
        self._together = len(self.awaited) > 1

    def lose(self, scopes: Iterable[str]) -> None:
        """Record that the kind now has these scopes, and is missing in all of them so far."""
        self._missing = set(scopes)
        self._together = len(self._missing) > 1
