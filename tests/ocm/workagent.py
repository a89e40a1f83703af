"""The work agent of one managed cluster: works of the hub in, objects on the spoke, status back.

Keeps true, as the agent does: a work is applied when its generation changes, when it failed, and
every now and then; what it says of the objects (available, feedback) is read after each change of
the work and every `interval` seconds, up to 1.9 times as long, so that the hub hears late; nothing
is written when nothing changed; a work that goes keeps its finalizer until what it applied is
gone, but for what another work holds too. All that it knows lies in the works: it may be ended and
started again at any time.

A work that OCM's webhook would have refused ends it with WorkRefused: no test goes on after that.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, NoReturn

import msgspec

from kube_sync.errors import Conflict, NotFound, SyncError
from kube_sync.kube.client import KubeClient
from kube_sync.kube.collection import Event, Item, KubeCollection
from kube_sync.kube.reflector import Reflector
from kube_sync.runtime.backoff import Backoff
from tests.ocm.feedback import feedback
from tests.ocm.spoke import NoSuchKind, NotAllowed, Spoke
from tests.ocm.statuses import (
    NOT_THERE,
    THERE,
    UNKNOWN,
    applied_entry,
    applied_status,
    available_status,
    is_true,
    not_fetched,
    with_available,
    with_feedback,
)
from tests.ocm.works import (
    FINALIZER,
    WORKS,
    Body,
    WorkRefused,
    config_of,
    identity,
    manifests_of,
    owns,
    placed_of,
    refusal,
)

_RETRY_SECONDS = 0.2
_WATCH_SECONDS = 0.2  # the agent watches where a work asks for it; here it looks often


class _Works:
    """A Store of the cluster's works: the newest of each, and which of them are news."""

    def __init__(self, due: Callable[[str], None]) -> None:
        self.bodies: dict[str, Body] = {}
        self.listed = asyncio.Event()  # once
        self._listing: dict[str, Body] = {}
        self._due = due

    async def page(self, items: Sequence[Item]) -> None:
        self._listing |= {item.key.name: msgspec.json.decode(item.body) for item in items}

    def finish(self, *, known: bool) -> None:
        self.bodies, self._listing = (self._listing if known else {}), {}
        self.listed.set()
        for name in self.bodies:
            self._due(name)

    def abandon(self) -> None:
        self._listing = {}

    def apply(self, event: Event) -> None:
        assert event.item is not None
        name = event.item.key.name
        if event.type == "DELETED":
            self.bodies.pop(name, None)
        else:
            self.bodies[name] = msgspec.json.decode(event.item.body)
            self._due(name)


