"""Deliver policies by `PUT /v1/policies`, one by one, to an OPA that fetches no bundle.

Limits of that API: OPA recompiles everything for each module (100 modules take about 16 s), and
modules with circular dependencies load in no order. Failed modules are retried as long as any
attempt of a round succeeds. Invariant: a module of ours that is not wanted is unloaded. Which ones
are ours is recorded in OPA itself, since another replicator may take over.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import msgspec
import structlog

from kube_sync.errors import Refused
from kube_sync.observability import metrics
from kube_sync.opa.client import LoadedPolicy, OpaClient, OpaError, PolicyRejected
from kube_sync.opa.entry import ENTRY_MODULE
from kube_sync.opa.paths import DataPath
from kube_sync.opa.scratch import Modules

log: structlog.stdlib.BoundLogger = structlog.get_logger()

_RECORD: DataPath = ("kube_sync", "modules")
_GENERATED = "kube_sync/"  # prefix of generated modules


@dataclass(frozen=True, slots=True)
class Delivered:
    """The modules in OPA after a delivery, and the errors of the others."""

    modules: Mapping[str, str | None]  # None: from an earlier process, source unknown
    failures: Mapping[str, OpaError]  # by id


class Puts:
    """Keeps the modules of one OPA, through one epoch, equal to what is wanted."""

    def __init__(self, opa: OpaClient, namespaces: Sequence[str]) -> None:
        """Modules of policy `namespaces` are ours, whoever loaded them."""
        self._opa = opa
        self._prefixes = (_GENERATED, *(f"{namespace}/" for namespace in namespaces))
        self._recorded: set[str] = set()
        self._held: dict[str, str | None] = {}

    async def adopt(self, held: Iterable[LoadedPolicy]) -> None:
        """Find out which of OPA's modules are ours. Raises SyncError."""
        if (record := await self._opa.get_data(_RECORD)) is not None:
            self._recorded = set(msgspec.json.decode(record, type=list[str]))
        # They are all written again, so their present source does not matter.
        self._held = dict.fromkeys(found.id for found in held if self.is_ours(found.id))

    def is_ours(self, policy_id: str) -> bool:
        """Return whether a module is ours."""
        return policy_id.startswith(self._prefixes) or policy_id in self._recorded

    async def deliver(self, wanted: Modules) -> Delivered:
        """Load and unload what differs. Raises SyncError."""
        missing = [i for i, source in wanted.items() if self._held.get(i) != source]
        await self._record(wanted)
        if ENTRY_MODULE in self._held and ENTRY_MODULE not in wanted:
            # First: no request may be routed to a lane that is unloaded module by module.
            await self._rounds([ENTRY_MODULE], self._delete)
        failures = await self._rounds(missing, lambda i: self._put(i, wanted[i]))
        for policy_id, error in failures.items():
            metrics.policy_loads.labels("rejected").inc()
            log.warning("policy_rejected", policy=policy_id, error=str(error))
        unwanted = [i for i in self._held if i not in wanted]
        for policy_id, error in (await self._rounds(unwanted, self._delete)).items():
            log.warning("policy_not_unloaded", policy=policy_id, error=str(error))
        return Delivered(dict(self._held), failures)

    async def _record(self, wanted: Modules) -> None:
        """Record which modules are ours before they are loaded."""
        ours = {*wanted, *self._held}
        if not ours <= self._recorded:
            await self._opa.put_data(_RECORD, msgspec.json.encode(sorted(ours)))
            self._recorded = ours

    async def _rounds(
        self, policy_ids: Iterable[str], attempt: Callable[[str], Awaitable[None]]
    ) -> dict[str, OpaError]:
        """Attempt each, and repeat while that helps, since one module may need another."""
        failures: dict[str, OpaError] = {}
        waiting = sorted(policy_ids)
        while waiting:
            for policy_id in waiting:
                try:
                    await attempt(policy_id)
                    failures.pop(policy_id, None)
                except PolicyRejected as error:
                    failures[policy_id] = error.error
                except Refused as error:
                    # OPA's own authorization policy does not let us load modules of this namespace.
                    failures[policy_id] = OpaError("unauthorized", str(error))
            if len(failures) == len(waiting):
                break
            waiting = sorted(failures)
        return failures

    async def _put(self, policy_id: str, source: str) -> None:
        await self._opa.put_policy(policy_id, source)
        self._held[policy_id] = source
        log.info("policy_loaded", policy=policy_id)

    async def _delete(self, policy_id: str) -> None:
        await self._opa.delete_policy(policy_id)
        del self._held[policy_id]
        log.info("policy_unloaded", policy=policy_id)
