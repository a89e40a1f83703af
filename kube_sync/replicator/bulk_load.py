"""The JSON document of a whole collection, sent to OPA while its pages still arrive.

A LIST comes in the order of its keys, so the objects of a namespace come together and the document
can be written without holding it. Keeps true: what comes out of order is not written twice into
one document (the second would win, and lose the rest of its namespace) but handed back, to be
sent afterwards; memory is a few pages, since whoever adds waits for whoever reads.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import deque
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass

import msgspec

from kube_sync.objects import ObjectKey

_PAGES_AHEAD = 2
EVERYWHERE = ""  # the scope of a LIST that knows no namespaces

Digests = dict[ObjectKey, bytes]


def digest(body: bytes) -> bytes:
    """Return 16 bytes that stand for a body."""
    return hashlib.blake2b(body, digest_size=16).digest()


class Abandoned(Exception):
    """The LIST broke off: the document will never be whole."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """One object on its way into the document."""

    key: ObjectKey
    version: str
    body: bytes


class FirstLoad:
    """One document: `add` pages, then `finish` or `abandon`; somebody else reads `chunks`."""

    def __init__(self, digests: Digests | None = None) -> None:
        """Give `digests` of what the document holds where they are wanted."""
        self.versions: dict[ObjectKey, str] = {}  # what the document holds
        self.digests = digests
        self.bytes = 0  # of the objects in it
        self.abandoned = False
        self._finished = False
        self._chunks: deque[bytes] = deque([b"{"])
        self._news = asyncio.Event()
        self._read = asyncio.Event()
        self._open = ""  # the namespace that is being written, "" for none
        self._closed: set[str] = set()
        self._separator = b""

    async def add(self, objects: Iterable[Loaded]) -> list[Loaded]:
        """Write a page; returns what came out of order. Waits while the reader is behind."""
        late = self.put(objects)
        while len(self._chunks) > _PAGES_AHEAD:
            self._read.clear()
            await self._read.wait()
        return late

    def put(self, objects: Iterable[Loaded]) -> list[Loaded]:
        """Write what is held in memory anyway; returns what came out of order."""
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
            self.versions[found.key] = found.version
            if self.digests is not None:
                self.digests[found.key] = digest(found.body)
            self.bytes += len(found.body)
        self._put(b"".join(parts))
        return late

    def finish(self) -> None:
        """Say that the document is whole."""
        self._finished = True
        self._put(self._close() + b"}")

    def abandon(self) -> None:
        """Say that the document will never be whole; its reader raises Abandoned."""
        self.abandoned = True
        self._news.set()

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
            self._news.clear()
            await self._news.wait()

    def _turn_to(self, namespace: str) -> bytes:
        """End the namespace that is open and begin another one, "" for none."""
        end = self._close()
        separator = b"," if self.versions else b""
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
        self._news.set()


class Scopes:
    """The namespaces of a collection that are listed one by one: which are due, and lack the kind.

    The first document is whole once no scope is awaited any more.
    """

    def __init__(self, scopes: Iterable[str]) -> None:
        self.awaited = set(scopes)  # not listed yet
        self._together = len(self.awaited) > 1
        self._missing: set[str] = set()  # where the last LIST did not find the kind

    @property
    def missing(self) -> bool:
        """Whether the last LIST of any of them did not find the kind."""
        return bool(self._missing)

    def awaits(self, scope: str) -> bool:
        """Tell whether the first LIST of a scope is not in yet."""
        return bool(self.awaited) if scope == EVERYWHERE else scope in self.awaited

    def gathers(self, scope: str) -> bool:
        """Tell whether the first LIST of `scope` is wanted whole: others share its document."""
        return self._together and scope in self.awaited

    def abandons(self, scope: str) -> bool:
        """Tell whether the document is lost with the first LIST of `scope`."""
        return self.awaits(scope) and not self.gathers(scope)

    def listed(self, scope: str, *, known: bool) -> None:
        """Take note of a LIST, which found the kind or not."""
        if scope == EVERYWHERE:
            self.awaited.clear()
            self._missing.clear()
        self.awaited.discard(scope)
        self._missing.discard(scope)
        if not known:
            self._missing.add(scope)

    def await_instead(self, scopes: Iterable[str]) -> None:
        """Await these in place of what is awaited."""
        self.awaited = set(scopes)
        self._together = len(self.awaited) > 1

    def lose(self, scopes: Iterable[str]) -> None:
        """Take note that the kind is to be found in these from now on, and is in none yet."""
        self._missing = set(scopes)
        self._together = len(self._missing) > 1
