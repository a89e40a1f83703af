"""One collection of the API server: paginated LIST, and WATCH line by line.

Invariant: an object's JSON passes through as bytes, with `apiVersion` and `kind` added where a LIST
of a built-in kind omits them. A truncated last line is never an event. An object whose metadata
cannot be read, or that is nested too deeply to be parsed, is left out, logged and counted, and
delays no other; if only its managedFields are nested so deeply, only they are left out. When to
list and when to watch is the Reflector's decision.
"""

from __future__ import annotations

import asyncio
import random
import sys
import time
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from typing import NewType

import aiohttp
import msgspec
import structlog

from kube_sync.errors import NO_JSON, NotFound, Retriable
from kube_sync.kube.availability import Availability
from kube_sync.kube.client import KubeClient, Silent, Status, failure
from kube_sync.kube.nesting import is_cut, is_deep, shallow, unmanaged
from kube_sync.objects import GroupVersionResource, ObjectKey
from kube_sync.observability import metrics

log: structlog.stdlib.BoundLogger = structlog.get_logger()

ResourceVersion = NewType("ResourceVersion", str)

_PAGE = "500"
_AHEAD_BYTES = 16 << 20
_WATCH_SECONDS = 300  # requested timeout, jittered up to twice as long, as client-go does
# The server sends a bookmark about once a minute (Kubernetes, "API Concepts", "Watch bookmarks"); a
# connection that died without a word sends none.
_SILENCE_SECONDS = 90.0
_NO_VERSION = ("", "0")  # resourceVersions that no LIST has: etcd's begin with 1
_LIST_METADATA = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
_WATCH_METADATA = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"


@dataclass(frozen=True, slots=True)
class Item:
    """One object as the API server stores it."""

    key: ObjectKey
    uid: str
    version: ResourceVersion
    body: bytes  # JSON
    whole: bool = True  # False: it is nested too deeply, and `body` has only its metadata


@dataclass(frozen=True, slots=True)
class Page:
    """One page of a LIST; all pages of one LIST have the same resourceVersion."""

    items: list[Item]
    version: ResourceVersion


@dataclass(frozen=True, slots=True)
class Event:
    """One watch event: ADDED, MODIFIED or DELETED; BOOKMARK and CONNECTED have no item.

    CONNECTED is added here: the server has accepted the watch, so the cache is current.
    """

    type: str
    version: ResourceVersion
    item: Item | None = None
    arrived: float = field(default=0.0, compare=False)  # of its bytes, monotonic clock


# Not kube.meta: decoded for every object of a collection, where each field costs.
class _Metadata(msgspec.Struct):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resourceVersion: str = ""  # noqa: N815 - as on the wire


class _Object(msgspec.Struct):
    metadata: _Metadata
    kind: str = ""


class _ListMetadata(msgspec.Struct):
    resourceVersion: str = ""  # noqa: N815 - as on the wire
    continue_: str = msgspec.field(name="continue", default="")


class _Page(msgspec.Struct):
    metadata: _ListMetadata
    items: list[msgspec.Raw] | None
    apiVersion: str = ""  # noqa: N815 - as on the wire
    kind: str = ""
    cut: bool = msgspec.field(default=False, name="kube-sync cut")  # ours: no API has it


class _WatchEvent(msgspec.Struct):
    type: str
    object: msgspec.Raw
    cut: bool = msgspec.field(default=False, name="kube-sync cut")


class _ReadAhead:
    """Prefetches the pages of a LIST while the consumer processes earlier ones."""

    def __init__(self, request: Callable[[str], Awaitable[bytes]], limit: int) -> None:
        """`request` fetches the page of a continue token; `limit` bounds the prefetched bytes."""
        self._request = request
        self._limit = limit
        self._pages: deque[tuple[_Page, int]] = deque()
        self._ended = False
        self._bytes = 0
        self._changed = asyncio.Event()
        self._room = asyncio.Event()

    async def run(self) -> None:
        """Request page after page; raises the first error, after the pages before it."""
        try:
            following: str | None = ""
            while following is not None:
                body = await self._request(following)
                page = _decode_page(body)
                self._pages.append((page, len(body)))
                self._bytes += len(body)
                self._changed.set()
                following = page.metadata.continue_ or None
                while self._bytes >= self._limit:
                    self._room.clear()
                    await self._room.wait()
        finally:
            self._ended = True
            self._changed.set()

    async def next(self) -> _Page | None:
        """Return the next page, None after the last one that arrived."""
        while not self._pages:
            if self._ended:
                return None
            self._changed.clear()
            await self._changed.wait()
        page, size = self._pages.popleft()
        self._bytes -= size
        self._room.set()
        return page


