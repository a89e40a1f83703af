"""Sets of policies that are in force together, with their compiled trees.

Invariant: each set compiled as it is. Folders that do not compile together (examples that share
a package) are sets of their own if each of them compiles; references between them are undefined
then.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec

from kube_sync.errors import Retriable, Terminal, json_errors_as
from kube_sync.inspect.survey.progress import Progress
from kube_sync.inspect.survey.sources import by_folder
from kube_sync.opa.analysis.analyzer import PolicyModule
from kube_sync.opa.client import CompiledPolicy
from kube_sync.opa.scratch import Cause, Modules, line_of


class Compiler(Protocol):
    """The scratch OPA."""

    async def check(self, modules: Modules) -> list[Cause]:
        """Compile all together; return OPA's errors."""

    async def compiled(self, modules: Modules) -> dict[str, msgspec.Raw]:
        """Return the compiled trees, by id."""

    async def parsed(self, modules: Modules) -> dict[str, Any]:
        """Return the parsed trees with locations, by id."""


@dataclass(frozen=True, slots=True)
class PolicySet:
    """Modules that compiled together; `name` is for people."""

    name: str
    modules: tuple[PolicyModule, ...]


class NotCompiled(Terminal):
    """OPA's errors for policies that do not compile, line by line."""


async def sets_of_files(
    sources: dict[str, str], name: str, compiler: Compiler, progress: Progress
) -> list[PolicySet]:
    """Return the files as one set, or as one for each folder. Raises SyncError."""
    with progress.during(f"compiling {len(sources)} modules"):
        groups = await _compile_sets(sources, name, compiler)
    return [await _of_files(name, found, compiler, progress) for name, found in groups.items()]


async def set_of_opa(
    policies: Iterable[CompiledPolicy], name: str, compiler: Compiler | None, progress: Progress
) -> PolicySet:
    """Return the policies of an OPA; with a compiler their rows are known. Raises SyncError."""
    policies_by_id = sorted(policies, key=lambda policy: policy.id)
    sources = {policy.id: policy.raw for policy in policies_by_id}
    parsed = {} if compiler is None else await _parsed(sources, compiler, progress)
    modules = (PolicyModule(p.id, p.ast, parsed.get(p.id)) for p in policies_by_id)
    return PolicySet(name, tuple(modules))


async def _compile_sets(
    sources: dict[str, str], name: str, compiler: Compiler
) -> dict[str, dict[str, str]]:
    errors = await compiler.check(sources)
    if not errors:
        return {name: sources}
    folders = by_folder(sources)
    errors_by_folder = {folder: await compiler.check(found) for folder, found in folders.items()}
    if len(folders) == 1:
        raise NotCompiled("\n".join(["the policies do not compile", *map(line_of, errors)]))
    if any(errors_by_folder.values()):
        raise NotCompiled("\n".join(_error_lines(errors, errors_by_folder)))
    return folders


def _error_lines(errors: list[Cause], errors_by_folder: Mapping[str, list[Cause]]) -> Iterable[str]:
    yield "the policies compile neither together nor folder by folder"
    for folder, causes in errors_by_folder.items():
        yield from (f"{folder} by itself:", *map(line_of, causes)) if causes else ()
    known = [cause for causes in errors_by_folder.values() for cause in causes]
    rest = [cause for cause in errors if cause not in known]
    yield from ("all together:", *map(line_of, rest)) if rest else ()


async def _of_files(
    name: str, sources: dict[str, str], compiler: Compiler, progress: Progress
) -> PolicySet:
    with progress.during(f"compiling {name}"):
        compiled = await compiler.compiled(sources)
    if missing := sorted(sources.keys() - compiled.keys()):
        # Two names that differ only in characters that a file of the scratch OPA cannot have.
        msg = f"{missing[0]}: OPA gave no syntax tree for this file; give it another name"
        raise Retriable(msg)
    parsed = await _parsed(sources, compiler, progress)
    files = sorted(sources)
    return PolicySet(
        name, tuple(PolicyModule(f, _tree(f, compiled[f]), parsed.get(f)) for f in files)
    )


def _tree(file: str, raw: msgspec.Raw) -> Any:  # noqa: ANN401 - any JSON; the analysis says what is wrong
    with json_errors_as(Retriable, f"{file}: OPA's syntax tree cannot be read"):
        return msgspec.json.decode(raw)


async def _parsed(
    sources: Mapping[str, str], compiler: Compiler, progress: Progress
) -> dict[str, Any]:
    with progress.during(f"parsing {len(sources)} modules for their rows"):
        return await compiler.parsed(sources)
