"""Follows the basis of the replicator's decisions, so that answers of OPA can be reused.

Invariant: `confirmed` is the basis that the replicator reported at some moment within the last
`STANDS_SECONDS`. The time counts from when it was asked, so a report that was delayed on its way,
or a process that was suspended, confirms nothing for longer.
"""

from __future__ import annotations

import math
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final, NoReturn
from urllib.parse import urlsplit

import aiohttp
import structlog

from kube_sync.config import Decisions, masked
from kube_sync.decisions.basis import Basis
from kube_sync.decisions.basis_server import PATH
from kube_sync.decisions.classes import Classify
from kube_sync.decisions.classifier import input_classifier
from kube_sync.errors import Refused, Retriable, SyncError, decoded
from kube_sync.runtime.backoff import Backoff
from kube_sync.runtime.clienttls import Tls, client_tls, in_the_clear
from kube_sync.runtime.httperrors import retriable
from kube_sync.runtime.tokenfile import TokenFile

log: structlog.stdlib.BoundLogger = structlog.get_logger()

STANDS_SECONDS: Final = 0.75  # with what the replicator allows, one second in all

_ANSWER_SECONDS = 2.0
_UNKNOWN = Basis("", -1)

Ask = Callable[[Basis], Awaitable[Basis]]  # of the one that is known; raises SyncError


class BasisFollower:
    """The basis of one replicator's decisions, followed by asking again and again."""

    def __init__(
        self,
        ask: Ask,
        *,
        clock: Callable[[], float] = time.monotonic,
        backoff: Backoff | None = None,
    ) -> None:
        """Follow what `ask` returns, at once if it is new, else soon; `clock` is monotonic."""
        self._ask = ask
        self._clock = clock
        self._backoff = backoff or Backoff(longest=1.0)
        self._basis = _UNKNOWN
        self.asked = -math.inf  # when the last report was asked for, on the clock
        self._failing = False
        self.classify: Classify | None = None  # the class of an input by the present basis

    @property
    def confirmed(self) -> Basis | None:
        """The present basis, None while it is not known to be current."""
        late = self._clock() - self.asked > STANDS_SECONDS
        return None if late or not self._basis.current else self._basis

    @property
    def is_shared(self) -> bool:
        """Whether answers may be kept for their class now."""
        return self.classify is not None and self.confirmed is not None

    async def run(self) -> NoReturn:
        """Follow the basis until cancelled."""
        while True:
            asked = self._clock()
            try:
                found = await self._ask(self._basis)
            except SyncError as error:
                self._failed(str(error))
                await self._backoff.wait(getattr(error, "retry_after", None))
            else:
                self._backoff.progressed()
                self._failing = False
                self._take(found, asked)

    def _failed(self, reason: str) -> None:
        if not self._failing:  # reviews go on by asking OPA
            log.warning("basis_unknown", reason=reason)
        self._failing = True

    def _take(self, found: Basis, asked: float) -> None:
        if found.paths != self._basis.paths:
            self.classify = None if found.paths is None else input_classifier(found.paths)
        if found.reason and found.reason != self._basis.reason:
            log.info("classes_unshared", reason=found.reason)
        self._basis, self.asked = found, asked


class BasisRequest:
    """Asks a replicator over HTTP."""

    def __init__(
        self,
        settings: Decisions,
        session: aiohttp.ClientSession,
        tls: Callable[[], Tls] = in_the_clear,
    ) -> None:
        """Ask the server of decisions that `settings` name."""
        self._url = urlsplit(settings.url)._replace(path=PATH, query="").geturl()
        self._where = f"basis of decisions {masked(self._url)}"
        self._token = TokenFile(settings.token_file)
        self._session = session
        self._tls = tls

    async def __call__(self, known: Basis) -> Basis:
        """Return another basis than the known one, or the same after a moment.

        Raises Refused and Retriable.
        """
        status, body = await self._get(known)
        if status in (401, 403):
            msg = f"{self._where}: {status} (is decisions.token_file the right one?)"
            raise Refused(msg)
        if status != 200:  # noqa: PLR2004 - HTTP's own
            msg = f"{self._where}: {status}"
            raise Retriable(msg)
        return decoded(body, Basis, f"{self._where}: the answer is not a basis that is known here")

    async def _get(self, known: Basis) -> tuple[int, bytes]:
        after = {"after": f"{known.instance}:{known.revision}"} if known.instance else {}
        with retriable(self._where):
            async with self._session.get(
                self._url,
                params=after,
                headers=self._token.headers(),
                timeout=aiohttp.ClientTimeout(total=_ANSWER_SECONDS),
                ssl=self._tls(),
                allow_redirects=False,  # the token is for this server alone
            ) as response:
                return response.status, await response.read()


@asynccontextmanager
async def basis_follower(settings: Decisions) -> AsyncGenerator[BasisFollower]:
    """Yield a follower of the configured replicator. Raises Misconfigured."""
    tls = client_tls(settings.url, settings.ca_file)
    async with aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as session:
        yield BasisFollower(BasisRequest(settings, session, tls))
