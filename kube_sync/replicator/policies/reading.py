"""What the placement decision and the limits read, of the policies in force: once for each set.

Keeps true: where it cannot be found out, everything counts as read, with the reason; nothing waits
for longer than one compilation. It knows nothing of what follows from it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

import structlog

from kube_sync.analysis.analyzer import Collection, PolicyModule, analyze
from kube_sync.analysis.reads import Reads
from kube_sync.decisions.limiting import BUDGET
from kube_sync.decisions.requested import with_note
from kube_sync.errors import SyncError
from kube_sync.opa.lanes import Lane, lane_path
from kube_sync.opa.scratch import Modules
from kube_sync.replicator.extent import Need

log: structlog.stdlib.BoundLogger = structlog.get_logger()

_REMEMBERED = 6  # sets: what is in force, what is wanted, what may be in between, and lanes
_Trees = dict[str, PolicyModule]  # by source
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
        self._known: deque[tuple[str, Sequence[Modules], Need]] = deque(maxlen=_REMEMBERED)
        self._compiled: deque[tuple[Modules, _Trees]] = deque(maxlen=_REMEMBERED)

    async def need(self, *sets: Modules, lane: Lane | None = None) -> Need:
        """Return what the decision reads if one of these is in force, or modules of several.

        Each is all that OPA holds then, whoever loaded it. Of a lane it is what its decision reads,
        and no limits. Raises SyncError.
        """
        decision = self._decision if lane is None else lane_path(lane, self._decision)
        collections = await self._collections()
        for path, asked, need in self._known:
            if path == decision and asked == sets and need.collections == collections:
                return need
        trees: _Trees = {}
        for modules in sets:
            # Of a module that is in several sets one tree is enough.
            trees = await self._trees(modules) | trees
        # In a thread: a hundred modules take long enough to keep events waiting.
        found = await asyncio.to_thread(_analysed, [*trees.values()], decision, collections)
        if lane is None:
            found = await asyncio.to_thread(_limited, found, [*trees.values()], collections)
        if found.gave_up is not None:
            log.warning("policies_not_analysed", reason=found.gave_up)
        need = Need(found, collections)
        self._known.append((decision, sets, need))
        return need

    def remember(self, modules: Modules, need: Need) -> None:
        """Take it as known that this set reads the same as another one, of which it was asked."""
        known = self._decision, (modules,), need
        if all(
            one[:2] != known[:2] or one[2].collections != need.collections for one in self._known
        ):
            self._known.append(known)

    async def _trees(self, modules: Modules) -> _Trees:
        for compiled, trees in self._compiled:
            if compiled == modules:
                return trees
        try:
            found = await self._compiler.compiled(modules)
        except SyncError as error:
            # No tree at all: that is one which cannot be read.
            return {"": PolicyModule("policies", {"error": str(error)})}
        trees = {modules.get(i, i): PolicyModule(i, tree) for i, tree in sorted(found.items())}
        self._compiled.append((dict(modules), trees))
        return trees


def _analysed(
    modules: Sequence[PolicyModule], decision: str, collections: Mapping[str, Collection]
) -> Reads:
    return with_note(analyze(modules, decision, collections))


def _limited(
    found: Reads, modules: Sequence[PolicyModule], collections: Mapping[str, Collection]
) -> Reads:
    # Apart: what only limits read makes no classes of objects, and no decision looks at it.
    return replace(found, beside=analyze(modules, BUDGET, collections))
