"""Reconcile functions that write statuses and the picture whenever the graph has changed.

Level-based: each call computes everything and writes only what differs; so it does not matter how
often, after which events and after which failures it is called. Only the holder of the Lease may
call it, one call after the other. Retriable failures are raised for an early retry; others are
reported, and retried at a later resync.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from datetime import UTC, datetime
from typing import Any, Final

import structlog

from kube_sync.errors import Retriable, SyncError
from kube_sync.kube.client import KubeClient
from kube_sync.kube.fencedwriter import FencedWriter
from kube_sync.kube.meta import time_text
from kube_sync.observability import metrics
from kube_sync.topology import GroupKind, Locator, Node, Topology
from kube_sync.topology.affected import condition_type, paths_type
from kube_sync.topology.controller.events import ResourceEvent
from kube_sync.topology.controller.workflow import Reconciliation, Workflow
from kube_sync.topology.nodes import Body
from kube_sync.topology.pictures import dot
from kube_sync.topology.raw_json import UNREADABLE, reason
from kube_sync.topology.status.ancestors import is_policy_condition
from kube_sync.topology.status.owned_configmaps import (
    KEY,
    LABELS,
    LIMIT,
    NAME,
    OwnedConfigMaps,
    PathStore,
)
from kube_sync.topology.status.pathmaps import CONFIGMAP_NAMES, PathMaps
from kube_sync.topology.status.plan import Planner, Step
from kube_sync.topology.status.resync import ResyncLoop
from kube_sync.topology.status.target_conditions import is_target_condition
from kube_sync.topology.status.write_cache import LatestObjects, our_status
from kube_sync.topology.status.writer import Addresses, WriteFailure, Writer

log: structlog.stdlib.BoundLogger = structlog.get_logger()

_SLICE: Final = 200  # objects that are processed before the loop yields
_NAMED: Final = 3  # failures in a message
PATHS: Final = {"kube-sync.io/topology": "paths"}  # label of the ConfigMaps with maps of paths


class StatusReconciler:
    """Writes the statuses of a topology's objects."""

    def __init__(
        self,
        client: KubeClient,
        cached: Callable[[Locator], Body | None],
        addresses: Addresses,
        fence: Callable[[], float],
        namespace: str,
        report: Callable[[str], None],
        *,
        unknown_kinds: Callable[[], Collection[GroupKind]] = tuple,
        resync: ResyncLoop | None = None,
        ours: Collection[str] = (),
        paths: bool = True,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Create one; `cached` returns the newest state of an object.

        `fence`: for how many seconds we may write. The picture is in `namespace`; `report` gets the
        state of statuses, in words. `unknown_kinds` returns the kinds whose objects are unknown,
        `resync` schedules the next resync, on the same clock. `ours` are the kinds that are
        configured as those whose conditions we own; `paths`: targets get conditions with what
        applies on each path to them.
        """
        fenced = FencedWriter(fence, metrics.topology_writes, success="written")
        self._latest = LatestObjects(cached)
        self._addresses = addresses
        self._writer = Writer(client, addresses, fenced, self._latest, clock=clock)
        self._picture = OwnedConfigMaps(client, fenced, namespace, "picture", LABELS)
        own = OwnedConfigMaps(client, fenced, namespace, "paths", PATHS)
        self._path_store = PathStore(own, clock) if paths else None
        self._namespace = namespace
        self._ours = frozenset(ours)
        self._report = report
        self._unknown_kinds = unknown_kinds
        self._resync = resync or ResyncLoop(clock=clock)
        self._now = now
        self._problems: Mapping[str, str] = {}

    @property
    def workflow(self) -> Workflow:
        """The workflow to call whenever the graph has changed."""
        return Workflow(tasks=(self.statuses, self.picture))

    def needs_reconcile(self, event: ResourceEvent) -> bool:
        """Return whether an event needs a reconcile: not one of our own write."""
        if event.meaning or event.old is None or event.new is None:
            return True
        # One event may cover several changes and our write: compare with its response.
        known = self._latest.response(event.locator) or event.old
        is_ours = is_policy_condition if self._owns_conditions(event.kind) else is_target_condition
        return our_status(known, is_ours) != our_status(event.new, is_ours)

    async def statuses(self, reconciliation: Reconciliation) -> None:
        """Write all statuses that differ. Raises Retriable if some may succeed on a retry."""
        # For people only: no logic reads it.
        now = time_text(self._now())
        # Conditions of kinds whose objects are unknown now are kept.
        types = (condition_type, paths_type)
        kept_types = frozenset(type_(kind) for kind in self._unknown_kinds() for type_ in types)
        topology = reconciliation.topology
        paths = PathMaps(topology, self._namespace) if self._path_store is not None else None
        planner = Planner(
            topology, self._has_ancestors, now, kept_types, self._owns_conditions, paths
        )
        await planner.compute()
        self._latest.prune()
        error = await self._write_path_maps(paths)
        failures = await self._writer.write(self._steps(planner))
        problems = self._kinds_without_status(planner.topology) | planner.problems
        self._log_problems(problems)
        retry_times = [one.until for one in failures.values() if one.until is not None]
        self._resync.schedule(min(retry_times, default=None))
        self._report_result(failures, problems, self._path_maps_note(paths))
        if error is not None:
            raise error

    async def _write_path_maps(self, paths: PathMaps | None) -> SyncError | None:
        """Write the maps that are too long for a status, before a status names them."""
        if paths is None or self._path_store is None:
            return None
        try:
            await self._path_store.ensure(paths.layout())
        except SyncError as error:  # no status waits for it
            log.warning("paths_not_kept", error=str(error))
            return error
        return None

    def _path_maps_note(self, paths: PathMaps | None) -> str:
        """Describe where the maps too long for a status are, "" if there are none."""
        number = sum(map(len, paths.layout().values())) if paths is not None else 0
        if not number:
            return ""
        first, last = CONFIGMAP_NAMES[0], CONFIGMAP_NAMES[-1]
        return (
            f"; paths to {number} targets are in ConfigMaps {first} to {last} of {self._namespace}"
        )

    async def picture(self, reconciliation: Reconciliation) -> None:
        """Write the picture if it differs. Raises SyncError."""
        await self._picture.ensure(NAME, {KEY: dot(reconciliation.topology, LIMIT)})

    def _has_ancestors(self, kind: GroupKind) -> bool:
        address = self._addresses(kind)
        return address is not None and address.ancestors

    def _owns_conditions(self, kind: GroupKind) -> bool:
        address = self._addresses(kind)
        return address is not None and address.conditions

    def _kinds_without_status(self, topology: Topology) -> dict[str, str]:
        """Return why policies get no status, by their kinds."""
        addresses = {kind: self._addresses(kind) for kind in topology.policy_kinds}
        unknown = self._ours - {str(kind) for kind in addresses}
        why = "named in topology.statuses, and no kind of policies that is followed"
        return dict.fromkeys(sorted(unknown), why) | {
            str(kind): f"nothing is said of its policies: {one.lacking or 'no status.ancestors'}"
            for kind, one in addresses.items()
            if one is not None and not one.gets_status
        }

    async def _steps(self, planner: Planner) -> AsyncIterator[Step]:
        for number, node in enumerate(_objects(planner.topology), 1):
            if planner.has_status(node) and (step := self._step(planner, node)) is not None:
                yield step
            if number % _SLICE == 0:
                await asyncio.sleep(0)

    def _step(self, planner: Planner, node: Node) -> Step | None:
        try:
            current = self._latest.get(node.locator)
            return None if current is None else planner.step(node, current)
        except UNREADABLE as error:  # whatever it contains, it concerns one object
            planner.problems[node.locator] = f"its status is left as it is: {reason(error)}"
            return None

    def _log_problems(self, problems: Mapping[str, str]) -> None:
        """Log each complaint once that no write can resolve."""
        for name, problem in sorted(problems.items()):
            if self._problems.get(name) != problem:
                log.warning("status_incomplete", locator=name, reason=problem)
        self._problems = problems

    def _report_result(
        self, failures: Mapping[Locator, WriteFailure], problems: Mapping[str, str], more: str
    ) -> None:
        if not failures:
            self._report((_listed("ok but for", problems) if problems else "ok") + more)
            return
        message = _listed("statuses not written", {n: one.reason for n, one in failures.items()})
        self._report(message + more)
        retriable = [one for one in failures.values() if one.until is None]
        if retriable:
            raise Retriable(
                message, max((one.after for one in retriable if one.after), default=None)
            )


def _objects(topology: Topology) -> Collection[Node]:
    return [node for node in topology.nodes() if node.owner is None]


def _listed(what: str, reasons: Mapping[Any, str]) -> str:
    first = "; ".join(f"{name}: {reasons[name]}" for name in sorted(reasons)[:_NAMED])
    more = f"; and {len(reasons) - _NAMED} more" if len(reasons) > _NAMED else ""
    return f"{what}: {first}{more}"
