"""Writes status steps concurrently, and returns which could not be written and why.

Invariant: one object's failure delays no other. What the API server refused is not sent again for a
while unless the object changes, nor what it twice did not find; if it forbids a kind in a
namespace, other objects there wait too. What another writer keeps reverting is left to it for a
while. Every step that was not written is returned, so that the caller retries.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any, Final

import structlog

from kube_sync.errors import NotFound, Refused, Retriable, SyncError, Terminal
from kube_sync.guard.rivals import WRITES, Rivals
from kube_sync.kube.client import KubeClient
from kube_sync.kube.fencedwriter import FencedWriter
from kube_sync.kube.patch import ObjectReference
from kube_sync.kube.statuses import apply_shared, remove_at, replace_lists
from kube_sync.objects import GroupVersionResource
from kube_sync.observability import metrics
from kube_sync.topology import GroupKind, Locator
from kube_sync.topology.nodes import Body
from kube_sync.topology.status.plan import Replace, Step
from kube_sync.topology.status.write_cache import LatestObjects, written_content

log: structlog.stdlib.BoundLogger = structlog.get_logger()

MANAGER: Final = "kube-sync-topology"
_AT_ONCE: Final = 8
_SLOWLY: Final = 60.0  # seconds until a retry of what was refused


@dataclass(frozen=True, slots=True)
class Address:
    """The resource of a kind, and which lists of its status are for policies."""

    gvr: GroupVersionResource
    ancestors: bool = False  # there are `ancestors`
    conditions: bool = False  # there are none, and `conditions` are ours by the configuration
    lacking: str = ""  # why policies get no status, in words

    @property
    def gets_status(self) -> bool:
        """Whether policies get any conditions."""
        return self.ancestors or self.conditions


# The address of a kind, None if it cannot be written.
Addresses = Callable[[GroupKind], Address | None]


@dataclass(frozen=True, slots=True)
class WriteFailure:
    """Why something was not written; `until`: when to retry, None: as soon as possible.

    `after` is the server's Retry-After, in seconds. Times are those of the Writer's clock.
    """

    reason: str
    until: float | None = None
    after: float | None = None


@dataclass(frozen=True, slots=True)
class _Refusal:
    version: str
    failure: WriteFailure
    until: float


class Writer:
    """Writes statuses to the API server."""

    def __init__(
        self,
        client: KubeClient,
        addresses: Addresses,
        fenced: FencedWriter,
        latest: LatestObjects,
        *,
        at_once: int = _AT_ONCE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._addresses = addresses
        self._fenced = fenced
        self._latest = latest
        self._at_once = at_once
        self._clock = clock
        self._refused: dict[Locator, _Refusal] = {}
        self._forbidden: dict[tuple[GroupKind, str], _Refusal] = {}
        self._missing: dict[Locator, str] = {}  # last not found, and its version
        self._rivals = Rivals()
        self._left_to_rivals: set[Locator] = set()

    async def write(self, steps: AsyncIterator[Step]) -> dict[Locator, WriteFailure]:
        """Send all steps; return the failures, by object."""
        failures: dict[Locator, WriteFailure] = {}
        self._drop_expired()
        async with asyncio.TaskGroup() as group:
            lock = asyncio.Lock()  # an async generator must not be advanced concurrently
            for _ in range(self._at_once):
                group.create_task(self._work(steps, lock, failures))
        self._missing = {n: v for n, v in self._missing.items() if n in failures}
        self._left_to_rivals &= failures.keys()
        return failures

    async def _work(
        self, steps: AsyncIterator[Step], lock: asyncio.Lock, failures: dict[Locator, WriteFailure]
    ) -> None:
        while True:
            async with lock:
                step = await anext(steps, None)
            if step is None:
                return
            failure = await self._write_step(step)
            if failure is not None:
                failures[step.node] = failure

    async def _write_step(self, step: Step) -> WriteFailure | None:
        address = self._addresses(step.kind)
        if address is None:
            return None  # its kind is gone, or cannot be written at all
        content = written_content(step)
        if (known := self._refusal_of(step) or self._truce(step, content)) is not None:
            return known
        try:
            response = await self._fenced.send("status", lambda: self._send(address.gvr, step))
        except SyncError as error:
            return self._failed(step, error)
        self._latest.record_response(step.node, step.version, response)
        self._rivals.wrote(step.node, content, self._clock())
        log.info(
            "status_written", gvk=str(step.kind), key=str(step.key), fields=sorted(step.status)
        )
        return None

    async def _send(self, gvr: GroupVersionResource, step: Step) -> Body:
        if isinstance(step, Replace):
            return await replace_lists(
                self._client, gvr, step.key, step.version, step.status, MANAGER
            )
        response: Body = {}
        if step.removals:
            response = await remove_at(
                self._client, gvr, step.key, step.version, step.removals, MANAGER
            )
        if step.status:
            response = await apply_shared(
                self._client,
                ObjectReference(gvr, step.kind.kind, step.key, step.uid),
                step.status,
                MANAGER,
            )
        return response

    def _refusal_of(self, step: Step) -> WriteFailure | None:
        """Return why a step must not be tried now."""
        refused = self._refused.get(step.node)
        if refused is not None and refused.version == step.version:
            return refused.failure
        forbidden = self._forbidden.get((step.kind, step.key.namespace))
        return forbidden.failure if forbidden is not None else None

    def _truce(self, step: Step, content: object) -> WriteFailure | None:
        """Return why a step that another writer keeps reverting is left out."""
        until = self._rivals.truce(step.node, content, self._clock())
        if until is None:
            return None
        reason = f"another one undid it {WRITES} times within a minute; left as it is for a while"
        if step.node not in self._left_to_rivals:
            self._left_to_rivals.add(step.node)
            metrics.topology_writes.labels("status", "left to a rival").inc()
            log.warning("status_left_to_rival", gvk=str(step.kind), key=str(step.key))
        return WriteFailure(reason, until)

    def _failed(self, step: Step, error: SyncError) -> WriteFailure:
        log.warning("status_not_written", gvk=str(step.kind), key=str(step.key), error=str(error))
        until = self._clock() + _SLOWLY
        refusal = _Refusal(step.version, WriteFailure(str(error), until), until)
        if isinstance(error, Refused):
            self._forbidden[step.kind, step.key.namespace] = refusal
            return refusal.failure
        if isinstance(error, Terminal) or self._is_missing_again(step, error):
            self._refused[step.node] = refusal
            return refusal.failure
        after = error.retry_after if isinstance(error, Retriable) else None
        return WriteFailure(str(error), after=after)

    def _is_missing_again(self, step: Step, error: SyncError) -> bool:
        """Return whether the write got 404 twice for an existing object: it has no status."""
        if not isinstance(error, NotFound):
            return False
        before = self._missing.get(step.node)
        self._missing[step.node] = step.version
        return before == step.version

    def _drop_expired(self) -> None:
        """Drop expired refusals."""
        now = self._clock()
        self._rivals.tidy(now)
        old: list[dict[Any, _Refusal]] = [self._refused, self._forbidden]
        for refusals in old:
            for key in [key for key, one in refusals.items() if one.until <= now]:
                del refusals[key]
