"""The remediator's client of the ledger: sends reports in batches, with retries.

Invariant: reports arrive in order, each at least once; before a write the remediator waits until
its intent is in the ledger, also through a restart of the replicator, but for a bounded time, and
not at all after an outage of that length.
If the replicator has no ledger, the client retries once a minute.
A bounded number of reports is queued; those over it are counted, and reported as a gap once there
is room.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from itertools import count
from typing import Final, NoReturn
from urllib.parse import urlsplit, urlunsplit

import aiohttp
import msgspec
import structlog

from kube_sync.config import Decisions, masked
from kube_sync.errors import Refused, Retriable, SyncError
from kube_sync.ledger.reports import LARGEST, MOST, PATH, Report
from kube_sync.observability import metrics
from kube_sync.runtime.backoff import Backoff
from kube_sync.runtime.clienttls import Tls, client_tls, in_the_clear
from kube_sync.runtime.httperrors import retriable
from kube_sync.runtime.tokenfile import TokenFile

log: structlog.stdlib.BoundLogger = structlog.get_logger()

KEPT: Final = 10_000  # queued reports

# A killed replicator restarts within that time, and decides nothing until then.
_PATIENCE_SECONDS = 10.0
_ANSWER_SECONDS = 5.0
_ENDING_SECONDS = 2.0
_OFF_SECONDS = 60.0  # between attempts while the replicator has no ledger
_OK, _NO_LEDGER = 200, 204

_encode = msgspec.json.encode


class ReportClient:
    """The reports of one remediator."""

    def __init__(
        self,
        url: str,
        session: aiohttp.ClientSession,
        token: TokenFile,
        instance: str,
        *,
        kept: int = KEPT,
        patience: float = _PATIENCE_SECONDS,
        clock: Callable[[], float] = time.monotonic,
        backoff: Backoff | None = None,
        tls: Callable[[], Tls] = in_the_clear,
    ) -> None:
        """Report to the replicator at `url`; `instance` identifies this process.

        No caller waits for the ledger longer than `patience`, nor at all when nothing was accepted
        for that long (seconds; `clock` is monotonic).
        """
        self._url = url
        self._where = f"ledger at {masked(url)}"
        self._session = session
        self._token = token
        self._instance = instance
        self._kept = kept
        self._patience = patience
        self._backoff = backoff or Backoff(longest=1.0)
        self._tls = tls
        self._numbers = count(1)
        self._queue: deque[tuple[bytes, str]] = deque()
        self._wake = asyncio.Event()
        self._awaited: dict[str, asyncio.Future[bool]] = {}  # by id: whether the ledger accepted it
        self._failing: float | None = None  # since when no batch was accepted
        self._lost = 0
        self._clock = clock
        self._off_until = -math.inf  # the replicator has no ledger: no attempt before that

    @property
    def are_discarded(self) -> bool:
        """Whether the replicator had no ledger a moment ago: reports are discarded."""
        return self._clock() < self._off_until

    def new_id(self) -> str:
        """Return a unique id for a write."""
        return f"{self._instance}-{next(self._numbers)}"

    def enqueue(self, report: Report) -> None:
        """Queue a report without waiting."""
        if self.are_discarded:
            return
        if self._lost or len(self._queue) >= self._kept:
            self._lost += 1
            metrics.ledger_reports.labels("lost").inc()
            return
        self._queue.append((_bounded(report), report.id))
        self._wake.set()

    async def deliver(self, report: Report) -> bool:
        """Report, and wait until it is in the ledger; return whether it is known to be."""
        if self.are_discarded:
            return False
        accepted = False
        answer = self._awaited[report.id] = asyncio.get_running_loop().create_future()
        try:
            self.enqueue(report)
            async with asyncio.timeout(self._left()):
                accepted = await answer
        except TimeoutError:
            pass
        finally:
            self._awaited.pop(report.id, None)
        if not accepted:
            metrics.ledger_reports.labels("late").inc()
        return accepted

    async def run(self) -> NoReturn:
        """Send until cancelled; then try once more to send the rest."""
        try:
            while True:
                await self._wake.wait()
                await self._send_all()
        finally:
            with suppress(SyncError, TimeoutError):
                async with asyncio.timeout(_ENDING_SECONDS):
                    while self._queue:
                        await self._send()

    async def _send_all(self) -> None:
        while self._queue:
            try:
                await self._send()
            except SyncError as error:
                if self._failing is None:
                    log.warning("ledger_reports_delayed", error=str(error))
                    self._failing = self._clock()
                await self._backoff.wait(getattr(error, "retry_after", None))
            else:
                self._failing = None
                self._backoff.progressed()
        self._wake.clear()

    async def _send(self) -> None:
        """Send one batch. Raises SyncError."""
        batch = self._batch()
        status = await self._post(b'{"v":1,"reports":[' + b",".join(b for b, _ in batch) + b"]}")
        for _ in batch:
            self._queue.popleft()
        self._answer(name for _, name in batch)
        if status == _NO_LEDGER:
            self._answer(name for _, name in self._queue)  # queued meanwhile
            self._queue.clear()
            self._lost = 0
            self._off_until = self._clock() + _OFF_SECONDS
            return
        metrics.ledger_reports.labels("taken").inc(len(batch))
        if self._lost:
            lost, self._lost = self._lost, 0
            self.enqueue(Report(self.new_id(), "gap", note=f"{lost} reports of writes were lost"))

    def _left(self) -> float:
        """Return the time left to wait for the ledger, in seconds."""
        failing = 0.0 if self._failing is None else self._clock() - self._failing
        return max(0.0, self._patience - failing)

    def _answer(self, names: Iterable[str]) -> None:
        for name in names:
            waiting = self._awaited.get(name)
            if waiting is not None and not waiting.done():
                waiting.set_result(True)

    def _batch(self) -> list[tuple[bytes, str]]:
        found: list[tuple[bytes, str]] = []
        size = 0
        for one in self._queue:
            size += len(one[0])
            if found and (size > LARGEST or len(found) >= MOST):
                break
            found.append(one)
        return found

    async def _post(self, body: bytes) -> int:
        timeout = aiohttp.ClientTimeout(total=_ANSWER_SECONDS)
        headers = {**self._token.headers(), "Content-Type": "application/json"}
        with retriable(self._where):
            async with self._session.post(
                self._url, data=body, headers=headers, timeout=timeout, ssl=self._tls()
            ) as response:
                if response.status in (401, 403):
                    msg = f"{self._where}: {response.status} (is decisions.token_file right?)"
                    raise Refused(msg)
                if response.status not in (_OK, _NO_LEDGER):
                    msg = f"{self._where}: {response.status}"
                    raise Retriable(msg)
                return response.status


def _bounded(report: Report) -> bytes:
    body = _encode(report)
    if len(body) <= LARGEST:
        return body
    note = f"values of {len(body)} bytes are left out"
    return _encode(msgspec.structs.replace(report, old={}, new={}, note=note))


@asynccontextmanager
async def report_client(settings: Decisions, instance: str) -> AsyncGenerator[ReportClient]:
    """Yield a client of the configured replicator's ledger. Raises Misconfigured."""
    url = urlunsplit(urlsplit(settings.url)._replace(path=PATH, query=""))
    tls = client_tls(settings.url, settings.ca_file)
    async with aiohttp.ClientSession() as session:
        yield ReportClient(url, session, TokenFile(settings.token_file), instance, tls=tls)
