"""List and watch a custom resource that need not be installed.

Invariant: a kind that is confirmed to be missing is an empty collection and no error; discovery is
polled until it is served. An unconfirmed 404 raises, so that the cache keeps its objects
(`availability.py` distinguishes the two).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Final

from kube_sync.errors import Expired, NotFound, Refused, Retriable
from kube_sync.kube.client import KubeClient
from kube_sync.kube.collection import Event, KubeCollection, Page, ResourceVersion
from kube_sync.kube.discovery import is_served
from kube_sync.objects import GroupVersionResource
from kube_sync.runtime.backoff import Sleep

_ABSENT: Final = ResourceVersion("")  # the resourceVersion of a collection that is not served
_CHECK_SECONDS: Final = 5.0


class MaybeServed:
    """All objects of one custom resource in one namespace, none if it is not installed."""

    def __init__(
        self,
        client: KubeClient,
        gvr: GroupVersionResource,
        namespace: str,
        *,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self._client = client
        self._gvr = gvr
        self._source = KubeCollection(client, gvr, namespace=namespace)
        self._sleep = sleep

    async def list(self) -> AsyncGenerator[Page]:
        """Yield the collection page by page. Raises SyncError."""
        begun = False
        try:
            async with aclosing(self._source.list()) as pages:
                async for page in pages:
                    begun = True
                    yield page
        except (NotFound, Refused) as error:
            if begun:  # objects of the first pages may be gone with the kind
                msg = f"{self._gvr}: the LIST broke off: {error}"
                raise Retriable(msg) from error
            if isinstance(error, Refused) and not await self._source.availability.is_gone():
                raise
            yield Page([], _ABSENT)

    async def watch(self, since: ResourceVersion) -> AsyncGenerator[Event]:
        """Yield changes after `since`. Raises SyncError; Expired if the kind came or went."""
        if since == _ABSENT:
            while not await is_served(self._client, self._gvr):
                yield Event("CONNECTED", since)  # the empty collection is current
                await self._sleep(_CHECK_SECONDS)
            msg = f"{self._gvr} is served now"
            raise Expired(msg)
        try:
            async with aclosing(self._source.watch(since)) as events:
                async for event in events:
                    yield event
        except NotFound as error:
            msg = f"{self._gvr} is not served any more"
            raise Expired(msg) from error
