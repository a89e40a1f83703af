"""Client of the remediator's status on its local port: the changes that it holds.

Invariant: a page waits for it no longer than two seconds, and reports if nobody answers: a
remediator is optional beside the replicator.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

import aiohttp
import msgspec

from kube_sync.config import Remediate, parse_listen
from kube_sync.errors import SyncError
from kube_sync.runtime.tokenfile import TokenFile

_PATH: Final = "/v1/remediation/status"
_SECONDS: Final = 2.0
_FRESH_SECONDS: Final = 1.0
_LONGEST: Final = 16 << 20  # bytes
_ANYWHERE: Final = ("0.0.0.0", "::")  # noqa: S104 - an address to ask at, not to listen on


class RemediatorStatus(msgspec.Struct, frozen=True):
    """The status of the remediator, or why there is none."""

    status: Any = None
    failure: str | None = None


class RemediatorClient:
    """Queries the remediator's status."""

    def __init__(
        self,
        settings: Remediate,
        session: aiohttp.ClientSession,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        host, port = parse_listen("remediate.listen", settings.listen)
        host = "127.0.0.1" if host in _ANYWHERE else host
        self._url = f"http://{f'[{host}]' if ':' in host else host}:{port}{_PATH}"
        self._token = TokenFile(settings.token_file)
        self._session = session
        self._clock = clock
        self._turn = asyncio.Lock()
        self._read: tuple[float, RemediatorStatus] | None = None

    async def read(self) -> RemediatorStatus:
        """Return the status, cached for a second: many pages query no more often than one."""
        async with self._turn:
            if self._read is None or self._clock() - self._read[0] >= _FRESH_SECONDS:
                self._read = self._clock(), await self._fetch_status()
            return self._read[1]

    async def _fetch_status(self) -> RemediatorStatus:
        try:
            return RemediatorStatus(msgspec.json.decode(await self._fetch()))
        except (aiohttp.ClientError, TimeoutError, msgspec.DecodeError, RecursionError) as error:
            reason = str(error) or type(error).__name__
            return RemediatorStatus(
                failure=f"the remediator does not answer at {self._url}: {reason}"
            )
        except SyncError as error:
            return RemediatorStatus(failure=str(error))

    async def _fetch(self) -> bytes:
        headers = self._token.headers()
        async with self._session.get(self._url, headers=headers) as response:
            response.raise_for_status()
            body = await response.content.read(_LONGEST + 1)
            while len(body) <= _LONGEST and (more := await response.content.read(_LONGEST)):
                body += more
        if len(body) > _LONGEST:
            msg = "it says too much"
            raise aiohttp.ClientError(msg)
        return body


@asynccontextmanager
async def remediator_client(settings: Remediate) -> AsyncGenerator[RemediatorClient]:
    """Yield a client of the configured remediator."""
    timeout = aiohttp.ClientTimeout(total=_SECONDS)
    # No proxy: aiohttp ignores the environment's by default.
    async with aiohttp.ClientSession(timeout=timeout) as session:
        yield RemediatorClient(settings, session)