_objects = msgspec.json.Decoder(_Object)
_pages = msgspec.json.Decoder(_Page)
_events = msgspec.json.Decoder(_WatchEvent)


class KubeCollection:
    """All objects of one resource that match the selectors, in one namespace or in all."""

    def __init__(
        self,
        client: KubeClient,
        gvr: GroupVersionResource,
        *,
        namespace: str | None = None,
        metadata_only: bool = False,
        label_selector: str | None = None,
        field_selector: str | None = None,
        deep: bool = False,
        ahead: int = _AHEAD_BYTES,
        jitter: Callable[[], float] = random.random,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`ahead` is how many bytes of pages may be prefetched, not counting the last page.

        `deep`: objects that are nested too deeply are yielded too, with `whole` false.
        """
        self._client = client
        self._resource = str(gvr)
        self._deep = deep
        self._path = gvr.path(namespace)
        self._metadata_only = metadata_only
        selectors = {"labelSelector": label_selector, "fieldSelector": field_selector}
        self._selectors = {name: text for name, text in selectors.items() if text}
        self._ahead = ahead
        self._jitter = jitter
        self._clock = clock
        self.availability = Availability(client, gvr, clock)

    async def list(self) -> AsyncGenerator[Page]:
        """Yield the collection page by page. Raises SyncError; Expired for a stale continue token.

        Raises NotFound only if the kind is confirmed to be gone. While the consumer processes a
        page the next ones are prefetched, up to the limit in bytes.
        """
        ahead = _ReadAhead(self._request_page, self._ahead)
        # Its own task, ended here: a TaskGroup cannot stay open across a yield.
        reading = asyncio.create_task(ahead.run())
        try:
            while (page := await ahead.next()) is not None:
                prefix = _type_prefix(page)
                read = (self._readable(raw, prefix, cut=page.cut) for raw in page.items or ())
                items = [item for item in read if item is not None]
                self.availability.seen()
                yield Page(items, ResourceVersion(page.metadata.resourceVersion))
        finally:
            reading.cancel()
            await asyncio.wait([reading])
            failed = None if reading.cancelled() else reading.exception()
        if isinstance(failed, NotFound):
            await self.availability.confirm(failed)
        if failed is not None:
            raise failed

    async def _request_page(self, following: str) -> bytes:
        params = {"limit": _PAGE, **self._selectors}
        if following:
            params["continue"] = following
        accept = _LIST_METADATA if self._metadata_only else "application/json"
        return await self._client.request("GET", self._path, params=params, accept=accept)

    async def watch(self, since: ResourceVersion) -> AsyncGenerator[Event]:
        """Yield the changes after `since` until the server ends the watch. Raises SyncError.

        Raises NotFound only if the kind is confirmed to be gone. A watch without events and without
        bookmarks ends too: to restart it costs one request, and shows whether the server is
        reachable.
        """
        try:
            with suppress(Silent):
                async with aclosing(self._watch(since)) as events:
                    async for event in events:
                        yield event
        except NotFound as error:
            await self.availability.confirm(error)
            raise

    async def _watch(self, since: ResourceVersion) -> AsyncGenerator[Event]:
        seconds = int(_WATCH_SECONDS * (1 + self._jitter()))
        params = {
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": since,
            "timeoutSeconds": str(seconds),
            **self._selectors,
        }
        accept = _WATCH_METADATA if self._metadata_only else "application/json"
        async with self._client.stream(
            self._path, params=params, accept=accept, silence=_SILENCE_SECONDS
        ) as content:
            self.availability.seen()
            yield Event("CONNECTED", since)
            async with aclosing(_lines(content, self._clock)) as lines:
                async for line, arrived in lines:
                    event = _event(line)
                    raw, gone = event.object, event.type == "DELETED"
                    if (item := self._readable(raw, cut=event.cut, gone=gone)) is not None:
                        bookmark = event.type == "BOOKMARK"
                        found = None if bookmark else item
                        yield Event(event.type, item.version, found, arrived)

    def _readable(
        self, raw: msgspec.Raw, prefix: bytes = b"", *, cut: bool, gone: bool = False
    ) -> Item | None:
        """Parse an object; `cut`: part of its page was cut; `gone`: its metadata is enough."""
        try:
            if not (cut and is_cut(bytes(raw))) and not is_deep(bytes(raw)):
                return _item(raw, prefix)
            if (found := unmanaged(bytes(raw))) is not None:
                return _item(msgspec.Raw(found), prefix)
        except (msgspec.DecodeError, UnicodeError) as error:
            self._left_out("malformed", error=str(error))
            return None
        return self._nested(raw, gone=gone)

    def _nested(self, raw: msgspec.Raw, *, gone: bool) -> Item | None:
        try:
            item = _stub(shallow(bytes(raw)))
        except NO_JSON as error:
            self._left_out("malformed", error=str(error))
            return None
        if not gone:
            self._left_out("nested", key=str(item.key))
        return item if self._deep or gone else None

    def _left_out(self, reason: str, **more: str) -> None:
        metrics.objects_left_out.labels(self._resource, reason).inc()
        log.warning("object_left_out", path=self._path, reason=reason, **more)


def outside_of(namespaces: Iterable[str], field_selector: str | None = None) -> str | None:
    """Return a field selector that also excludes these namespaces, None if it selects all."""
    parts = [field_selector] if field_selector else []
    return ",".join([*parts, *(f"metadata.namespace!={name}" for name in namespaces)]) or None


def _decode_page(body: bytes) -> _Page:
    try:
        with suppress(RecursionError):
            return _whole_page(_pages.decode(body))
        page = _whole_page(_pages.decode(shallow(body)))
        page.cut = True
    except NO_JSON as error:
        msg = f"a LIST answer is not a list: {error}"
        raise Retriable(msg) from error
    return page


def _whole_page(page: _Page) -> _Page:
    """Return a page if an API server made it. Raises Retriable.

    A watch cache that is not filled yet returns an empty list with resourceVersion 0. An answer
    that is no list must not count as an empty list.
    """
    if not page.kind.endswith("List") or page.metadata.resourceVersion in _NO_VERSION:
        details = f"kind {page.kind!r:.80}, resourceVersion {page.metadata.resourceVersion!r:.80}"
        msg = f"a LIST answer is not a list of now: {details}"
        raise Retriable(msg)
    return page


def _type_prefix(page: _Page) -> bytes:
    kind = page.kind.removesuffix("List")
    named = msgspec.json.encode({"apiVersion": page.apiVersion, "kind": kind})
    return named[:-1] + b","


def _item(raw: msgspec.Raw, prefix: bytes) -> Item:
    decoded = _objects.decode(raw)
    body = bytes(raw)
    body.decode()  # check all of it, or a later reader of another part fails
    if prefix and not decoded.kind:
        body = prefix + body[1:]
    metadata = decoded.metadata
    return Item(
        # Interned: one string for each namespace, not one for each object in it.
        ObjectKey(sys.intern(metadata.namespace), metadata.name),
        metadata.uid,
        ResourceVersion(metadata.resourceVersion),
        body,
    )


def _stub(raw: bytes) -> Item:
    """Return an object reduced to its metadata."""
    metadata = _objects.decode(raw).metadata
    key = ObjectKey(sys.intern(metadata.namespace), metadata.name)
    body = msgspec.json.encode({"metadata": metadata})
    version = ResourceVersion(metadata.resourceVersion)
    return Item(key, metadata.uid, version, body, whole=False)


def _event(line: bytes) -> _WatchEvent:
    """Decode one line of a WATCH. Raises SyncError; for an ERROR event the one of its Status."""
    try:
        event = _watched(line)
        if event.type == "ERROR":
            status = msgspec.json.decode(event.object, type=Status)
            raise failure(status.code, bytes(event.object))
    except NO_JSON as error:
        msg = f"a WATCH line is not an event: {error}"
        raise Retriable(msg) from error
    return event


def _watched(line: bytes) -> _WatchEvent:
    try:
        return _events.decode(line)
    except RecursionError:
        event = _events.decode(shallow(line))
        event.cut = True
        return event


async def _lines(
    content: aiohttp.StreamReader, clock: Callable[[], float]
) -> AsyncGenerator[tuple[bytes, float]]:
    """Split a stream into lines of any length, each with the time at which it was complete.

    What follows the last newline is truncated and is discarded.
    """
    parts: list[bytes] = []
    async for chunk in content.iter_any():
        now = clock()
        head, *rest = chunk.split(b"\n")
        parts.append(head)
        for line in rest:
            whole = b"".join(parts)
            parts = [line]
            if whole:
                yield whole, now
