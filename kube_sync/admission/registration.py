"""Keep the webhook's registration with the API server right.

Keeps true, in the webhook configuration that is named, for the webhooks that call us: they
fail closed (`Fail`) from the first policy on and open (`Ignore`) while there is known to be none,
they trust the certificates that the file holds now, and they leave out what it takes to mend a
policy. Level, not edge: what is there is compared with what should be, whoever changed it, and
nothing is written where nothing differs.

Closing is never put off, but by a write that failed or has not been seen yet. All else waits for a
back-off that grows while somebody else keeps changing it. It never makes the process unready: a
webhook that is not asked because of its own registration could not be registered at all.

One process writes, by Lease. Where there can be no Lease every process does, and that is safe: all
of them compute the same from the same API server, and each write is bound to the resourceVersion
that it was computed from. Only while certificates are replaced may they disagree, for as long as
their files do.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NoReturn, Protocol

import structlog

from kube_sync.admission.policygate import PolicyGate
from kube_sync.admission.registration_scope import CaFile, WebhookScope, kept_for_placement
from kube_sync.config import Settings
from kube_sync.errors import Conflict, Misconfigured, Retriable, SyncError
from kube_sync.kube.client import KubeClient
from kube_sync.kube.webhooks import (
    FailurePolicy,
    Json,
    Registered,
    Wish,
    made_right,
    ours,
    replace,
    version,
)
from kube_sync.observability import metrics
from kube_sync.runtime.backoff import Backoff

log: structlog.stdlib.BoundLogger = structlog.get_logger()

LEASE = "kube-sync-admission"
_LOOK_SECONDS = 3.0  # between two looks at the file, and at the clock
_UNSURE_SECONDS = 10.0  # a start takes less; then what is not known counts as a policy
_WRITE_SECONDS = 4.0
_QUIET_SECONDS = 60.0  # without a write: nobody fights about it (any more)


class LeaseStatus(Protocol):
    """The Lease, as far as it matters here."""

    @property
    def held(self) -> bool:
        """Whether this process is the one that writes."""
        ...


class PolicyCache(Protocol):
    """What holds policies, as far as it matters here."""

    def __len__(self) -> int: ...


class Registration:
    """One configuration, kept right."""

    def __init__(
        self,
        client: KubeClient,
        settings: Settings,
        lease: LeaseStatus,
        exists: Callable[[], bool | None],
        note: Callable[[str], None],
        news: asyncio.Event,
        *,
        backoff: Backoff | None = None,
        clock: Callable[[], float] = time.monotonic,
        kept: WebhookScope | None = None,
    ) -> None:
        """Keep the registration for placement, or the one that is `kept`.

        `exists` tells whether there is a policy, None if unknown; `note` is told how it goes.

        `news` is set by whoever knows that something may have changed. Raises Misconfigured when
        the file of certificates is wrong from the start.
        """
        self._client = client
        self._kept = kept or kept_for_placement(settings)[0]
        self._rights = f"get, list, watch and update on {self._kept.kind} ({self._kept.rights})"
        self._lease = lease
        self._exists = exists
        self._note = note
        self._backoff = backoff or Backoff(0.1, 10.0)
        self._clock = clock
        self._ca_file = CaFile(settings.admission.registration.ca_file)
        self._ca_bundle = self._ca_file.current()
        self._news = news
        self.store = Registered(news.set)
        self._unseen: str | None = None  # why the store is not current
        self._unwritten: str | None = None  # why the last write failed
        self._said: str | None = None
        self._unsure_since: float | None = None
        self._tried: FailurePolicy | None = None  # what the last write was to make it
        self._outdated: str | None = None  # the resourceVersion that a write has replaced
        self._wrote_at = self._not_before = clock()

    def seen(self, reason: str | None) -> None:
        """Say why the store is not current, or None when it is."""
        self._unseen = reason
        self._news.set()

    async def run(self) -> NoReturn:
        """Compare and write until cancelled."""
        while True:
            self._news.clear()
            seconds = await self.reconcile()
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._news.wait()

    async def reconcile(self) -> float:
        """Make one comparison, and a write if it is due; returns the seconds until the next."""
        wish, trouble = self._wish()
        found = self.store.found
        self._measure(found)
        if not self.store.listed and self._unseen is None:
            self._note("not listed yet")
            return _LOOK_SECONDS
        seconds = await self._compare(found, wish)
        self._tell(self._missing(found) or trouble or self._unwritten)
        return seconds

    async def _compare(self, found: Json | None, wish: Wish) -> float:
        right = made_right(found, wish) if found else None
        # What a write has replaced is not written again: the watch is on its way to tell.
        written = found is not None and version(found) == self._outdated
        if right is None or right == found or written or not self._lease.held:
            self._unwritten = None
            return _LOOK_SECONDS
        closing = wish.failure_policy == "Fail" and self._tried != "Fail"
        if closing or self._clock() >= self._not_before:
            self._unwritten = await self._write(right, wish.failure_policy)
        return min(_LOOK_SECONDS, max(0.0, self._not_before - self._clock()))

    def _wish(self) -> tuple[Wish, str | None]:
        """Return what should be, and what is wrong with the file if it cannot be said from it."""
        trouble = None
        try:
            self._ca_bundle = self._ca_file.current()
        except Misconfigured as error:
            trouble = f"the last good certificates are kept, since {error}"
        policy = self._failure_policy()
        kept = self._kept
        wish = Wish(kept.path, policy, self._ca_bundle, kept.namespaces, kept.conditions)
        return wish, trouble

    def _failure_policy(self) -> FailurePolicy | None:
        exists, now = self._exists(), self._clock()
        if exists is not None:
            self._unsure_since = None
            return "Fail" if exists else "Ignore"
        if self._unsure_since is None:
            self._unsure_since = now
        # Left alone at first: every start would close it for a moment, and one that fails then
        # would leave it closed where there never was a policy.
        return "Fail" if now - self._unsure_since >= _UNSURE_SECONDS else None

    def _missing(self, found: Json | None) -> str | None:
        if self._unseen is not None:
            return self._unseen + self._needed(self._unseen)
        kept = self._kept
        if found is None:
            return f"there is no {kept.kind} {kept.name}: install {kept.manifests}"
        if not ours(found, kept.path):
            return f"no webhook in {kept.kind} {kept.name} calls {kept.path}"
        return None

    async def _write(self, right: Json, policy: FailurePolicy | None) -> str | None:
        """Write it and note when the next may come; returns why it could not be written."""
        now, self._tried = self._clock(), policy
        if now - self._wrote_at > _QUIET_SECONDS:
            self._backoff.progressed()
        self._wrote_at, retry_after, trouble = now, 0.0, None
        outcome = "written"
        try:
            async with asyncio.timeout(_WRITE_SECONDS):  # or one that hangs puts off closing
                new = await replace(self._client, right, self._kept.kind)
            # The same version: nothing was changed, so nothing is on its way.
            replaced = new != version(right)
            self._outdated = version(right) if replaced else None
            log.info("registration_written", name=self._kept.name, failure_policy=policy)
        except Conflict:
            self._outdated, outcome = version(right), "conflict"
        except (SyncError, TimeoutError) as error:
            outcome = "failed"
            reason = str(error) or "no answer in time"
            trouble = f"cannot be written: {reason}{self._needed(reason)}"
            retry_after = (isinstance(error, Retriable) and error.retry_after) or 0.0
        metrics.admission_registration_writes.labels(outcome).inc()
        self._not_before = self._clock() + max(self._backoff.next_delay(), retry_after)
        return trouble

    def _tell(self, trouble: str | None) -> None:
        """Say how it goes: on the readiness page always, in the log when it is news."""
        self._note(trouble or "ok")
        if trouble is not None and trouble != self._said:
            log.warning("registration_not_kept", name=self._kept.name, reason=trouble)
        elif trouble is None and self._said is not None:
            log.info("registration_kept", name=self._kept.name)
        self._said = trouble

    def _needed(self, reason: str) -> str:
        refused = reason.startswith(("401 ", "403 "))  # as `failure` in kube/client words it
        return f" (needed: {self._rights})" if refused else ""

    def _measure(self, found: Json | None) -> None:
        webhooks = ours(found, self._kept.path) if found else []
        closed = bool(webhooks) and all(w.get("failurePolicy") == "Fail" for w in webhooks)
        self._kept.closed.set(closed)


def policy_exists(
    gate: PolicyGate, maps: Sequence[PolicyCache], *, static: bool = False
) -> bool | None:
    """Tell whether there is a policy; None where the gate is shut only for want of knowledge."""
    if not gate.policy_may_exist:
        return False
    return True if static or any(len(found) for found in maps) else None
