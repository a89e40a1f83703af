"""What modules say of themselves; their package read off the first line where that is beyond doubt.

Asking OPA to parse every module takes as long as compiling them all: only those are asked about
whose package clause is not plain, or that may be what is not allowed.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Protocol

import msgspec

from kube_sync.opa.inspection import Inspected, is_suspicious, may_differ
from kube_sync.opa.modules import plain_package
from kube_sync.opa.scratch import Modules
from kube_sync.regoversion import version_of


class Inspector(Protocol):
    """The parser."""

    async def inspect(self, sources: Modules) -> dict[str, Inspected]:
        """Return what modules say of themselves; those that do not parse are left out."""
        ...


class Declared:
    """What is known of the sources at hand."""

    def __init__(self, inspector: Inspector) -> None:
        self._inspector = inspector
        self._known: dict[str, Inspected | None] = {}

    def __getitem__(self, source: str) -> Inspected | None:
        """Return what a source says that was learnt; None if it does not parse."""
        return self._known[source]

    async def learn(self, versions: Iterable[Modules]) -> None:
        """Learn what is new in these, and forget all others. Raises SyncError."""
        sources = {source for modules in versions for source in modules.values()}
        now, known = time.monotonic(), self._known.items()
        # Whether a parser gives an answer may be another matter next time.
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
