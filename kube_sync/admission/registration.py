"""Reconciles the webhook configuration: failurePolicy, caBundle, selector, matchConditions.

Invariant, for the webhooks of the named configuration that call us: they fail closed (`Fail`) from
the first policy on and open (`Ignore`) while it is known that there is none, they trust the
certificates that the file contains now, and they exclude what is needed to repair a policy.
Level-based: the present state is compared with the wanted one, whoever changed it, and nothing is
written if nothing differs.

Failing closed is never delayed, except by a write that failed or is not observed yet. All other
writes wait for a back-off that grows while somebody else keeps changing it. It never makes the
process unready: a webhook that gets no requests because of its own registration could not be
registered at all.

One process writes, by Lease. Without a Lease every process does, and that is safe: all compute the
same from the same API server, and each write is bound to the resourceVersion that it was computed
from. They may disagree only while certificates are rotated, for as long as their files do.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Sized
from contextlib import suppress
from typing import NoReturn

import structlog

from kube_sync.admission.policygate import PolicyGate
from kube_sync.admission.registration_scope import CaFile, WebhookScope, kept_for_placement
from kube_sync.config import Settings
from kube_sync.errors import Conflict, Misconfigured, Retriable, SyncError
from kube_sync.kube.client import KubeClient
from kube_sync.kube.lease import Leadership
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
_LOOK_SECONDS = 3.0  # between two checks of the file, and of the clock
_UNSURE_SECONDS = 10.0  # a start takes less; after that, unknown counts as a policy
_WRITE_SECONDS = 4.0
_QUIET_SECONDS = 60.0  # without a write: nobody fights about it (any more)


class Registration:
    """Reconciles one webhook configuration."""

    def __init__(
        self,
        client: KubeClient,
        settings: Settings,
        lease: Leadership,
        exists: Callable[[], bool | None],
        note: Callable[[str], None],
        changed: asyncio.Event,
        *,
        backoff: Backoff | None = None,
        clock: Callable[[], float] = time.monotonic,
        kept: WebhookScope | None = None,
    ) -> None:
        """Reconcile the registration for placement, or the one that is `kept`.

        `exists` returns whether there is a policy, None if unknown; `note` gets the state.
        `changed` is set when something may have changed. Raises Misconfigured if the file of
        certificates is invalid at the start.
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
        self._changed = changed
        self.store = Registered(changed.set)
        self._unseen: str | None = None  # why the store is not current
        self._unwritten: str | None = None  # why the last write failed
        self._reported: str | None = None
        self._unsure_since: float | None = None
        self._tried: FailurePolicy | None = None  # the failurePolicy of the last write
        self._outdated: str | None = None  # the resourceVersion that a write has replaced
        self._wrote_at = self._not_before = clock()

    def seen(self, reason: str | None) -> None:
        """Set why the store is not current, None when it is."""
        self._unseen = reason
        self._changed.set()

    async def run(self) -> NoReturn:
        """Reconcile until cancelled."""
        while True:
            self._changed.clear()
            seconds = await self.reconcile()
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._changed.wait()

    async def reconcile(self) -> float:
        """Compare once and write if it is due; return the seconds until the next comparison."""
        wanted, trouble = self._wanted()
        found = self.store.found
        self._measure(found)
        if not self.store.listed and self._unseen is None:
            self._note("not listed yet")
            return _LOOK_SECONDS
        seconds = await self._compare(found, wanted)
        self._report(self._missing(found) or trouble or self._unwritten)
        return seconds

    async def _compare(self, found: Json | None, wanted: Wish) -> float:
        right = made_right(found, wanted) if found else None
        # A version that our write replaced: the watch will deliver the new one.
        written = found is not None and version(found) == self._outdated
        if right is None or right == found or written or not self._lease.held:
            self._unwritten = None
            return _LOOK_SECONDS
        closing = wanted.failure_policy == "Fail" and self._tried != "Fail"
        if closing or self._clock() >= self._not_before:
            self._unwritten = await self._write(right, wanted.failure_policy)
        return min(_LOOK_SECONDS, max(0.0, self._not_before - self._clock()))

    def _wanted(self) -> tuple[Wish, str | None]:
        """Return the wanted state, and what is wrong with the file of certificates, if anything."""
        trouble = None
        try:
            self._ca_bundle = self._ca_file.current()
        except Misconfigured as error:
            trouble = f"the last good certificates are kept, since {error}"
        policy = self._failure_policy()
        kept = self._kept
        wanted = Wish(kept.path, policy, self._ca_bundle, kept.namespaces, kept.conditions)
        return wanted, trouble

    def _failure_policy(self) -> FailurePolicy | None:
        exists, now = self._exists(), self._clock()
        if exists is not None:
            self._unsure_since = None
            return "Fail" if exists else "Ignore"
        if self._unsure_since is None:
            self._unsure_since = now
        # Unchanged at first: every start would close it for a moment, and a start that fails then
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
        """Write it and set the time of the next write; return why it could not be written."""
        now, self._tried = self._clock(), policy
        if now - self._wrote_at > _QUIET_SECONDS:
            self._backoff.progressed()
        self._wrote_at, retry_after, trouble = now, 0.0, None
        outcome = "written"
        try:
            async with asyncio.timeout(_WRITE_SECONDS):  # a hanging one must not delay `Fail`
                new = await replace(self._client, right, self._kept.kind)
            # The same version: nothing was changed, so the watch delivers nothing.
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

    def _report(self, trouble: str | None) -> None:
        """Report the state: always on the readiness page, in the log when it changes."""
        self._note(trouble or "ok")
        if trouble is not None and trouble != self._reported:
            log.warning("registration_not_kept", name=self._kept.name, reason=trouble)
        elif trouble is None and self._reported is not None:
            log.info("registration_kept", name=self._kept.name)
        self._reported = trouble

    def _needed(self, reason: str) -> str:
        refused = reason.startswith(("401 ", "403 "))  # as `failure` in kube/client words it
        return f" (needed: {self._rights})" if refused else ""

    def _measure(self, found: Json | None) -> None:
        webhooks = ours(found, self._kept.path) if found else []
        closed = bool(webhooks) and all(w.get("failurePolicy") == "Fail" for w in webhooks)
        self._kept.closed.set(closed)


def policy_exists(gate: PolicyGate, maps: Iterable[Sized], *, static: bool = False) -> bool | None:
    """Return whether there is a policy; None if the gate is closed only until it is known."""
    if not gate.policy_may_exist:
        return False
    return True if static or any(len(found) for found in maps) else None
