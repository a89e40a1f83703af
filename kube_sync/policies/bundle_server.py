"""The bundle that OPA fetches by its own long poll: `GET /v1/bundles/policies`.

Keeps true: OPA gets a set only once its data is there. A request without an entity tag comes from
an OPA that holds no bundle, so it has just started: it is answered after its data was found to be
the present epoch's, which makes it the quickest sign of a restart there is. A request that names a
set says that OPA has activated it; one that does not although the set was sent says that OPA did
not take it, and it is sent again more and more slowly.

OPA takes no data while it activates a set, so an edit waits where the last one took OPA more than
three seconds: where policies change without end, the newest of several goes, and data gets its
share.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections import Counter
from collections.abc import Awaitable, Callable

import structlog
from aiohttp import web

from kube_sync.errors import EpochLost
from kube_sync.policies.bundle import Bundle
from kube_sync.runtime.backoff import Backoff

log: structlog.stdlib.BoundLogger = structlog.get_logger()

RESOURCE = "v1/bundles/policies"  # as OPA's configuration spells it
_CONTENT_TYPE = "application/vnd.openpolicyagent.bundles"  # anything else ends the long polling
# Asked to answer at once, it waits this long all the same: finding out what OPA holds takes a turn.
_SHORTEST_WAIT, _LONGEST_WAIT = 5.0, 300.0
_SOON = 3.0  # seconds that nobody minds
_SHARE = 3  # times as long as OPA took beyond that
_LONGEST_REST = 10.0  # seconds: an edit is waited for

# Returns once OPA was found to hold the present epoch. Raises EpochLost.
Stands = Callable[[], Awaitable[None]]
Refused = Callable[[str], None]


class BundleServer:
    """Holds the bundle in force, between the loader that puts it there and OPA that takes it."""

    def __init__(
        self,
        backoff: Backoff | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._backoff = backoff or Backoff(longest=30.0)
        self._clock = clock
        self._pause = pause
        self._sending: tuple[str, float] | None = None  # to an OPA that had another, and when
        self._rests_until = 0.0
        self._bundle: Bundle | None = None
        self._stands: Stands = _nothing_stands
        self._refused: Refused = _nobody
        self._news = asyncio.Event()
        self._activated = False
        self._sent: Counter[str | None] = Counter()  # by what OPA held when it was sent
        self.wake: Callable[[], None] = lambda: None  # called when OPA has activated it

    def withhold(self) -> None:
        """Give nothing out: OPA's data is being loaded."""
        self._set(None)

    def publish(self, bundle: Bundle, stands: Stands, refused: Refused) -> bool:
        """Give `bundle` out; returns whether OPA has activated it already.

        `refused` is told why whenever OPA does not take it.
        """
        self._stands, self._refused = stands, refused
        if bundle != self._bundle:
            self._set(bundle)
        return self._activated

    def routes(self) -> list[web.RouteDef]:
        """Return the routes to serve it under."""
        return [web.get("/" + RESOURCE, self._get, allow_head=False)]

    async def _get(self, request: web.Request) -> web.StreamResponse:
        etag = request.headers.get("If-None-Match")
        headers = {"Content-Type": _CONTENT_TYPE}
        try:
            async with asyncio.timeout(_wait(request)):
                bundle = await self._other_than(etag, request)
        except TimeoutError:
            return web.Response(status=304, headers=headers | ({"ETag": etag} if etag else {}))
        return web.Response(body=bundle.body, headers=headers | {"ETag": bundle.etag})

    async def _other_than(self, etag: str | None, request: web.Request) -> Bundle:
        """Wait until there is a bundle that OPA does not hold."""
        self._rest(etag)
        while True:
            bundle, news = self._bundle, self._news
            if _is_gone(request):
                raise TimeoutError
            if bundle is None or etag == bundle.etag:
                if bundle is not None:
                    self._activate(bundle)
            elif await self._may_have(etag) and bundle is self._bundle and not _is_gone(request):
                self._sent[etag] += 1
                self._sending = bundle.etag, self._clock()
                return bundle
            else:
                continue
            await news.wait()

    async def _may_have(self, etag: str | None) -> bool:
        if times := self._sent[etag]:
            self._refused(
                "OPA does not activate the policies that it fetched: its log says why"
                f" (sent {times} times)"
            )
            await self._backoff.wait()
        if etag is None:
            try:
                await self._stands()
            except EpochLost:
                await self._news.wait()  # the next epoch begins by withholding
                return False
        elif (rest := self._rests_until - self._clock()) > 0:
            await self._pause(rest)
        return True

    def _rest(self, etag: str | None) -> None:
        """Rest if OPA says by this that it has activated what was sent last."""
        if self._sending is not None and self._sending[0] == etag:
            now = self._clock()
            beyond = max(0.0, now - self._sending[1] - _SOON)
            self._rests_until = now + min(_SHARE * beyond, _LONGEST_REST)
            self._sending = None

    def _activate(self, bundle: Bundle) -> None:
        if not self._activated:
            self._activated = True
            self._backoff.progressed()
            log.info("policies_activated", revision=bundle.revision)
            self.wake()

    def _set(self, bundle: Bundle | None) -> None:
        self._bundle = bundle
        self._activated = False
        self._sent.clear()
        news, self._news = self._news, asyncio.Event()
        news.set()


def _wait(request: web.Request) -> float:
    """How long the answer may be held back (RFC 7240, section 4.3), in seconds."""
    found = re.search(r"\bwait=(\d{1,6})", request.headers.get("Prefer", ""))
    wanted = float(found[1]) if found else 0.0
    return min(max(wanted, _SHORTEST_WAIT), _LONGEST_WAIT)


def _is_gone(request: web.Request) -> bool:
    return request.transport is None or request.transport.is_closing()


async def _nothing_stands() -> None:
    """Serve no epoch: nothing was published yet."""


def _nobody(_reason: str) -> None:
    """Hear no complaint: nothing was published yet."""
