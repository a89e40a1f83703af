"""Parses and inspects modules with `opa parse`, before they are compiled.

OPA parses one file at a time, so each module is a process, a few at once. The result of a
suspicious source is cached.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping
from contextlib import suppress
from typing import Any, TypeVar

import msgspec

from kube_sync.errors import NO_JSON, Retriable, TooExpensive, first_of
from kube_sync.opa.inspection import (
    EXPENSIVE_SECONDS,
    Finding,
    Inspected,
    forbidden,
    inspected,
    is_suspicious,
    may_differ,
    objections,
)
from kube_sync.opa.modules import PARSED_AS, file_of, files_of, same_files
from kube_sync.opa.process import AT_ONCE, OpaProgram, no_answer, private_folder
from kube_sync.regoversion import version_of

_INSPECTED = 1_000  # cached results

T = TypeVar("T")
_Modules = Mapping[str, str]  # source by id


class _Rejected(msgspec.Struct):
    errors: list[dict[str, Any]] = []


class _Unparsable(Retriable):
    """OPA's parser returned neither a syntax tree nor an error."""


class ModuleParser:
    """Runs OPA's parser."""

    def __init__(self, program: OpaProgram) -> None:
        self._program = program
        self._inspected: dict[bytes, Inspected | None] = {}  # by the digest of the source

    async def parsed(self, modules: _Modules) -> dict[str, Any]:
        """Return the parsed syntax trees, with locations, by id.

        OPA parses one file at a time, so this is a process for each module, a few at once. Modules
        that do not parse are left out. Raises Retriable.
        """
        found: dict[str, Any] = {}
        few = asyncio.Semaphore(AT_ONCE)  # of these, so that other callers get their turn

        async def parse(folder: str, policy_id: str) -> None:
            async with few:
                tree = await self._parse(folder, policy_id, modules[policy_id], _tree)
            if tree is not None:
                found[policy_id] = tree

        async with private_folder(files_of(modules)) as folder:
            await _all(parse(folder, policy_id) for policy_id in modules)
        return found

    async def _parse(
        self, folder: str, policy_id: str, source: str, read: Callable[[bytes], T]
    ) -> T | None:
        """Return the result of `read` on a syntax tree, None if the module does not parse.

        It reads in a thread, off the event loop. Raises Unparsable, TooExpensive, Retriable.
        """
        version = PARSED_AS[version_of(source)]
        included = "--json-include=locations,-comments"
        arguments = ("parse", "--format=json", included, *version, file_of(policy_id))
        status, output, complaint = await self._program.run(folder, arguments)
        if status != 0 and _rejected(complaint):
            return None
        try:
            return await asyncio.to_thread(read, output)
        except NO_JSON as error:
            raise _Unparsable(str(no_answer(output + complaint))) from error

    async def inspect(self, sources: _Modules) -> dict[str, Inspected]:
        """Return the inspection of each module.

        Modules that do not parse are left out; one over a limit has a fault. Raises Retriable.
        """
        found: dict[str, Inspected] = {}
        few = asyncio.Semaphore(AT_ONCE)  # of these, so that other callers get their turn

        async def inspect(folder: str, policy_id: str) -> None:
            async with few:
                try:
                    module = await self._parse(folder, policy_id, sources[policy_id], inspected)
                except TooExpensive as error:
                    fault = f"too expensive to parse ({error.limit})"
                    until = time.monotonic() + EXPENSIVE_SECONDS
                    found[policy_id] = Inspected((), fault=fault, until=until)
                except _Unparsable as error:
                    found[policy_id] = Inspected((), fault=str(error))
                else:
                    if module is not None:
                        found[policy_id] = module

        async with private_folder(files_of(sources)) as folder:
            await _all(inspect(folder, policy_id) for policy_id in sources)
        return found

    async def objections(self, modules: _Modules, given: Collection[str]) -> list[dict[str, Any]]:
        """Return the reasons to refuse modules, as causes, before they are compiled."""
        if doubled := same_files(modules):
            text = "{} is the same file to OPA: rename one of them"
            return [forbidden(first, Finding(text.format(other))) for first, other in doubled]
        suspicious = {i: source for i, source in modules.items() if is_suspicious(source)}
        digests = {i: hashlib.sha256(s.encode()).digest() for i, s in suspicious.items()}
        now, known = time.monotonic(), self._inspected.items()
        self._inspected = {d: found for d, found in known if not may_differ(found, now)}
        new = {i: s for i, s in suspicious.items() if digests[i] not in self._inspected}
        if new:
            found = await self.inspect(new)
            self._inspected |= {digests[i]: found.get(i) for i in new}
        causes = [
            forbidden(policy_id, finding)
            for policy_id, digest in digests.items()
            if (module := self._inspected[digest]) is not None
            for finding in objections(module, given)
        ]
        self._inspected = dict([*self._inspected.items()][-_INSPECTED:])
        return causes


def _tree(output: bytes) -> dict[str, Any]:
    """Parse a syntax tree rule by rule: parsing holds the interpreter's lock."""
    parts = msgspec.json.decode(output, type=dict[str, msgspec.Raw])
    rules = msgspec.json.decode(parts.pop("rules", b"[]"), type=list[msgspec.Raw])
    tree = {name: msgspec.json.decode(part) for name, part in parts.items()}
    return tree | {"rules": [msgspec.json.decode(rule) for rule in rules]}


def _rejected(complaint: bytes) -> bool:
    with suppress(msgspec.DecodeError):
        return bool(msgspec.json.decode(complaint, type=_Rejected).errors)
    return False


async def _all(tasks: Iterable[Coroutine[None, None, None]]) -> None:
    """Run these together; raise the error of the first that fails by itself, not in a group."""
    try:
        async with asyncio.TaskGroup() as group:
            for task in tasks:
                group.create_task(task)
    except* Retriable as errors:
        raise first_of(errors) from errors
