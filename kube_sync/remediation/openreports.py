"""Controller that keeps a report on each namespace: its objects that are refused, held or drifted.

Level-based: every round compares what the reconciler holds with the reports that there are, and
writes what differs; without a difference it sends nothing. A namespace without such objects has no
report. Only the leader writes, and only once it has looked at every object: before that it does not
know what is missing. Reports are for people; nothing reads them here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final, NoReturn, Protocol

import structlog

from kube_sync.errors import SyncError
from kube_sync.kube.cache import Cache
from kube_sync.kube.fencedwriter import FencedWriter
from kube_sync.kube.openreports import (
    NAME,
    REPORTS,
    Finding,
    Outcome,
    Report,
    content,
    document,
    report_of,
)
from kube_sync.objects import GroupVersionResource, ObjectKey
from kube_sync.remediation.decision_cache import Key
from kube_sync.remediation.holds import Wait
from kube_sync.runtime.cooperative import in_slices

log: structlog.stdlib.BoundLogger = structlog.get_logger()

_PASSING: Final = frozenset(["unseen", "adding"])  # holds that are over in a moment
_HELD: Final[tuple[str, Outcome]] = ("held", "warn")
# Category and result of a hold, by its kind. The others are of the brakes.
_KINDS: Final[Mapping[str, tuple[str, Outcome]]] = {
    "errors": ("refused", "fail"),  # the policy objects
    "failed": ("refused", "error"),
    "undefined": ("refused", "error"),
    "refused": ("refused", "error"),  # the API server refuses the PATCH
    "forbidden": ("refused", "error"),
    "dry-run": ("drifted", "fail"),  # it is not as decided, and nothing is written
    "manual": ("drifted", "fail"),
    "rival": ("drifted", "fail"),
}


class Holds(Protocol):
    """What the reconciler holds."""

    @property
    def active(self) -> bool:
        """Whether decisions are known and may be carried out."""

    @property
    def settled(self) -> bool:
        """Whether every object has been looked at."""

    @property
    def waiting(self) -> Iterable[tuple[Key, Wait]]:
        """The objects that are held."""


class Api(Protocol):
    """Writes reports."""

    async def apply(self, wanted: dict[str, Any], found: Report | None) -> Report:
        """Apply a report, to the one that was found or to a new one. Raises SyncError."""

    async def delete(self, found: Report) -> None:
        """Delete a report. Raises SyncError."""


class ReportKeeper:
    """Keeps the reports on all namespaces."""

    def __init__(
        self,
        holds: Holds,
        api: Api,
        fenced: FencedWriter,
        kind_of: Callable[[GroupVersionResource], Awaitable[str]],
        note: Callable[[str], None],
        *,
        most: int,
        seconds: float,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        """Give reports at most `most` results, with `seconds` between two rounds.

        `kind_of` returns the kind of a resource, and raises SyncError; `note` gets the state in
        words.
        """
        self._holds, self._api, self._fenced = holds, api, fenced
        self._kind_of, self._note, self._sleep = kind_of, note, sleep
        self._most, self._seconds = most, seconds
        self._knows_all = False  # this process has looked at every object since it may write
        self._troubles: dict[str, str] = {}
        self._is_missing = False  # the kind, and it was said
        self.reports = Cache[Report](report_of, on_list=self._listed)

    def _listed(self) -> None:
        missing = not self.reports.served
        if missing and not self._is_missing:
            log.warning("reports_not_served", resource=str(REPORTS), hint="is its CRD there?")
        self._is_missing = missing

    async def run(self) -> NoReturn:
        """Keep the reports until cancelled."""
        while True:
            await self._sleep(self._seconds)
            await self.compare()

    async def compare(self) -> None:
        """Write each report that differs from what is held now."""
        if not self._may_compare():
            return
        try:
            wanted = await self._found()
        except SyncError as error:
            self._failed("", error)
            return
        namespaces = {key.namespace for key in self.reports.objects} | wanted.keys()
        # A namespace that was deleted takes its trouble along.
        self._troubles = {one: why for one, why in self._troubles.items() if one in namespaces}
        for namespace in sorted(namespaces):
            try:
                await self._keep(namespace, wanted.get(namespace, ()))
            except SyncError as error:
                self._failed(namespace, error)
            else:
                self._troubles.pop(namespace, None)
        self._report_state()

    def _may_compare(self) -> bool:
        if not self._fenced.may_write:
            self._knows_all = False
        elif self._holds.active and self.reports.served:
            self._knows_all = self._knows_all or self._holds.settled
            return self._knows_all
        return False

    async def _found(self) -> dict[str, list[Finding]]:
        """Return the findings of each namespace; objects outside of any have no report."""
        found: dict[str, list[Finding]] = {}
        async for (gvr, key), wait in in_slices(self._holds.waiting):
            if key.namespace and wait.kind not in _PASSING:
                kind = await self._kind_of(gvr)
                found.setdefault(key.namespace, []).append(_finding(gvr, kind, key, wait))
        return found

    async def _keep(self, namespace: str, findings: Sequence[Finding]) -> None:
        key = ObjectKey(namespace, NAME)
        found = self.reports.get(key)
        if findings:
            wanted = document(namespace, findings, self._most)
            if found is None or found.content != content(wanted):
                await self._apply(key, wanted, found)
                left_out = max(0, len(findings) - self._most)
                log.info("report_written", namespace=namespace, left_out=left_out)
        elif found is not None:
            await self._fenced.send("delete", partial(self._api.delete, found))
            self.reports.put(key, None)
            log.info("report_removed", namespace=namespace)

    async def _apply(self, key: ObjectKey, wanted: dict[str, Any], found: Report | None) -> None:
        with self.reports.writing(key) as write:
            written = await self._fenced.send("write", partial(self._api.apply, wanted, found))
        if not write.overtaken:
            self.reports.put(key, written)

    def _failed(self, namespace: str, error: SyncError) -> None:
        if self._troubles.get(namespace) != str(error):
            log.warning("report_not_written", namespace=namespace, error=str(error))
        self._troubles[namespace] = str(error)
        self._report_state()

    def _report_state(self) -> None:
        first = min(self._troubles, default=None)
        where = f"{first}: " if first else ""  # "": no namespace's alone
        self._note("ok" if first is None else f"{where}{self._troubles[first]}")


def _finding(gvr: GroupVersionResource, kind: str, key: ObjectKey, wait: Wait) -> Finding:
    category, result = _KINDS.get(wait.kind, _HELD)
    # Without times, which would make each round a write.
    release = "" if wait.until is not None and wait.approve is None else f" ({wait.release})"
    properties = {} if wait.approve is None else {"approve": wait.approve}
    if wait.changes:
        properties["changes"] = ", ".join(sorted(wait.changes))
    return Finding(
        gvr.api_version,
        kind,
        key,
        wait.uid,
        category,
        wait.kind,
        result,
        wait.reason + release,
        int(wait.since),
        properties,
    )
