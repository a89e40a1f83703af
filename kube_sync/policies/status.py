"""Writes outcomes onto objects: ConfigMap annotations, PlacementPolicy statuses; leader only.

Invariant: only the replica that holds the Lease writes, so that replicas with their own OPAs do not
overwrite each other. The newest wanted status of each object is queued until the Lease is held, and
written only onto the version that it is about: what was queued long ago may be wrong by then. A
status is for people: it neither influences nor delays what is in force, and its caller does not
wait for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NoReturn, Protocol

import msgspec
import structlog

from kube_sync.errors import Conflict, NotFound, Refused, Retriable, SyncError, Terminal
from kube_sync.kube.client import KubeClient
from kube_sync.kube.lease import Leadership
from kube_sync.kube.patch import ObjectReference, annotate, apply_status
from kube_sync.kube.placementpolicies import KIND, PLACEMENT_POLICIES, PlacementPolicy
from kube_sync.kube.policymaps import CONFIGMAPS, STATUS
from kube_sync.kube.policynames import called, object_key
from kube_sync.objects import ObjectKey
from kube_sync.opa.client import OpaError
from kube_sync.policies.configmap_status import bounded
from kube_sync.runtime.backoff import Backoff

log: structlog.stdlib.BoundLogger = structlog.get_logger()

FIELD_MANAGER = "kube-sync-replicator"
OK = '{"status":"ok"}'
_CHARACTERS = 1_000  # of a message
_SLOWLY = 60.0  # seconds until a status that was refused is tried again


class Subject(Protocol):
    """A ConfigMap as it was read."""

    @property
    def key(self) -> ObjectKey:
        """Its key."""

    @property
    def version(self) -> str:
        """The resourceVersion that the status is about."""


@dataclass(frozen=True, slots=True)
class _Annotation:
    version: str
    status: str

    async def write(self, client: KubeClient, key: ObjectKey) -> None:
        try:
            await self._annotate(client, key, self.status)
        except Terminal:
            # If others' annotations leave no room, no status is better than a wrong one: that of an
            # earlier version, or one that the author wrote.
            await self._annotate(client, key, None)
            raise

    async def _annotate(self, client: KubeClient, key: ObjectKey, status: str | None) -> None:
        annotations = {STATUS: status}
        await annotate(client, CONFIGMAPS, key, self.version, annotations, FIELD_MANAGER)


@dataclass(frozen=True, slots=True)
class _Status:
    uid: str
    version: str
    status: Mapping[str, Any]

    async def write(self, client: KubeClient, key: ObjectKey) -> None:
        of = ObjectReference(PLACEMENT_POLICIES, KIND, object_key(key), self.uid)
        await apply_status(client, of, self.status, FIELD_MANAGER, version=self.version)


class StatusWriter:
    """Writes queued statuses while the Lease is held."""

    def __init__(
        self, client: KubeClient, leadership: Leadership, *, backoff: Backoff | None = None
    ) -> None:
        self._client = client
        self._leadership = leadership
        self._backoff = backoff or Backoff()
        self._news = asyncio.Event()
        self._due: dict[ObjectKey, _Annotation | _Status] = {}
        self._refused: dict[ObjectKey, _Annotation | _Status] = {}  # a permission is missing
        self._retry_at: float | None = None  # when these are tried again, by the loop's clock

    async def annotate(self, subject: Subject, status: str) -> None:
        """Queue this status for a ConfigMap, in place of one that is queued already."""
        self.want(subject, status)

    def want(self, subject: Subject, status: str) -> None:
        """Queue this status for a ConfigMap, in place of one that is queued already."""
        self._due[subject.key] = _Annotation(subject.version, status)
        self._news.set()

    def want_status(self, policy: PlacementPolicy, status: Mapping[str, Any]) -> None:
        """Queue this status for a PlacementPolicy, in place of one that is queued already."""
        self._due[policy.key] = _Status(policy.uid, policy.version, status)
        self._news.set()

    def wake(self) -> None:
        """Check again whether the Lease is held."""
        self._news.set()

    async def run(self) -> NoReturn:
        """Write queued statuses until cancelled."""
        while True:
            await self._until_due()
            while self._due and self._leadership.held:
                await self._write(*next(iter(self._due.items())))

    async def _until_due(self) -> None:
        """Wait for a status to write, or until those that were refused are tried again."""
        with suppress(TimeoutError):
            async with asyncio.timeout_at(self._retry_at):
                await self._news.wait()
        self._news.clear()
        if self._retry_at is not None and asyncio.get_running_loop().time() >= self._retry_at:
            self._due, self._refused = {**self._refused, **self._due}, {}
            self._retry_at = None

    async def _write(self, key: ObjectKey, wanted: _Annotation | _Status) -> None:
        self._refused.pop(key, None)
        try:
            await wanted.write(self._client, key)
        except Retriable as error:
            log.warning("status_not_written", subject=called(key), error=str(error))
            await self._backoff.wait(error.retry_after)
            self._due[key] = self._due.pop(key)  # to the end of the queue
            return
        except (Conflict, NotFound):
            # It was changed or deleted meanwhile: its next version gets its own status.
            log.info("status_out_of_date", subject=called(key))
        except SyncError as error:
            log.warning("status_not_written", subject=called(key), error=str(error))
            if isinstance(error, Refused):
                self._refused[key] = wanted
                if self._retry_at is None:
                    self._retry_at = asyncio.get_running_loop().time() + _SLOWLY
        self._backoff.progressed()
        # Compare by identity: an equal newer one may have been queued meanwhile.
        if self._due.get(key) is wanted:
            del self._due[key]


def status_of(failures: Sequence[OpaError]) -> str:
    """Return the annotation's text: "ok", or every cause with file and message."""
    if not failures:
        return OK
    causes = [cause for failure in failures for cause in failure.errors or [_cause(failure)]]
    message = failures[0].message[:_CHARACTERS]
    error = OpaError(failures[0].code, message, bounded(causes))
    return msgspec.json.encode({"status": "error", "error": error}).decode()


def _cause(failure: OpaError) -> dict[str, str]:
    return {"message": str(failure)}
