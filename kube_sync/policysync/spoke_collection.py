"""Steps at one spoke's API server: get, apply, mark, delete.

Invariant: an object is changed or deleted only if it carries our marks for the very policy, and
only at the resourceVersion that was read; a native policy of the same name is left as it is,
which is reported. Our own writes are cached at once, so that their watch events change nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import structlog

from kube_sync.errors import Conflict, NotFound, Retriable
from kube_sync.guard.rivals import Rivals
from kube_sync.kube.client import KubeClient
from kube_sync.kube.wholeobjects import (
    apply_object,
    delete_object,
    ensure_namespace,
    mark_object,
    read_object,
)
from kube_sync.objects import GroupVersionResource, ObjectKey
from kube_sync.policysync.ancestors import is_reserved, reports_in
from kube_sync.policysync.copies import (
    DIGEST,
    GATEWAYS,
    MANAGED,
    Copy,
    CopyKey,
    FeedbackField,
    Placed,
)
from kube_sync.policysync.copy_cache import CopyCache, CopyObject, found_in
from kube_sync.policysync.feedback_fields import read as scalars_of
from kube_sync.policysync.manifestworks import LEAVING, parse_time
from kube_sync.policysync.naming import parse_keys, parse_policy
from kube_sync.topology.raw_json import UNREADABLE, mapping, text
from kube_sync.topology.synced_policies import POLICY, SYNCED

log: structlog.stdlib.BoundLogger = structlog.get_logger()

Fields = tuple[FeedbackField, ...]


@dataclass(frozen=True, slots=True)
class SpokeCollection:
    """One collection of one cluster, open for a step."""

    cluster: str
    client: KubeClient
    gvr: GroupVersionResource
    cache: CopyCache
    manager: str  # field manager
    rivals: Rivals
    clock: Callable[[], float]

    async def apply(self, copy: Copy) -> None:
        """Create or update a copy, and clear its mark. Raises SyncError; Conflict: not ours."""
        where = _where(copy)
        found = self.cache.get(where) or await self._get(copy, where)
        if found is not None:
            self._check_owner(found, copy)
        if found is not None and found.deleting:
            msg = f"cluster {self.cluster}: {where} is being deleted, which is waited for"
            raise Retriable(msg)
        if found is not None and _is_equal(found, copy):
            found = self.cache.record_equal(found)
        if found is None or found.comparable.digest != copy.digest:
            self._yield_to_rivals(where, copy)
            is_repeated = found is not None and found.placed.digest == copy.digest
            found = await self._write(copy, where, found)
            if is_repeated:
                self.rivals.wrote(where, copy.digest, self.clock())
        if found is not None and found.placed.remove_after is not None:
            await self.mark(found, None)
        for other in self.cache.of(copy.key.policy):
            if other.where != where:
                await self.delete(other)

    async def mark(self, found: CopyObject, remove_after: str | None) -> None:
        """Set the time from which a copy may be removed; None: it stays. Raises SyncError."""
        where, marks = found.where, {LEAVING: remove_after}
        request = mark_object(self.client, self.gvr, where, found.uid, marks, self.manager)
        with suppress(NotFound):  # gone, as the watch will show
            await self.cache.send(where, request)
            self._log("copy_leaves" if remove_after else "copy_stays", where)

    async def delete(self, found: CopyObject) -> None:
        """Delete a copy. Raises SyncError."""
        await delete_object(self.client, self.gvr, found.where, found.uid)
        self.cache.mark_deleting(found)
        self.rivals.forget(found.where)
        self._log("copy_deleted", found.where)

    async def _get(self, copy: Copy, where: ObjectKey) -> CopyObject | None:
        """Get the object with the name of a copy: the watch may be behind, or it may be native."""
        body = await read_object(self.client, self.gvr, where)
        if body is None:
            return None
        # Without its label it is still the copy that its annotation names.
        read = partial(copy_in, cluster=self.cluster, fields=copy.feedback, labelled=False)
        found = found_in(body, read)
        if found is None:
            raise self._conflict(where)
        self._check_owner(found, copy)
        # An object that the watch would not show as ours is written, whatever its digest.
        known = self.cache.read(body)
        if known is None:
            return replace(found, drifted=True, spec=None)
        return replace(known, drifted=known.generation > 1)

    def _yield_to_rivals(self, where: ObjectKey, copy: Copy) -> None:
        now = self.clock()
        if (until := self.rivals.truce(where, copy.digest, now)) is not None:
            msg = (
                f"cluster {self.cluster}: somebody else changes {self.gvr} {where} again and again,"
                " it is left to him for up to ten minutes"
            )
            raise Retriable(msg, until - now)

    def _check_owner(self, found: CopyObject, copy: Copy) -> None:
        if found.placed.key.origin != copy.key.origin:
            raise self._conflict(found.where)

    def _conflict(self, where: ObjectKey) -> Conflict:
        msg = f"cluster {self.cluster}: {self.gvr} {where} is not ours, and is left as it is"
        return Conflict(msg)

    async def _write(
        self, copy: Copy, where: ObjectKey, found: CopyObject | None
    ) -> CopyObject | None:
        request = self._apply(copy, where, None if found is None else found.uid)
        try:
            written = await self.cache.send(where, request)
        except NotFound as error:
            # Its kind is missing, or it was created anew; the watch will show it.
            msg = f"cluster {self.cluster}: {error}"
            raise Retriable(msg) from error
        self._log("copy_applied", where)
        return written

    async def _apply(self, copy: Copy, where: ObjectKey, uid: str | None) -> bytes:
        apply = partial(apply_object, self.client, self.gvr, where, copy.body, self.manager)
        try:
            return await apply(uid)
        except NotFound as error:
            # The API server's message, whatever was to be created in the namespace.
            if uid is not None or f'namespaces "{where.namespace}"' not in str(error):
                raise
        await ensure_namespace(self.client, where.namespace, {MANAGED: "true"})
        return await apply(None)

    def _log(self, event: str, where: ObjectKey) -> None:
        log.info(event, cluster=self.cluster, gvr=str(self.gvr), key=str(where))


def _is_equal(found: CopyObject, copy: Copy) -> bool:
    """Return whether an object that was not compared yet equals the copy, extra fields aside."""
    is_same_digest = found.drifted and found.spec is not None and found.placed.digest == copy.digest
    return is_same_digest and contains(found.spec, copy.body.get("spec"))


def contains(found: object, wanted: object) -> bool:
    """Return whether all wanted fields are there; defaults of the API server may be there too."""
    if isinstance(wanted, Mapping):
        return isinstance(found, Mapping) and all(
            contains(found.get(key), value) for key, value in wanted.items()
        )
    if isinstance(wanted, list):
        return (
            isinstance(found, list)
            and len(found) == len(wanted)
            and all(map(contains, found, wanted))
        )
    return (type(found) is type(wanted) and found == wanted) or _is_same_number(found, wanted)


def _is_same_number(found: object, wanted: object) -> bool:
    """Return whether two are the same number: an API server stores 1.0 as 1, and true is none."""
    plain = (int, float)
    numbers = isinstance(found, plain) and isinstance(wanted, plain)
    return (
        numbers and not isinstance(found, bool) and not isinstance(wanted, bool) and found == wanted
    )


def copy_in(
    body: Mapping[str, Any], cluster: str, fields: Fields, *, labelled: bool = True
) -> Placed | None:
    """Return the copy that a spoke's object is, None if it has not our marks."""
    try:
        metadata = mapping(body, "metadata")
        annotations = mapping(metadata, "annotations")
        policy = parse_policy(text(annotations, POLICY))
        marked = not labelled or text(metadata, "labels", MANAGED) == "true"
        # A copy has its policy's name: an object with another name is somebody's duplicate.
        if policy is None or not marked or text(metadata, "name") != policy.name:
            return None
        # Removing this mark turns the copy into a native policy.
        digest = text(annotations, DIGEST) if text(annotations, SYNCED) == "true" else ""
        remove_after = parse_time(text(annotations, LEAVING))
        gateways = parse_keys(text(annotations, GATEWAYS))
    except UNREADABLE:
        return None
    # Without an agent in between, all entries of ancestors can be read.
    scalars = scalars_of([one for one in fields if not is_reserved(one.name)], body)
    return Placed(
        CopyKey(policy, cluster),
        digest,
        replace(scalars, reports=reports_in(body)),
        remove_after,
        gateways,
    )


def _where(copy: Copy) -> ObjectKey:
    metadata = mapping(copy.body, "metadata")
    return ObjectKey(text(metadata, "namespace"), text(metadata, "name"))
