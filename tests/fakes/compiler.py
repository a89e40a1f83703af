"""A scratch OPA in memory: the same two rules about text as the fake OPA's, and packages."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from kube_sync.opa.scratch import Cause, Inspected, Modules
from tests.fakes.opa import compile_errors

_PACKAGE = re.compile(r"^package (\S+)", re.MULTILINE)
_NAME = re.compile(r"[a-z_]+(?:\.[a-z_]+)+")


class FakeCompiler:
    """Compiles text; notes what it was asked."""

    def __init__(self) -> None:
        self.checked: list[Modules] = []
        self.inspected: list[Modules] = []

    async def check(self, modules: Modules) -> list[Cause]:
        """Return what is wrong with them together."""
        self.checked.append(dict(modules))
        return compile_errors({i.removeprefix("static/"): s for i, s in modules.items()})

    async def inspect(self, sources: Modules, suspects: Iterable[str]) -> dict[str, Inspected]:
        """Return their packages; text without one does not parse."""
        self.inspected.append(dict(sources))
        wanted = set(suspects)
        return {
            policy_id: Inspected(
                tuple(found[1].split(".")),
                frozenset(_NAME.findall(source)) if policy_id in wanted else frozenset(),
            )
            for policy_id, source in sources.items()
            if (found := _PACKAGE.search(source))
        }

    async def compiled(self, modules: Modules) -> dict[str, Any]:
        """Return no tree that can be read: everything counts as read."""
        return dict.fromkeys(modules)
