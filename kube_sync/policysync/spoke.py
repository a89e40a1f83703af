"""One spoke's API server: a client, what it holds of ours, and steps there one by one.

Keeps true: whatever becomes of this spoke, nobody waits for it longer than `patience` seconds and
no more than a few requests at once are under way to it; what was known of it stays known while it
cannot be reached. Only objects that carry our marks for the very policy are changed or deleted.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NoReturn

import structlog

from kube_sync.errors import Conflict, Expired, Misconfigured, NotFound, Retriable, SyncError
from kube_sync.kube.client import KubeClient, connected
from kube_sync.kube.collection import KubeCollection
from kube_sync.kube.following import Feed, Following
from kube_sync.kube.inline import InlineCredentials
from kube_sync.kube.wholeobjects import (
    apply_object,
    delete_object,
    ensure_namespace,
    mark_object,
    read_object,
)
from kube_sync.objects import GroupVersionResource, ObjectKey
from kube_sync.policysync.copies import (
    DIGEST,
    GATEWAYS,
    MANAGED,
    POLICY,
    SYNCED,
    Copy,
    CopyKey,
    FeedbackField,
    Placed,
    PolicyId,
)
from kube_sync.policysync.held import Found, HeldCopies, found_in
from kube_sync.policysync.placer import News
from kube_sync.policysync.scalars import read as scalars_of
from kube_sync.policysync.spelling import keys_of, policy_of
from kube_sync.policysync.works import LEAVING
from kube_sync.topology.shapes import UNREADABLE, mapping, text

log: structlog.stdlib.BoundLogger = structlog.get_logger()

Fields = tuple[FeedbackField, ...]

_SELECTOR: Final = f"{MANAGED}=true"


@dataclass(frozen=True, slots=True)
class Manners:
    """How spokes are spoken to."""

    manager: str  # of fields
    patience: float = 15.0  # seconds for one step
    at_once: int = 4  # steps


@dataclass(eq=False)
class _Collection:
    """What is held of one resource there, and why it is not current, if it is not."""

    gvr: GroupVersionResource
    fields: Fields
    held: HeldCopies
    reason: str | None = None
    away: bool = False  # the API server did not answer
    asked: bool = False  # listed, or it is known why not

    @property
    def same(self) -> tuple[str, str]:
        """What it shares with its other versions."""
        return self.gvr.group, self.gvr.resource


@dataclass(frozen=True, slots=True)
class _There:
    """What a step at the spoke is done with."""

    client: KubeClient
    gvr: GroupVersionResource
    held: HeldCopies


class Spoke:
    """One cluster."""

    def __init__(
        self, cluster: str, news: News, came: Callable[[str], None], manners: Manners
    ) -> None:
        """`came` is told when the spoke answers, for the first time or again."""
        self._cluster = cluster
        self._came = came
        self._news = news
        self._manners = manners
        self._access: InlineCredentials | Misconfigured | None = None
        self._client: KubeClient | None = None
        self._collections: dict[GroupVersionResource, _Collection] = {}
        self._feeds: dict[GroupVersionResource, Feed] = {}
        self._following: Following | None = None
        self._turns = asyncio.Semaphore(manners.at_once)
        self._changed = asyncio.Event()
        self._busy = 0
        self._idle = asyncio.Event()

    @property
    def trouble(self) -> str | None:
        """What is wrong with this spoke, in words, or None."""
        if isinstance(self._access, Misconfigured):
            return str(self._access)
        reasons = (one.reason for one in self._collections.values() if one.reason)
        return "; ".join(sorted(set(reasons))) or None

    @property
    def asked(self) -> bool:
        """Whether everything there was listed, or it is known why it was not."""
        everything = all(one.asked for one in self._collections.values())
        return everything or not isinstance(self._access, InlineCredentials)

    def use(self, access: InlineCredentials | Misconfigured) -> None:
        """Speak to the spoke in this way from now on; where that is none, what is known stays."""
        if access != self._access:
            self._access = access
            self._changed.set()

    def follow(self, resources: Mapping[GroupVersionResource, Fields]) -> None:
        """Hold the copies of exactly these resources from now on, and read these fields of them."""
        for gvr in [*self._collections]:
            if resources.get(gvr) != self._collections[gvr].fields:
                del self._collections[gvr], self._feeds[gvr]
        for gvr in resources.keys() - self._collections.keys():
            self._collections[gvr], self._feeds[gvr] = self._begin(gvr, resources[gvr])
        if self._following is not None:
            self._following.want(self._feeds)

    def policies(self) -> Iterable[PolicyId]:
        """Return the policies that there are copies of."""
        return [one for found in self._collections.values() for one in found.held.policies()]

    def of(self, policy: PolicyId) -> list[Found]:
        """Return what is held of a policy, without what is on its way out."""
        found = self._collection(policy.gvr)
        return [one for one in found.held.of(policy) if not one.deleting] if found else []

    async def run(self) -> NoReturn:
        """Follow what is wanted until cancelled, through every change of credentials."""
        while True:
            self._changed.clear()
            if isinstance(self._access, InlineCredentials):
                await self._connect(self._access)
            await self._changed.wait()

    async def apply(self, copy: Copy) -> None:
        """Make a copy as wanted, and let it stay. Raises SyncError; Conflict: it is not ours."""
        where = _where(copy)
        async with self._speaking(copy.key.policy.gvr) as there:
            found = there.held.at(where) or await self._look(there.client, copy, where)
            if found is not None and found.deleting:
                msg = f"cluster {self._cluster}: {where} is being deleted, which is waited for"
                raise Retriable(msg)
            if found is None or found.told.digest != copy.digest:
                found = await self._write(there, copy, found)
            if found is not None and found.placed.leaving is not None:
                await self._mark(there, found, None)
            for other in self.of(copy.key.policy):
                if other.where != where:
                    await self._delete(there, other)

    async def leave(self, key: CopyKey, said: str) -> None:
        """Mark the copies of a policy with the time from which they may go. Raises SyncError."""
        async with self._speaking(key.policy.gvr) as there:
            for found in self.of(key.policy):
                await self._mark(there, found, said)

    async def remove(self, key: CopyKey) -> None:
        """Delete the copies of a policy. Raises SyncError."""
        async with self._speaking(key.policy.gvr) as there:
            for found in self.of(key.policy):
                await self._delete(there, found)

    async def _connect(self, credentials: InlineCredentials) -> None:
        async with connected(credentials) as client, asyncio.TaskGroup() as group:
            source = partial(KubeCollection, client, label_selector=_SELECTOR)
            self._following = Following(source, f" on {self._cluster}")
            self._following.want(self._feeds)
            following = group.create_task(self._following.run())
            self._client = client
            log.info("spoke_connected", cluster=self._cluster)
            try:
                await self._changed.wait()
            finally:
                self._client = self._following = None
                following.cancel()
            while self._busy:  # whoever is in the middle of a step ends it as he began
                self._idle.clear()
                await self._idle.wait()
        self._changed.set()

    def _collection(self, gvr: GroupVersionResource) -> _Collection | None:
        """Return what is held of a resource; what was copied in another version is in it too."""
        if (exact := self._collections.get(gvr)) is not None:
            return exact
        same = (gvr.group, gvr.resource)
        found = (one for one in self._collections.values() if one.same == same)
        return next(found, None)

    @asynccontextmanager
    async def _speaking(self, gvr: GroupVersionResource) -> AsyncGenerator[_There]:
        """Take one of the turns. Raises Retriable at once where nobody answers."""
        async with self._turns:
            collection = self._collection(gvr)
            if self._client is None or collection is None or collection.away:
                reason = self.trouble or f"{gvr} is not followed there yet"
                msg = f"cluster {self._cluster}: {reason}"
                raise Retriable(msg)
            self._busy += 1
            try:
                async with asyncio.timeout(self._manners.patience):
                    yield _There(self._client, collection.gvr, collection.held)
            except TimeoutError as error:
                msg = f"cluster {self._cluster}: no answer in {self._manners.patience:.0f} s"
                raise Retriable(msg) from error
            finally:
                self._busy -= 1
                self._idle.set()

    async def _look(self, client: KubeClient, copy: Copy, where: ObjectKey) -> Found | None:
        """Look at what has the name of a copy: the watch may be behind, or it may be native."""
        gvr = copy.key.policy.gvr
        body = await read_object(client, gvr, where)
        if body is None:
            return None
        found = found_in(body, self._read_with(copy.feedback))
        if found is None or found.placed.key != copy.key:
            msg = f"cluster {self._cluster}: {gvr} {where} is not ours, and is left as it is"
            raise Conflict(msg)
        return found

    async def _write(self, there: _There, copy: Copy, found: Found | None) -> Found | None:
        where, uid = _where(copy), None if found is None else found.uid
        try:
            answer = await self._applied(there, copy, where, uid)
        except NotFound as error:
            # Its kind is not there, or it was made anew; the watch will tell.
            msg = f"cluster {self._cluster}: {error}"
            raise Retriable(msg) from error
        written = there.held.read(answer)
        there.held.wrote(where, written)
        log.info("copy_applied", cluster=self._cluster, gvr=str(there.gvr), key=str(where))
        return written

    async def _applied(self, there: _There, copy: Copy, where: ObjectKey, uid: str | None) -> bytes:
        apply = partial(apply_object, there.client, copy.key.policy.gvr, where, copy.body)
        try:
            return await apply(self._manners.manager, uid)
        except NotFound as error:
            # In these words: registry/core/namespace, whatever was to be created in it.
            if uid is not None or f'namespaces "{where.namespace}"' not in str(error):
                raise
        await ensure_namespace(there.client, where.namespace, {MANAGED: "true"})
        return await apply(self._manners.manager, None)

    async def _mark(self, there: _There, found: Found, said: str | None) -> None:
        marks, manager = {LEAVING: said}, self._manners.manager
        try:
            answer = await mark_object(
                there.client, there.gvr, found.where, found.uid, marks, manager
            )
        except NotFound:
            return  # gone, which the watch will tell
        there.held.wrote(found.where, there.held.read(answer))
        event = "copy_leaves" if said else "copy_stays"
        log.info(event, cluster=self._cluster, gvr=str(there.gvr), key=str(found.where))

    async def _delete(self, there: _There, found: Found) -> None:
        await delete_object(there.client, there.gvr, found.where, found.uid)
        there.held.leaves(found)
        log.info("copy_deleted", cluster=self._cluster, gvr=str(there.gvr), key=str(found.where))

    def _begin(self, gvr: GroupVersionResource, fields: Fields) -> tuple[_Collection, Feed]:
        held = HeldCopies(self._read_with(fields), self._news, self._manners.manager)
        found = _Collection(gvr, fields, held)

        def report(reason: str | None) -> None:
            back = reason is None and (found.away or not found.asked)
            found.reason, found.asked = reason, True
            if reason is None:
                found.away = False
            if back:
                self._came(self._cluster)

        def failed(error: SyncError) -> None:
            found.away = isinstance(error, Retriable) and not isinstance(error, Expired)

        return found, Feed(held, report, failed)

    def _read_with(self, fields: Fields) -> Callable[[Mapping[str, Any]], Placed | None]:
        return lambda body: copy_in(body, self._cluster, fields)


def copy_in(body: Mapping[str, Any], cluster: str, fields: Fields) -> Placed | None:
    """Return what a spoke's object is the copy of, None for one without our marks."""
    try:
        metadata = mapping(body, "metadata")
        notes = mapping(metadata, "annotations")
        policy = policy_of(text(notes, POLICY))
        marked = text(metadata, "labels", MANAGED) == "true"
        # A copy has its policy's name: what has another one is somebody's copy of the copy.
        if policy is None or not marked or text(metadata, "name") != policy.name:
            return None
        # Whoever takes this mark away makes a native policy of it.
        digest = text(notes, DIGEST) if text(notes, SYNCED) == "true" else ""
        leaving = text(notes, LEAVING)
        gateways = keys_of(text(notes, GATEWAYS))
    except UNREADABLE:
        return None
    at = float(leaving) if leaving.isdecimal() and leaving.isascii() else None
    return Placed(CopyKey(policy, cluster), digest, scalars_of(fields, body), at, gateways)


def _where(copy: Copy) -> ObjectKey:
    metadata = mapping(copy.body, "metadata")
    return ObjectKey(text(metadata, "namespace"), text(metadata, "name"))
