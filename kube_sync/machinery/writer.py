"""Writes steps, several at once, and tells which could not be written and why.

Keeps true: one object's trouble holds up no other. What the API server refused is not sent again
for a while as long as the object is the same; where it forbids a kind in a namespace, the other
objects there wait too. Whatever was not written is trouble, so that who asked comes back.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any, Final

import structlog

from kube_sync.errors import Refused, SyncError, Terminal
from kube_sync.kube.client import KubeClient
from kube_sync.kube.statuses import apply_shared, remove_at, replace_lists
from kube_sync.machinery.latest import Latest
from kube_sync.machinery.plan import Replace, Step
from kube_sync.machinery.sending import Sending
from kube_sync.objects import GroupVersionResource
from kube_sync.topology import GroupKind, Locator
from kube_sync.topology.nodes import Body

log: structlog.stdlib.BoundLogger = structlog.get_logger()

MANAGER: Final = "kube-sync-topology"
_AT_ONCE: Final = 8
_SLOWLY: Final = 60.0  # seconds until something that was refused is tried again


@dataclass(frozen=True, slots=True)
class Address:
    """Where objects of a kind are written; `ancestors`: their status has `ancestors`."""

    gvr: GroupVersionResource
    ancestors: bool = False


# Where objects of a kind are written, None where they cannot be.
Addresses = Callable[[GroupKind], Address | None]


@dataclass(frozen=True, slots=True)
class _Refusal:
    version: str
    until: float
    error: SyncError


class Writer:
    """Brings statuses to the API server."""

    def __init__(
        self,
        client: KubeClient,
        addresses: Addresses,
        sending: Sending,
        latest: Latest,
        *,
        at_once: int = _AT_ONCE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._addresses = addresses
        self._sending = sending
        self._latest = latest
        self._at_once = at_once
        self._clock = clock
        self._refused: dict[Locator, _Refusal] = {}
        self._forbidden: dict[tuple[GroupKind, str], _Refusal] = {}

    async def write(self, steps: AsyncIterator[Step]) -> dict[Locator, SyncError]:
        """Make all steps; returns what went wrong, by the object."""
        troubles: dict[Locator, SyncError] = {}
        self._forget()
        async with asyncio.TaskGroup() as group:
            taking = asyncio.Lock()  # a generator is asked by one at a time
            for _ in range(self._at_once):
                group.create_task(self._work(steps, taking, troubles))
        return troubles

    async def _work(
        self, steps: AsyncIterator[Step], taking: asyncio.Lock, troubles: dict[Locator, SyncError]
    ) -> None:
        while True:
            async with taking:
                step = await anext(steps, None)
            if step is None:
                return
            error = await self._one(step)
            if error is not None:
                troubles[step.node] = error

    async def _one(self, step: Step) -> SyncError | None:
        address = self._addresses(step.kind)
        if address is None:
            return None  # it went meanwhile, or cannot be written at all
        if (known := self._known(step)) is not None:
            return known
        try:
            answer = await self._sending.send("status", lambda: self._send(address.gvr, step))
        except SyncError as error:
            self._failed(step, error)
            return error
        self._latest.answered(step.node, step.version, answer)
        log.info(
            "status_written", gvk=str(step.kind), key=str(step.key), fields=sorted(step.status)
        )
        return None

    async def _send(self, gvr: GroupVersionResource, step: Step) -> Body:
        if isinstance(step, Replace):
            return await replace_lists(
                self._client, gvr, step.key, step.version, step.status, MANAGER
            )
        answer: Body = {}
        if step.removals:
            answer = await remove_at(
                self._client, gvr, step.key, step.version, step.removals, MANAGER
            )
        if step.status:
            answer = await apply_shared(
                self._client, gvr, step.kind.kind, step.key, step.uid, step.status, MANAGER
            )
        return answer

    def _known(self, step: Step) -> SyncError | None:
        """Return why a step need not be tried now."""
        refused = self._refused.get(step.node)
        if refused is not None and refused.version == step.version:
            return refused.error
        forbidden = self._forbidden.get((step.kind, step.key.namespace))
        return forbidden.error if forbidden is not None else None

    def _failed(self, step: Step, error: SyncError) -> None:
        log.warning("status_not_written", gvk=str(step.kind), key=str(step.key), error=str(error))
        refusal = _Refusal(step.version, self._clock() + _SLOWLY, error)
        if isinstance(error, Refused):
            self._forbidden[step.kind, step.key.namespace] = refusal
        elif isinstance(error, Terminal):
            self._refused[step.node] = refusal

    def _forget(self) -> None:
        """Let go of refusals that are old."""
        now = self._clock()
        old: list[dict[Any, _Refusal]] = [self._refused, self._forbidden]
        for refusals in old:
            for key in [key for key, one in refusals.items() if one.until <= now]:
                del refusals[key]
