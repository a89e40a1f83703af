"""Analyse what the placement decision and the limits read, once for each set of policies.

Invariant: if the analysis fails, everything counts as read, with the reason; nothing waits longer
than for one compilation. A module that compiled to the same tree in an earlier set is not analysed
again, and is kept once: an edit costs the memory of what it changed. It does not know what the
result is used for.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any, Protocol

import msgspec
import structlog

from kube_sync.decisions.budget_watcher import BUDGET
from kube_sync.decisions.requested import with_note
from kube_sync.errors import NO_JSON, SyncError, TooExpensive
from kube_sync.opa.analysis.result import Collection, Reads
from kube_sync.opa.analysis.syntax import Module, Spot, Unreadable, read_module
from kube_sync.opa.lanes import Lane, lane_path
from kube_sync.opa.scratch import Cause, Modules, too_expensive
from kube_sync.policies.required_fields import Need
from kube_sync.runtime.timelimit import time_limit

log: structlog.stdlib.BoundLogger = structlog.get_logger()

_SECONDS = 5.0  # time limit of one analysis: ten times that of a hundred modules
_REMEMBERED = 6  # sets: in force, wanted, mixtures of both, and lanes
# Returns the path of each replicated resource by its name in OPA, without unknown ones.
Collections = Callable[[], Awaitable[Mapping[str, Collection]]]


class TreeCompiler(Protocol):
    """The scratch OPA."""

    async def compiled(self, modules: Modules) -> dict[str, msgspec.Raw]:
        """Return the compiled syntax trees, by id."""

    async def parsed(self, modules: Modules) -> dict[str, Any]:
        """Return the parsed syntax trees with locations, by id."""


@dataclass(frozen=True, slots=True)
class _Found:
    """A module that was read, or why it cannot be, and the digest of its tree."""

    module: Module | Unreadable
    digest: bytes = b""


_Set = dict[str, _Found]  # by source


class Reading:
    """Analyses sets of modules for one decision."""

    def __init__(self, compiler: TreeCompiler, decision: str, collections: Collections) -> None:
        """`decision` is a path, as in `io/k8s/federation/admission`."""
        self._compiler = compiler
        self._decision = decision
        self._collections = collections
        self._known: deque[tuple[str, Sequence[Modules], Need]] = deque(maxlen=_REMEMBERED)
        self._compiled: deque[tuple[Modules, _Set]] = deque(maxlen=_REMEMBERED)

    async def need(self, *sets: Modules, lane: Lane | None = None) -> Need:
        """Return what the decision reads if one of these sets is in force, or a mixture of them.

        Each set is all modules in OPA, whoever loaded them. For a lane, return what its decision
        reads, without limits. Raises SyncError.
        """
        decision = self._decision if lane is None else lane_path(lane, self._decision)
        collections = await self._collections()
        for path, asked, need in self._known:
            if path == decision and asked == sets and need.collections == collections:
                return need
        together: _Set = {}
        for modules in sets:
            # One tree is enough for a module in several sets.
            together = await self._read(modules) | together
        read = [known.module for known in together.values()]
        # In a thread: a hundred modules take long enough to delay events.
        found = with_note(await asyncio.to_thread(_analysed, read, decision, collections))
        if lane is None:
            # Separate: what only limits read does not affect classes or decisions.
            limits = await asyncio.to_thread(_analysed, read, BUDGET, collections)
            found = replace(found, beside=limits)
        if found.gave_up is not None or (found.beside and found.beside.gave_up is not None):
            found = await self._located(found, sets)
            reason = found.gave_up or (found.beside and found.beside.gave_up)
            log.warning("policies_not_analysed", reason=reason, blamed=str(found.blamed or ""))
        need = Need(found, collections)
        self._known.append((decision, sets, need))
        return need

    async def _located(self, found: Reads, sets: Sequence[Modules]) -> Reads:
        """Return the same reads with the row of the rule to blame."""
        if found.beside is not None and found.beside.gave_up is not None:
            found = replace(found, beside=await self._located(found.beside, sets))
        spot = found.blamed
        sources = [m[spot.module] for m in sets if spot.module in m] if spot is not None else []
        if spot is None or spot.number is None or not sources:
            return found
        try:
            parsed = await self._compiler.parsed({spot.module: sources[-1]})
        except SyncError:
            return found  # the module is named all the same
        from kube_sync.opa.analysis.analyzer import row_of  # noqa: PLC0415 - as below

        row = row_of(parsed.get(spot.module), spot.number)
        return replace(found, blamed=replace(spot, row=row))

    def remember(self, modules: Modules, need: Need) -> None:
        """Cache that this set reads the same as another, analysed one."""
        known = self._decision, (modules,), need
        if all(
            one[:2] != known[:2] or one[2].collections != need.collections for one in self._known
        ):
            self._known.append(known)

    async def modules(self, modules: Modules) -> list[Module]:
        """Return the modules of a set as they were compiled, without unreadable ones."""
        found = (known.module for known in (await self._read(modules)).values())
        return [module for module in found if isinstance(module, Module)]

    async def _read(self, modules: Modules) -> _Set:
        for compiled, found in self._compiled:
            if compiled == modules:
                return found
        try:
            return await self._compile(modules)
        except SyncError as error:
            # No tree at all: treated as a module that cannot be read.
            return {"": _Found(Unreadable(f"the policies could not be compiled: {error}"))}

    async def show(self, modules: Modules) -> list[Cause]:
        """Return why OPA cannot return modules that compile, nothing if it can.

        Each epoch begins with that query, so all of them would be stuck. Raises no SyncError.
        """
        try:
            if all(compiled != modules for compiled, _ in self._compiled):
                await self._compile(modules)
        except TooExpensive as error:
            return [too_expensive("show", error)]
        except SyncError:
            pass  # unknown: it is requested again when it is read
        return []

    async def _compile(self, modules: Modules) -> _Set:
        trees = await self._compiler.compiled(modules)
        known = {source: found for _, read in self._compiled for source, found in read.items()}
        found = await asyncio.to_thread(_read, modules, trees, known)
        self._compiled.append((dict(modules), found))
        return found


def _read(modules: Modules, trees: Mapping[str, msgspec.Raw], known: _Set) -> _Set:
    """Return each module by its source; reuse a `known` one with the same tree."""
    read: _Set = {}
    for policy_id, tree in sorted(trees.items()):
        source = modules.get(policy_id, policy_id)
        digest = blake2b(policy_id.encode() + b"\0" + bytes(tree), digest_size=16).digest()
        found = known.get(source)
        if found is None or found.digest != digest:
            found = _Found(_module(policy_id, tree), digest)
        read[source] = found
    return read


def _module(policy_id: str, tree: msgspec.Raw) -> Module | Unreadable:
    from kube_sync.opa.analysis.analyzer import unreadable  # noqa: PLC0415 - as below

    try:
        return read_module(policy_id, msgspec.json.decode(tree))
    except Unreadable as error:
        return Unreadable(unreadable(error), error.spot)  # without its cause
    except RecursionError as error:
        return Unreadable(unreadable(error), Spot(policy_id))
    except NO_JSON as error:
        return Unreadable(f"{policy_id}: {error}", Spot(policy_id))


def _analysed(
    modules: Sequence[Module | Unreadable], decision: str, collections: Mapping[str, Collection]
) -> Reads:
    # Imported in the thread, when there are policies: at a process's start it would delay the rest.
    from kube_sync.opa.analysis.analyzer import analyze_read, everything  # noqa: PLC0415

    read: list[Module] = []
    for found in modules:
        if isinstance(found, Unreadable):
            return everything(str(found), collections, found.spot)
        read.append(found)
    try:
        with time_limit(_SECONDS):
            return analyze_read(read, decision, collections)
    except TimeoutError:
        return everything(f"the analysis takes more than {_SECONDS:g} s", collections)