class WorkAgent:
    """Runs one cluster's works, whose name is their namespace on the hub."""

    def __init__(
        self,
        hub: KubeClient,
        spoke: KubeClient,
        cluster: str,
        *,
        interval: float = 30.0,
        resync: float = 300.0,
        raw: bool = False,
        executors: bool = False,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        """`interval` and `resync` are in seconds; `raw` is the gate RawFeedbackJsonString.

        `executors`: heed the executor of a work, for which its account has to be there.
        """
        self._hub = hub
        self._spoke = Spoke(spoke)
        self._cluster = cluster
        self._interval = interval
        self._resync = resync
        self._raw = raw
        self._executors = executors
        self._jitter = jitter
        self._works = _Works(self._now_due)
        self._due: dict[str, float] = {}  # when to look at a work again
        self._applied: dict[str, tuple[int, float]] = {}  # generation and time, by this process
        self._news = asyncio.Event()
        self.listed = self._works.listed
        self.troubles: list[str] = []  # what did not work out, and was tried again

    async def run(self) -> NoReturn:
        """Do a work agent's work for ever. Raises WorkRefused, within an ExceptionGroup."""
        source = KubeCollection(self._hub, WORKS, namespace=self._cluster)
        reflector = Reflector(
            f"works of {self._cluster}",
            source,
            self._works,
            lambda trouble: self.troubles.append(trouble) if trouble else None,
            backoff=Backoff(longest=1.0),
        )
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(reflector.run())
            tasks.create_task(self._look())
        raise AssertionError

    def _now_due(self, name: str) -> None:
        self._due[name] = 0.0
        self._news.set()

    async def _look(self) -> NoReturn:
        while True:
            self._news.clear()
            now = time.monotonic()
            for name in [name for name, at in self._due.items() if at <= now]:
                await self._one(name)
            await self._until(min(self._due.values(), default=now + 60.0))

    async def _until(self, at: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, at - time.monotonic())):
                await self._news.wait()

    async def _one(self, name: str) -> None:
        work = self._works.bodies.get(name)
        if work is None:
            self._due.pop(name, None)
            self._applied.pop(name, None)
            return
        # Before it is looked at, not after: what happens meanwhile makes it due again.
        self._due[name] = time.monotonic() + self._wait(work)
        try:
            settled = await self._sync(name, work)
        except Conflict:
            settled = True  # a newer one is on its way to us
        except SyncError as error:
            self.troubles.append(f"{name}: {error}")
            settled = False
        if not settled:
            self._due[name] = min(self._due[name], time.monotonic() + _RETRY_SECONDS)

    def _wait(self, work: Body) -> float:
        configs = work["spec"].get("manifestConfigs", ())
        if any(config.get("feedbackScrapeType") == "Watch" for config in configs):
            return min(_WATCH_SECONDS, self._interval)
        return self._interval * (1 + 0.9 * self._jitter())

    async def _sync(self, name: str, work: Body) -> bool:
        """Do what there is to do for a work; False: it has to be looked at again soon."""
        if work["metadata"].get("deletionTimestamp"):
            return await self._end(name, work)
        if (why := refusal(work)) is not None:
            msg = f"{self._cluster}/{name}: {why}"
            raise WorkRefused(msg)
        if FINALIZER not in work["metadata"].get("finalizers", ()):
            finalizers = [*work["metadata"].get("finalizers", ()), FINALIZER]
            await self._patch(name, work, {}, finalizers=finalizers)
            return True  # it comes back as news
        if self._has_to_apply(name, work):
            status, settled = await self._apply(name, work)
            written = await self._write(name, work, status)
            if settled:  # not before it is written: the next look builds on what is there
                self._applied[name] = (work["metadata"]["generation"], time.monotonic())
            if written or not settled:
                return settled  # what is written comes back as news
        if "resourceStatus" not in work.get("status", {}):
            return True  # what was written is on its way back to us
        await self._write(name, work, await self._feed_back(work))
        return True

    async def _write(self, name: str, work: Body, status: Body) -> bool:
        """Write a status where it differs, and return whether it did."""
        if status == work.get("status"):
            return False
        await self._patch(name, work, {"status": status}, subresource="/status")
        return True

    def _has_to_apply(self, name: str, work: Body) -> bool:
        """Tell whether this process has not applied it, or not this generation, or long ago."""
        generation, at = self._applied.get(name, (0, 0.0))
        return generation != work["metadata"]["generation"] or time.monotonic() - at > self._resync

    async def _apply(self, name: str, work: Body) -> tuple[dict[str, Any], bool]:
        """Apply every manifest; returns the status, and whether it need not be tried again soon."""
        generation = work["metadata"]["generation"]
        entries, settled = [], True
        for ordinal, manifest in enumerate(manifests_of(work)):
            meta = await self._spoke.meta(ordinal, manifest)
            trouble, final = await self._apply_one(work, meta, manifest)
            settled = settled and final
            entries.append(applied_entry(work, meta, trouble, _now()))
        if all(is_true(entry["conditions"], "Applied", generation) for entry in entries):
            settled = await self._delete_dropped(name, work, entries) and settled
        return applied_status(work, entries, _now()), settled

    async def _apply_one(
        self, work: Body, meta: Body, manifest: Body
    ) -> tuple[Exception | None, bool]:
        strategy = config_of(work, meta).get("updateStrategy", {})
        try:
            if self._executors:
                await self._spoke.check(work["spec"].get("executor"), meta)
            await self._spoke.apply(meta, manifest, strategy)
        except Conflict as error:
            # Of server-side apply, trying again soon would not resolve it.
            return error, strategy.get("type") == "ServerSideApply"
        except (NoSuchKind, NotAllowed, SyncError) as error:
            return error, False
        return None, True

    async def _delete_dropped(self, name: str, work: Body, entries: Sequence[Body]) -> bool:
        """Delete what a work has no more; returns whether all of it is gone."""
        wanted = {identity(entry["resourceMeta"]) for entry in entries}
        dropped = [meta for meta in placed_of(work) if identity(meta) not in wanted]
        return await self._delete(name, work, dropped)

    async def _delete(self, name: str, work: Body, metas: Sequence[Body]) -> bool:
        others = {
            identity(meta)
            for other, body in self._works.bodies.items()
            if other != name and not body["metadata"].get("deletionTimestamp")
            for meta in placed_of(body)
        }
        ours = [meta for meta in metas if owns(work, meta) and identity(meta) not in others]
        return all([await self._spoke.delete(meta) for meta in ours])

    async def _feed_back(self, work: Body) -> dict[str, Any]:
        """Read the objects of a work; returns its status."""
        status = work.get("status", {})
        entries = []
        for before in status["resourceStatus"]["manifests"]:
            meta = before["resourceMeta"]
            body, condition = await self._available(meta)
            entry = with_available(before, condition, _now())
            if body is not None:
                rules = config_of(work, meta).get("feedbackRules", ())
                entry = with_feedback(entry, *feedback(body, rules, raw=self._raw), _now())
            entries.append(entry)
        return available_status(work, entries, _now())

    async def _available(self, meta: Body) -> tuple[Body | None, dict[str, str]]:
        if not meta.get("resource"):
            return None, UNKNOWN
        try:
            body = await self._spoke.read(meta)
        except SyncError as error:
            self.troubles.append(f"{meta['name']}: {error}")
            return None, not_fetched(error)
        return body, NOT_THERE if body is None else THERE

    async def _end(self, name: str, work: Body) -> bool:
        """Let go of a work whose objects are gone."""
        if FINALIZER not in work["metadata"].get("finalizers", ()):
            return True
        if not await self._delete(name, work, list(placed_of(work))):
            return False
        finalizers = [one for one in work["metadata"]["finalizers"] if one != FINALIZER]
        with suppress(NotFound):
            await self._patch(name, work, {}, finalizers=finalizers)
        return True

    async def _patch(
        self,
        name: str,
        work: Body,
        patch: dict[str, Any],
        *,
        finalizers: Sequence[str] | None = None,
        subresource: str = "",
    ) -> None:
        """Write to a work, if it is still the one that was read. Raises SyncError."""
        metadata: dict[str, Any] = {"resourceVersion": work["metadata"]["resourceVersion"]}
        if finalizers is not None:
            metadata["finalizers"] = list(finalizers)
        await self._hub.request(
            "PATCH",
            WORKS.path(self._cluster, name) + subresource,
            body=msgspec.json.encode({"metadata": metadata, **patch}),
            content_type="application/merge-patch+json",
        )


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
