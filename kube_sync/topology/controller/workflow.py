"""Reconcile functions, and workflows of them.

A Workflow is a reconcile function itself, so workflows can be tasks of workflows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import structlog

from kube_sync.topology.controller.events import ResourceEvent
from kube_sync.topology.nodes import Locator
from kube_sync.topology.topology import Topology

log: structlog.stdlib.BoundLogger = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """The argument of one reconcile of the whole graph: the events, and the resulting topology.

    With an `error` the topology is the one from before: the objects contain something invalid, such
    as a loop. The `state` is shared by all functions of one reconcile, and empty at its start.
    `affected` are the nodes whose effective policies may differ from those in the last successful
    reconcile. No part of the topology may be kept beyond the call.
    """

    events: Sequence[ResourceEvent]
    topology: Topology
    error: Exception | None = None
    affected: frozenset[Locator] = frozenset()
    state: dict[Any, Any] = field(default_factory=dict)


Reconcile = Callable[[Reconciliation], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Workflow:
    """A precondition, then concurrent tasks, then a postcondition.

    An error of a phase ends the workflow, once all its tasks have ended. An `error_handler` is
    called first, with the error that was passed into the workflow and the phase's own in its
    Reconciliation: if it returns, the next phase runs as if there was no error; what it raises ends
    the workflow.
    """

    precondition: Reconcile | None = None
    tasks: Sequence[Reconcile] = ()
    postcondition: Reconcile | None = None
    error_handler: Reconcile | None = None

    async def __call__(self, reconciliation: Reconciliation) -> None:
        """Run all phases. Raises the error of the first failed phase that was not suppressed."""
        for phase in ([self.precondition], self.tasks, [self.postcondition]):
            steps = [step for step in phase if step is not None]
            error = await _first_error(steps, reconciliation)
            if error is not None:
                await self._handle(reconciliation, error)

    async def _handle(self, reconciliation: Reconciliation, error: Exception) -> None:
        if self.error_handler is None:
            raise error
        carried = reconciliation.error
        joined = ExceptionGroup("reconcile", [carried, error]) if carried else error
        await self.error_handler(replace(reconciliation, error=joined))


async def _first_error(
    steps: Sequence[Reconcile], reconciliation: Reconciliation
) -> Exception | None:
    """Run steps concurrently to their end; return the error of the first that failed."""
    failed: list[Exception] = []

    async def attempt(step: Reconcile) -> None:
        try:
            await step(reconciliation)
        except Exception as error:  # noqa: BLE001 - whatever code it is, its siblings go on
            failed.append(error)

    # No TaskGroup: a failed task must not cancel its siblings in the middle of a write.
    ends = await asyncio.gather(*map(attempt, steps), return_exceptions=True)
    for end in ends:
        if end is not None:  # a cancellation is no error of a task
            raise end
    for error in failed[1:]:
        log.warning("task_failed_too", error=str(error) or type(error).__name__)
    return failed[0] if failed else None
