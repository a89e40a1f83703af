"""Leader election by a coordination.k8s.io/v1 Lease, after client-go's `leaderelection`.

Invariant: of several candidates that reach the same API server at most one holds the Lease. A
record counts as expired when it has not changed for its own duration *on our monotonic clock*, so
no other machine's wall clock can take the Lease away or keep it. Every write carries the
resourceVersion that was read. A holder stops acting as the leader well before another candidate may
take over. `run` ends only by cancellation, and then releases the Lease at once.

The Lease keeps its annotations, except those that the holder sets. A new holder has read the
annotations of the former one by then, so they pass data from one to the other.

If there can be no Lease at all (its namespace is missing, or RBAC does not grant it) it counts as
held, after one warning: for work that may be done twice, such as writing a status. For other work
`needed` makes it count as not held. An unreachable API server changes nothing until the Lease
expires.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, NoReturn, Protocol

import msgspec
import structlog

from kube_sync.errors import NotFound, Refused, SyncError, decoded
from kube_sync.kube.client import KubeClient
from kube_sync.kube.meta import ObjectMeta, micro_time
from kube_sync.objects import GroupVersionResource
from kube_sync.observability import metrics
from kube_sync.runtime.backoff import Backoff

log: structlog.stdlib.BoundLogger = structlog.get_logger()

LEASES = GroupVersionResource("coordination.k8s.io", "v1", "leases")

# client-go's own numbers, in seconds.
_DURATION = 15
_RENEW_WITHIN = 10.0  # shorter than the duration: a request may be in flight when it ends
_INTERVAL = 5.0  # between two attempts; the back-off takes half to the whole of it
_LOOK = 2.0  # between two looks of a candidate at another holder's record
_TURN = 4.0  # for one read and one write
_RELEASE = 2.0  # a shutdown must not wait for an unreachable API server
# The namespace may be missing too: without permissions in it the error does not say so.
_GRANT = "kubectl apply -k manifests/base makes the namespace and the roles"


class Leadership(Protocol):
    """Leader election, for those who only ask whether they lead."""

    @property
    def held(self) -> bool:
        """Whether this process may write."""


class _Record(msgspec.Struct, omit_defaults=True):
    """The spec of a Lease; unknown fields are dropped on write."""

    holderIdentity: str | None = None  # noqa: N815 - as on the wire
    leaseDurationSeconds: int | None = None  # noqa: N815
    acquireTime: str | None = None  # noqa: N815
    renewTime: str | None = None  # noqa: N815
    leaseTransitions: int | None = None  # noqa: N815


class _Lease(msgspec.Struct):
    metadata: ObjectMeta
    spec: _Record = msgspec.field(default_factory=_Record)


class Lease:
    """One candidate for one Lease."""

    def __init__(
        self,
        client: KubeClient,
        namespace: str,
        name: str,
        identity: str,
        *,
        needed: bool = False,
        on_acquired: Callable[[], None] = lambda: None,
        notes: Callable[[], Mapping[str, str]] = dict,
        backoff: Backoff | None = None,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """`identity` is unique to this process; `on_acquired` is called when `held` becomes true.

        `needed`: if there can be no Lease, it counts as not held. `notes` returns the annotations
        to keep on it, "" to remove one; it is called only after `on_acquired` was called.
        """
        self._client = client
        self._namespace = namespace
        self._name = name
        self._identity = identity
        self._needed = needed
        self._on_acquired = on_acquired
        self._notes = notes
        self._backoff = backoff or Backoff(_INTERVAL, _INTERVAL)
        self._clock = clock
        self._now = now
        self._seen: tuple[str, _Record] | None = None  # the last record, with its resourceVersion
        self._annotations: Mapping[str, str] = {}
        self._seen_at = 0.0  # when this record was first seen
        self._held_until: float | None = None
        self._without: str | None = None  # why there can be no Lease
        self._reported = False

    @property
    def held(self) -> bool:
        """Whether this process is the leader now."""
        return self.remaining > 0

    @property
    def remaining(self) -> float:
        """Seconds for which this process still holds the Lease without renewing it."""
        if self._without is not None:
            return 0.0 if self._needed else math.inf
        return 0.0 if self._held_until is None else max(0.0, self._held_until - self._clock())

    @property
    def holder(self) -> str | None:
        """The holder that was last seen, None: nobody."""
        return (self._seen[1].holderIdentity or None) if self._seen else None

    @property
    def annotations(self) -> Mapping[str, str]:
        """Its annotations as last read; during `on_acquired`, those of the former holder."""
        return self._annotations

    @property
    def lacking(self) -> str | None:
        """Why there can be no Lease, and how to fix it; None if there can."""
        return self._without

    async def run(self) -> NoReturn:
        """Acquire and renew the Lease until cancelled, then release it."""
        try:
            while True:
                await self._try()
                self._report_change()
                await self._backoff.wait(at_most=self._at_most())
        finally:
            metrics.lease_held.labels(self._name).set(0)
            if self._without is None:
                await self._release()

    def _at_most(self) -> float:
        """Return after how many seconds to try again at the latest.

        A candidate looks more often than the holder renews, so that it knows when the record last
        changed, and tries at the moment when it expires.
        """
        if self.held or self._seen is None or not self._seen[1].holderIdentity:
            return math.inf
        duration = self._seen[1].leaseDurationSeconds or _DURATION
        left = self._seen_at + duration - self._clock()
        return min(left, _LOOK) if left > 0 else math.inf

    async def _try(self) -> None:
        try:
            # Shorter than the Lease's duration: one hanging request must not use up all attempts.
            async with asyncio.timeout(_TURN):
                await self._turn()
        except (Refused, NotFound) as error:
            self._do_without(error)
        except (SyncError, TimeoutError) as error:
            # Also a Conflict: another candidate was first, and the next attempt shows which.
            log.info("lease_not_renewed", lease=self._name, error=str(error) or "no answer in time")
        else:
            if self._without is not None:
                log.info("lease_can_be_had", lease=self._name)
                self._without = None

    async def _turn(self) -> None:
        # Counted from before the request: nobody can have seen its effect earlier.
        started = self._clock()
        found = await self._read()
        if found is None:
            await self._write("POST", "", self._renewed(_Record()), {})
        elif self._may_acquire(found.spec):
            record, notes = self._renewed(found.spec), self._kept(found.spec)
            await self._write("PUT", found.metadata.resource_version, record, notes)
        else:
            self._held_until = None
            return
        # It may have expired since the last attempt: callers that were fenced meanwhile wait for
        # `on_acquired`, and must get it although the same process holds the Lease again.
        self._report_change()
        self._held_until = started + _RENEW_WITHIN

    async def _read(self) -> _Lease | None:
        path = LEASES.path(self._namespace, self._name)
        try:
            body = await self._client.request("GET", path)
        except NotFound:
            return None
        found = decoded(body, _Lease, "what answers is no Lease")
        self._annotations = found.metadata.annotations or {}
        seen = (found.metadata.resource_version, found.spec)
        if seen != self._seen:
            self._seen, self._seen_at = seen, self._clock()
        return found

    def _other_holds(self) -> bool:
        return self._seen is not None and not self._may_acquire(self._seen[1])

    def _may_acquire(self, record: _Record) -> bool:
        if not record.holderIdentity or record.holderIdentity == self._identity:
            return True
        return self._clock() >= self._seen_at + (record.leaseDurationSeconds or _DURATION)

    def _renewed(self, old: _Record) -> _Record:
        ours, now = old.holderIdentity == self._identity, micro_time(self._now())
        transitions = old.leaseTransitions or 0
        return _Record(
            holderIdentity=self._identity,
            leaseDurationSeconds=_DURATION,
            acquireTime=old.acquireTime if ours else now,
            renewTime=now,
            leaseTransitions=transitions + (not ours and old != _Record()),
        )

    async def _write(
        self, method: str, version: str, record: _Record, notes: Mapping[str, str]
    ) -> None:
        metadata: dict[str, Any] = {"name": self._name, "namespace": self._namespace}
        if version:
            metadata["resourceVersion"] = version
        if notes:
            metadata["annotations"] = notes
        group_version = LEASES.api_version
        body = {"apiVersion": group_version, "kind": "Lease", "metadata": metadata, "spec": record}
        path = LEASES.path(self._namespace, None if method == "POST" else self._name)
        await self._client.request(method, path, body=msgspec.json.encode(body))

    def _kept(self, record: _Record) -> dict[str, str]:
        """Return the annotations to write, in place of those that were read."""
        # Before `on_acquired` was called, the Lease's annotations are newer than our `notes`.
        ours = self._reported and record.holderIdentity == self._identity
        notes = self._notes() if ours else {}
        return {name: value for name, value in {**self._annotations, **notes}.items() if value}

    async def _release(self) -> None:
        """Release the Lease; read it again first, since an answer to a write may be lost."""
        self._held_until = None
        try:
            async with asyncio.timeout(_RELEASE):
                found = await self._read()
                if found is not None and found.spec.holderIdentity == self._identity:
                    notes = self._kept(found.spec)
                    found.spec.holderIdentity = ""
                    found.spec.renewTime = micro_time(self._now())
                    await self._write("PUT", found.metadata.resource_version, found.spec, notes)
                    log.info("lease_released", lease=self._name)
        except (SyncError, TimeoutError) as error:
            log.info("lease_not_released", lease=self._name, error=str(error) or "no answer")

    def _do_without(self, error: Refused | NotFound) -> None:
        if self._other_holds():
            # The Lease exists and its holder is alive: perhaps our token is just being replaced.
            log.info("lease_not_renewed", lease=self._name, error=str(error))
            return
        missing = isinstance(error, NotFound)
        make = f"kubectl create namespace {self._namespace}" if missing else _GRANT
        reason = f"{error}; {make}, or set coordination.namespace ({self._namespace})"
        if self._without is None:
            event = "no_lease_counts_as_not_held" if self._needed else "no_lease_counts_as_held"
            log.warning(event, lease=self._name, reason=reason)
        self._without = reason

    def _report_change(self) -> None:
        """Log and report a change of `held` since the last attempt."""
        before, self._reported = self._reported, self.held
        metrics.lease_held.labels(self._name).set(self._reported)
        if self._reported and not before:
            log.info("lease_held", lease=self._name, identity=self._identity)
            self._on_acquired()
        elif before and not self._reported:
            log.warning("lease_lost", lease=self._name, identity=self._identity)
