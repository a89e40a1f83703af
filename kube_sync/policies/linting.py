"""Lint the policies in force, and find the builtins that fail in them, beside the reconciler.

Invariant: nothing waits for it, and what it finds is only for people. A module is linted again when
the set in force changes, builtin errors also every few minutes, since data changes. Only modules
with a finding are parsed for its row. A result belongs to one source of a module: an edited module
has none until it was looked at.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, NoReturn, Protocol

import structlog

from kube_sync.errors import SyncError
from kube_sync.observability import metrics
from kube_sync.opa.analysis.syntax import Module
from kube_sync.opa.paths import DataPath
from kube_sync.opa.scratch import Cause, Modules
from kube_sync.policies.builtin_errors import failing, warnings
from kube_sync.policies.linter import Known, Slip, located, slips
from kube_sync.policies.policywarning import PolicyWarning, by_module
from kube_sync.runtime.timelimit import time_limit

log: structlog.stdlib.BoundLogger = structlog.get_logger()

_SECONDS: Final = 5.0  # time limit of the checks
_AGAIN_SECONDS: Final = 300.0  # until builtin errors are looked for again
_SETTLE_SECONDS: Final = 1.0  # another set within this time is linted in place of this one
_MOST_SETTLING: Final = 10  # sets that are passed over


class ModuleReader(Protocol):
    """The reading of compiled trees."""

    async def modules(self, modules: Modules) -> Sequence[Module]:
        """Return the modules of a set as they were compiled."""


class Parser(Protocol):
    """The scratch OPA."""

    async def parsed(self, modules: Modules) -> dict[str, Any]:
        """Return the parsed syntax trees with locations, by id."""


class ErrorFinder(Protocol):
    """The trial of policies."""

    async def builtin_errors(self, modules: Modules, given: Collection[str]) -> list[Cause]:
        """Return the builtins that fail on a sample of the data."""


@dataclass(frozen=True, slots=True)
class _Subject:
    """A set of modules in OPA."""

    together: Modules
    authored: Modules
    documents: frozenset[str]
    given: frozenset[str]  # builtins that OPA's own modules may call


_Found = Mapping[str, Sequence[PolicyWarning]]  # by module id


class Linting:
    """Warns of slips of the pen, and of builtins that fail, in the set in force."""

    def __init__(
        self,
        reader: ModuleReader,
        parser: Parser,
        known: Callable[[frozenset[str]], Awaitable[Known]],
        changed: Callable[[], None],
        *,
        errors: ErrorFinder | None = None,
        again: float = _AGAIN_SECONDS,
        settle: float = _SETTLE_SECONDS,
    ) -> None:
        """`known` returns what policies may name, given other names below `data`.

        `changed` is called when there are other warnings than before. A set is linted `settle`
        seconds after it came into force: the next one, if there is one, needs the CPU first.
        """
        self._reader = reader
        self._parser = parser
        self._known = known
        self._changed = changed
        self._errors = errors
        self._again = again
        self._settle = settle
        self._news = asyncio.Event()
        self._subject: _Subject | None = None
        self._done: _Subject | None = None  # the last one that was linted
        self._linted: tuple[Modules, _Found] = ({}, {})
        self._failing: tuple[Modules, _Found] = ({}, {})

    def look(
        self,
        together: Modules,
        authored: Modules,
        places: Iterable[DataPath],
        given: Collection[str] = (),
    ) -> None:
        """Lint the `authored` modules of the set in force, if it is another one.

        `places` are paths of data beside the replicated resources; OPA's own modules may call the
        builtins that are `given`.
        """
        documents = frozenset(path[0] for path in places if path)
        subject = _Subject(dict(together), dict(authored), documents, frozenset(given))
        if subject != self._subject:
            self._subject = subject
            self._news.set()

    def warnings(self, module: str, source: str) -> Sequence[PolicyWarning]:
        """Return the warnings on one source of a module, by its id."""
        found = (self._linted, self._failing)
        return [w for of, by in found if of.get(module) == source for w in by.get(module, ())]

    async def run(self) -> NoReturn:
        """Look at each set that comes into force, until cancelled."""
        while True:
            if await self._comes(self._again):
                for _ in range(_MOST_SETTLING):
                    if not await self._comes(self._settle):
                        break
            await self._step(self._lint)
            await self._step(self._find_errors)

    async def _comes(self, seconds: float) -> bool:
        """Return whether another set comes into force within this time."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._news.wait()
        came = self._news.is_set()
        self._news.clear()
        return came

    async def _step(self, step: Callable[[_Subject], Awaitable[None]]) -> None:
        if self._subject is None:
            return
        before = self._linted, self._failing
        try:
            await step(self._subject)
        except SyncError as error:
            log.warning("policies_not_linted", error=str(error))
        if (self._linted, self._failing) != before:
            self._changed()

    async def _lint(self, subject: _Subject) -> None:
        if subject == self._done:
            return
        modules = await self._reader.modules(subject.together)
        known = await self._known(subject.documents)
        found = await lint(modules, subject.authored, known, self._parser)
        self._linted, self._done = (subject.authored, by_module(found)), subject

    async def _find_errors(self, subject: _Subject) -> None:
        if self._errors is None:
            return
        causes = await self._errors.builtin_errors(subject.together, subject.given)
        calls = {c: n for c, n in failing(causes).items() if c.module in subject.authored}
        for call, times in calls.items():
            metrics.policy_builtin_errors.labels(call.builtin).inc(times)
        self._failing = subject.authored, by_module(warnings(calls))


async def lint(
    modules: Sequence[Module], authored: Modules, known: Known, parser: Parser
) -> list[PolicyWarning]:
    """Return the linter's warnings with their rows. Raises SyncError."""
    found = await asyncio.to_thread(_in_time, modules, authored, known)
    doubted = {slip.module: authored[slip.module] for slip in found}
    parsed = await parser.parsed(doubted) if doubted else {}
    return located(found, parsed)


def _in_time(modules: Sequence[Module], authored: Modules, known: Known) -> list[Slip]:
    try:
        with time_limit(_SECONDS):
            return slips(modules, authored, known)
    except (TimeoutError, RecursionError):
        return []  # they are too large, or nested too deeply
