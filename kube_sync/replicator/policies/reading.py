"""What the placement decision reads, of the policies in force: asked once for each set.

Keeps true: where it cannot be found out, everything counts as read, with the reason; nothing waits
for longer than one compilation. It knows nothing of what follows from it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

import structlog

from kube_sync.analysis.analyzer import Collection, PolicyModule, analyze
from kube_sync.analysis.reads import Reads
from kube_sync.errors import SyncError
from kube_sync.opa.scratch import Modules

log: structlog.stdlib.BoundLogger = structlog.get_logger()

# Where each replicated resource lies, by its name in OPA; those that nobody knows are left out.
Collections = Callable[[], Awaitable[Mapping[str, Collection]]]


class TreeCompiler(Protocol):
    """The scratch OPA."""

    async def compiled(self, modules: Modules) -> dict[str, Any]:
        """Return the compiled syntax trees, by id."""
        ...


class Reading:
    """Analyses sets of modules for one decision."""

    def __init__(self, compiler: TreeCompiler, decision: str, collections: Collections) -> None:
        """`decision` is a path, as in `io/k8s/federation/admission`."""
        self._compiler = compiler
        self._decision = decision
        self._collections = collections
        self._last: tuple[Modules, Mapping[str, Collection], Reads] | None = None

    async def reads(self, modules: Modules) -> Reads:
        """Return what the decision reads if these are in force. Raises SyncError.

        `modules` are all that OPA holds, whoever loaded them.
        """
        collections = await self._collections()
        if self._last is not None and self._last[:2] == (modules, collections):
            return self._last[2]
        trees = await self._trees(modules)
        # In a thread: a hundred modules take long enough to keep events waiting.
        found = await asyncio.to_thread(analyze, trees, self._decision, collections)
        if found.gave_up is not None:
            log.warning("policies_not_analysed", reason=found.gave_up)
        self._last = modules, collections, found
        return found

    async def _trees(self, modules: Modules) -> list[PolicyModule]:
        try:
            trees = await self._compiler.compiled(modules)
        except SyncError as error:
            # No tree at all: that is one which cannot be read.
            return [PolicyModule("policies", {"error": str(error)})]
        return [PolicyModule(policy_id, tree) for policy_id, tree in sorted(trees.items())]
