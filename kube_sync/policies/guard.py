"""Check modules against what a policy may not do: reserved packages, data paths, side effects.

A policy may not use OPA's own packages or the replicator's, a path of replicated data or of a
module of OPA's own, or a builtin that reaches outside OPA. The administrator may allow packages and
builtins by name.

The package is read off the first line where that is unambiguous, since parsing every module in OPA
takes as long as compiling them all. Only modules with another package clause, or with something
that may be forbidden, are parsed.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import msgspec

from kube_sync.opa import lanes
from kube_sync.opa.inspection import Finding, Inspected, is_suspicious, may_differ, objections
from kube_sync.opa.modules import plain_package
from kube_sync.opa.paths import DataPath
from kube_sync.opa.scratch import Modules
from kube_sync.regoversion import V0, version_of

_RESERVED = ("system", "kube_sync", lanes.ROOT)
_ONE_BY_ONE: Final = (
    "Rego v0 reaches OPA in a bundle alone, and this OPA takes policies one by one"
    " (PUT /v1/policies has no version): configure OPA to fetch the replicator's bundle, or"
    " rewrite it with `opa fmt --write --rego-v1 FILE`"
)


@dataclass(frozen=True, slots=True)
class Guard:
    """The reserved paths, and what the administrator allows."""

    data: Sequence[DataPath]  # of replicated data
    packages: frozenset[str] = frozenset()  # dotted; allowed although reserved
    builtins: frozenset[str] = frozenset()  # allowed although they reach outside OPA
    own: Sequence[DataPath] = ()  # packages of modules that OPA got from elsewhere
    own_builtins: frozenset[str] = frozenset()  # that only those modules may call
    builtin: Sequence[DataPath] = ()  # packages of built-in modules, never allowed
    by_bundle: bool = False  # then a package claims all paths below it
    one_by_one: bool = False  # OPA takes no bundle, so no Rego version can be stated

    def findings(self, module: Inspected) -> list[Finding]:
        """Return the reasons to reject a module, none if it may be loaded."""
        package = module.package
        claims = self._of_package(".".join(package), package)
        version = [_ONE_BY_ONE] if self.one_by_one and module.rego_version == V0 else []
        return [*map(Finding, (*claims, *version)), *objections(module, self.builtins)]

    def _of_package(self, name: str, package: DataPath) -> Iterable[str]:
        if package[:1] and package[0] in _RESERVED and not self._allows(name):
            yield f"package {name} is reserved"
        for root in self.builtin:
            if _within(package, root) or _within(root, package):
                yield f"package {name} is built in ({'.'.join(root)})"
        for root in self.data:
            if _within(package, root):
                yield f"package {name} is where replicated data lies"
            elif self.by_bundle and _within(root, package):
                yield f"package {name} is above replicated data ({'.'.join(root)}): go below it"
        for other in self.own if self.by_bundle else ():
            if _within(other, package):
                yield f"package {name} holds a module that OPA loaded by itself ({'.'.join(other)})"

    def _allows(self, name: str) -> bool:
        return any(name == allowed or name.startswith(f"{allowed}.") for allowed in self.packages)


def _within(path: DataPath, root: DataPath) -> bool:
    return path[: len(root)] == tuple(root)


class Inspector(Protocol):
    """The parser."""

    async def inspect(self, sources: Modules) -> dict[str, Inspected]:
        """Return the declarations of modules, without those that do not parse."""


class Declared:
    """Caches the declarations of the present sources."""

    def __init__(self, inspector: Inspector) -> None:
        self._inspector = inspector
        self._known: dict[str, Inspected | None] = {}

    def __getitem__(self, source: str) -> Inspected | None:
        """Return the declarations of a source passed to `learn`; None if it does not parse."""
        return self._known[source]

    async def learn(self, versions: Iterable[Modules]) -> None:
        """Parse the new sources in these, and forget all others. Raises SyncError."""
        sources = {source for modules in versions for source in modules.values()}
        now, known = time.monotonic(), self._known.items()
        # A parser that exceeded a limit may succeed the next time.
        self._known = {
            s: found for s, found in known if s in sources and not may_differ(found, now)
        }
        doubtful: dict[str, str] = {}
        for index, source in enumerate(sources - self._known.keys()):
            package = plain_package(source)
            if package is None or is_suspicious(source):
                doubtful[str(index)] = source
            else:
                self._known[source] = Inspected(package, rego_version=version_of(source))
        if doubtful:
            found = await self._inspector.inspect(doubtful)
            for number, source in doubtful.items():
                self._known[source] = _in_version_of(source, found.get(number))


def _in_version_of(source: str, found: Inspected | None) -> Inspected | None:
    if found is None:
        return None
    return msgspec.structs.replace(found, rego_version=version_of(source))
