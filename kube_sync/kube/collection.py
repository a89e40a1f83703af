"""One collection of the API server: LIST in pages, WATCH line by line.

Keeps true: an object's JSON passes through as bytes, with `apiVersion` and `kind` put into it
where a LIST of a built-in kind leaves them out; a torn last line is never an event; an object
whose metadata cannot be read is left out, with a log line, and delays no other. It does not decide
when to list or to watch: the Reflector does.
"""

from __future__ import annotations

import asyncio
import random
import sys
import time
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import NewType

import aiohttp
import msgspec
import structlog

from kube_sync.errors import Retriable
from kube_sync.kube.client import KubeClient, Status, failure
from kube_sync.objects import GroupVersionResource, ObjectKey

log: structlog.stdlib.BoundLogger = structlog.get_logger()

ResourceVersion = NewType("ResourceVersion", str)

_PAGE = "500"
_WATCH_SECONDS = 300  # asked of the server, jittered up to twice as long, as client-go does
_SILENCE_MARGIN = 30.0  # seconds that the client waits longer than the server promised
_LIST_METADATA = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
_WATCH_METADATA = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"


@dataclass(frozen=True, slots=True)
class Item:
    """One object as the API server holds it."""

    key: ObjectKey
    uid: str
    version: ResourceVersion
    body: bytes  # JSON


@dataclass(frozen=True, slots=True)
class Page:
    """Part of a collection; every page of one LIST has the same resourceVersion."""

    items: list[Item]
    version: ResourceVersion


@dataclass(frozen=True, slots=True)
class Event:
    """One change: ADDED, MODIFIED or DELETED; BOOKMARK and CONNECTED have no item.

    CONNECTED is ours: the server has accepted the watch, so what we hold is current.
    """

    type: str
    version: ResourceVersion
    item: Item | None = None
    arrived: float = field(default=0.0, compare=False)  # its bytes, on the monotonic clock


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


class _WatchEvent(msgspec.Struct):
    type: str
    object: msgspec.Raw


_objects = msgspec.json.Decoder(_Object)
_pages = msgspec.json.Decoder(_Page)
_events = msgspec.json.Decoder(_WatchEvent)


class KubeCollection:
    """All objects of one resource, in one namespace or in all, that the selectors let through."""

    def __init__(
        self,
        client: KubeClient,
        gvr: GroupVersionResource,
        *,
        namespace: str | None = None,
        metadata_only: bool = False,
        label_selector: str | None = None,
        field_selector: str | None = None,
        jitter: Callable[[], float] = random.random,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._path = gvr.path(namespace)
        self._metadata_only = metadata_only
        selectors = {"labelSelector": label_selector, "fieldSelector": field_selector}
        self._selectors = {name: text for name, text in selectors.items() if text}
        self._jitter = jitter
        self._clock = clock

    async def list(self) -> AsyncGenerator[Page]:
        """Yield the collection page by page. Raises SyncError; Expired when a page is too old.

        While one page is worked on the next one is on its way.
        """
        request = self._request_page("")
        try:
            while True:
                page = _decode_page(await request)
                following = page.metadata.continue_
                if following:
                    request = self._request_page(following)
                prefix = _type_prefix(page)
                read = (self._readable(raw, prefix) for raw in page.items or ())
                items = [item for item in read if item is not None]
                yield Page(items, ResourceVersion(page.metadata.resourceVersion))
                if not following:
                    return
        finally:
            request.cancel()

    def _request_page(self, following: str) -> asyncio.Task[bytes]:
        params = {"limit": _PAGE, **self._selectors}
        if following:
            params["continue"] = following
        accept = _LIST_METADATA if self._metadata_only else "application/json"
        # A task of its own, ended by `list`: a TaskGroup cannot stay open across a yield.
        return asyncio.create_task(
            self._client.request("GET", self._path, params=params, accept=accept)
        )

    async def watch(self, since: ResourceVersion) -> AsyncGenerator[Event]:
        """Yield what changes after `since`, until the server ends it. Raises SyncError."""
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
            self._path, params=params, accept=accept, silence=seconds + _SILENCE_MARGIN
        ) as content:
            yield Event("CONNECTED", since)
            async with aclosing(_lines(content, self._clock)) as lines:
                async for line, arrived in lines:
                    event = _event(line)
                    if (item := self._readable(event.object)) is not None:
                        bookmark = event.type == "BOOKMARK"
                        held = None if bookmark else item
                        yield Event(event.type, item.version, held, arrived)

    def _readable(self, raw: msgspec.Raw, prefix: bytes = b"") -> Item | None:
        try:
            return _item(raw, prefix)
        except msgspec.DecodeError as error:
            log.warning("object_left_out", path=self._path, error=str(error))
            return None


def outside_of(namespaces: Iterable[str], field_selector: str | None = None) -> str | None:
    """Return a field selector that leaves these namespaces out too, None where it selects all."""
    parts = [field_selector] if field_selector else []
    return ",".join([*parts, *(f"metadata.namespace!={name}" for name in namespaces)]) or None


def _decode_page(body: bytes) -> _Page:
    try:
        return _pages.decode(body)
    except (msgspec.DecodeError, RecursionError) as error:
        msg = f"a LIST answer is not a list: {error}"
        raise Retriable(msg) from error


def _type_prefix(page: _Page) -> bytes:
    kind = page.kind.removesuffix("List")
    named = msgspec.json.encode({"apiVersion": page.apiVersion, "kind": kind})
    return named[:-1] + b","


def _item(raw: msgspec.Raw, prefix: bytes) -> Item:
    decoded = _objects.decode(raw)
    body = bytes(raw)
    if prefix and not decoded.kind:
        body = prefix + body[1:]
    metadata = decoded.metadata
    return Item(
        # One string for each namespace, not one for each object in it.
        ObjectKey(sys.intern(metadata.namespace), metadata.name),
        metadata.uid,
        ResourceVersion(metadata.resourceVersion),
        body,
    )


def _event(line: bytes) -> _WatchEvent:
    """Read one line of a WATCH. Raises SyncError, as an ERROR event says."""
    try:
        event = _events.decode(line)
        if event.type == "ERROR":
            status = msgspec.json.decode(event.object, type=Status)
            raise failure(status.code, bytes(event.object))
    except (msgspec.DecodeError, RecursionError) as error:
        msg = f"a WATCH line is not an event: {error}"
        raise Retriable(msg) from error
    return event


async def _lines(
    content: aiohttp.StreamReader, clock: Callable[[], float]
) -> AsyncGenerator[tuple[bytes, float]]:
    """Split a stream into lines of any length, each with the time at which it was whole.

    What follows the last newline is torn, not data.
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
