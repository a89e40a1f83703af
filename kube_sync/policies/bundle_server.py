"""Serves the policy bundle that OPA fetches by long polling: `GET /v1/bundles/policies`.

Invariant: OPA gets a bundle only once its data is loaded. A request without an entity tag comes
from an OPA without a bundle, so OPA has just started; it is answered after a check that OPA's data
is the present epoch's, which makes it the earliest sign of a restart. A request with the bundle's
entity tag shows that OPA has activated it. A request without it, after the bundle was sent, shows
that OPA did not activate it; the bundle is then sent again with growing back-off.

OPA accepts no data during an activation. So after one that took more than three seconds the next
bundle is delayed: under constant policy changes only the newest of several is sent, and data writes
get their share.
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
from kube_sync.policies.bundle import RESOURCE, Bundle, Stands
from kube_sync.runtime.backoff import Backoff

log: structlog.stdlib.BoundLogger = structlog.get_logger()

_CONTENT_TYPE = "application/vnd.openpolicyagent.bundles"  # another type ends the long polling
# The minimum wait applies even without a `wait` preference, since checking OPA's data takes time.
_SHORTEST_WAIT, _LONGEST_WAIT = 5.0, 300.0
_SOON = 3.0  # seconds; a longer activation delays the next bundle
_SHARE = 3  # the delay, as a multiple of the time beyond that
_LONGEST_REST = 10.0  # seconds: an author waits for the edit

Refused = Callable[[str], None]


class BundleServer:
    """Serves the bundle in force: the reconciler publishes it, and OPA fetches it."""

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
        self._sending: tuple[str, float] | None = None  # the revision on its way, and since when
        self._rests_until = 0.0
        self._bundle: Bundle | None = None
        self._stands: Stands = _nothing_stands
        self._refused: Refused = _nobody
        self._news = asyncio.Event()
        self._activated = False
        self._sent: Counter[str | None] = Counter()  # by the entity tag in the request
        self.wake: Callable[[], None] = lambda: None  # called when OPA has activated the bundle

    def withhold(self) -> None:
        """Serve no bundle: OPA's data is being loaded."""
        self._stands, self._refused = _nothing_stands, _nobody
        self._set(None)

    def publish(self, bundle: Bundle, stands: Stands, refused: Refused) -> bool:
        """Serve `bundle`; return whether OPA has activated it already.

        `refused` is called with the reason whenever OPA does not activate it.
        """
        self._stands, self._refused = stands, refused
        if bundle != self._bundle:
            self._set(bundle)
        return self._activated

    def routes(self) -> list[web.RouteDef]:
        """Return the HTTP routes."""
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
        """Wait for a bundle with another entity tag."""
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
                await self._news.wait()  # the next epoch begins with `withhold`
                return False
        elif (rest := self._rests_until - self._clock()) > 0:
            await self._pause(rest)
        return True

    def _rest(self, etag: str | None) -> None:
        """Delay the next bundle if this entity tag shows that OPA has activated the last one."""
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
    """Return how long the answer may be delayed (RFC 7240, section 4.3), in seconds."""
    found = re.search(r"\bwait=(\d{1,6})", request.headers.get("Prefer", ""))
    wanted = float(found[1]) if found else 0.0
    return min(max(wanted, _SHORTEST_WAIT), _LONGEST_WAIT)


def _is_gone(request: web.Request) -> bool:
    return request.transport is None or request.transport.is_closing()


async def _nothing_stands() -> None:
    """Do nothing: no bundle was published yet."""


def _nobody(_reason: str) -> None:
    """Do nothing: no bundle was published yet."""
