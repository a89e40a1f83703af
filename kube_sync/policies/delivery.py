"""Detect how policies get into one OPA (bundle or policy API), and which modules OPA has already.

OPA's configuration says whether it fetches a bundle. Modules that it got from elsewhere are
compiled together with ours, and none of ours may replace them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import structlog

from kube_sync.opa.client import LoadedPolicy, OpaClient, OpaError
from kube_sync.opa.inspection import is_suspicious, without_metadata
from kube_sync.opa.scratch import Cause, Modules
from kube_sync.policies.bundle import RESOURCE
from kube_sync.policies.guard import Guard, Inspector
from kube_sync.policies.policy_api import Puts
from kube_sync.policies.reading import TreeCompiler

log: structlog.stdlib.BoundLogger = structlog.get_logger()


class Compiler(TreeCompiler, Inspector, Protocol):
    """The scratch OPA."""

    async def check(self, modules: Modules, given: Collection[str] = ()) -> list[Cause]:
        """Compile all together; they may call the builtins in `given`."""

    async def parsed(self, modules: Modules) -> dict[str, Any]:
        """Return the parsed syntax trees with locations, by id."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """The delivery of policies to one OPA, in one epoch."""

    guard: Guard
    static: Modules  # OPA's own modules; none if they do not compile here
    held: Modules  # all modules in OPA when it was queried
    opaque: bool  # some of OPA's own modules do not compile here
    puts: Puts | None  # None: by bundle
    is_ours: Callable[[str], bool]


class Pathfinder:
    """Detects the delivery, and refreshes OPA's own modules."""

    def __init__(
        self, opa: OpaClient, compiler: Compiler, guard: Guard, generated: Modules
    ) -> None:
        self._opa = opa
        self._compiler = compiler
        self._guard = guard
        self._generated = generated

    async def find(self, namespaces: Sequence[str]) -> Delivery:
        """Detect how OPA gets its policies. Raises SyncError."""
        bundle = await self._opa.bundle_from(RESOURCE)
        held = await self._opa.policies()
        log.info("policies_go_by", way="put" if bundle is None else "bundle")
        if bundle is not None:
            return await self._beside(held, None, lambda i: i.startswith(f"{bundle}/"))
        puts = Puts(self._opa, namespaces)
        await puts.adopt(held)
        return await self._beside(held, puts, puts.is_ours)

    async def by_bundle(self) -> bool:
        """Return whether OPA fetches its policies as a bundle. Raises SyncError."""
        return await self._opa.bundle_from(RESOURCE) is not None

    async def look_again(self, way: Delivery) -> Delivery:
        """Refresh the modules that OPA has got from elsewhere. Raises SyncError."""
        return await self._beside(await self._opa.policies(), way.puts, way.is_ours)

    async def _beside(
        self, held: Sequence[LoadedPolicy], puts: Puts | None, is_ours: Callable[[str], bool]
    ) -> Delivery:
        everything = {found.id: found.raw for found in held}
        own = [found for found in held if not is_ours(found.id)]
        static = {f"static/{found.id}": found.raw for found in own}
        static, builtins = await self._tolerated(static)
        if causes := await self._compiler.check({**static, **self._generated}, builtins):
            # They are in force all the same: OPA may run with options that are unknown here.
            log.warning("own_policies_do_not_compile", error=str(OpaError(errors=causes)))
            static = {}
        packages = sorted({found.package for found in own})
        by_bundle = puts is None
        guard = replace(
            self._guard,
            own=packages,
            own_builtins=builtins,
            by_bundle=by_bundle,
            one_by_one=not by_bundle,
        )
        return Delivery(guard, static, everything, bool(own) and not static, puts, is_ours)

    async def _tolerated(self, static: Modules) -> tuple[dict[str, str], frozenset[str]]:
        """Return OPA's own modules without schemas, and the builtins that only they may call.

        OPA's operator provided these modules; they are in force whatever they contain.
        """
        suspicious = {i: source for i, source in static.items() if is_suspicious(source)}
        found = await self._compiler.inspect(suspicious) if suspicious else {}
        plain = {i: without_metadata(static[i]) for i in found if found[i].schemas}
        return {**static, **plain}, frozenset(n for one in found.values() for n in one.names)
