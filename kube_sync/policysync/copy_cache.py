"""Cache of the copies in one collection, fed by a watch and indexed by policy.

Invariant: objects that are not ours are not cached, however similar; an event that is older than
our own write is ignored; a failed LIST, or a kind that the API server does not know (it may say so
for a moment after a start), removes nothing. Callbacks run for each difference.

A copy whose spec somebody else changed still carries the digest of what was applied. The cache
detects this by its generation, which only a change of the spec moves (API conventions,
"Metadata"): its digest then counts as unknown, and the reconciler writes it again. An object that
is seen for the first time may have been changed before: unless its generation is 1, its digest
counts only after its spec was compared with the desired one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import structlog

from kube_sync.errors import NO_JSON
from kube_sync.kube.cache import Cache, Changes, Write
from kube_sync.kube.meta import State, state_of
from kube_sync.objects import ObjectKey
from kube_sync.policysync.copies import OnChange, Placed, PolicyId

log: structlog.stdlib.BoundLogger = structlog.get_logger()

ReadCopy = Callable[[Mapping[str, Any]], Placed | None]


@dataclass(frozen=True, slots=True)
class CopyObject:
    """An object that carries a copy."""

    placed: Placed
    where: ObjectKey
    state: State
    generation: int
    deleting: bool
    managers: frozenset[str] = frozenset()  # the managers that have applied it
    drifted: bool = False
    spec: object = None  # as found, for comparison with the desired spec

    @property
    def uid(self) -> str:
        """The uid of the object."""
        return self.state.uid

    @property
    def comparable(self) -> Placed:
        """The copy for comparison: without a digest if the digest is unreliable."""
        return replace(self.placed, digest="") if self.drifted else self.placed


class CopyCache(Cache[CopyObject]):
    """The copies in one collection."""

    def __init__(self, read: ReadCopy, on_change: OnChange, manager: str | None = None) -> None:
        """Parse objects with `read`, which returns None for an object that is no copy.

        With `manager` only objects that it has applied are ours, and a digest is that of the last
        apply; without, a digest is computed from the object's content.
        """
        super().__init__(lambda item: self.read(item.body), self._changed, merge=self._merged_copy)
        self._reader = read
        self._notify = on_change
        self._manager = manager
        self._keys_by_policy: dict[PolicyId, set[ObjectKey]] = {}

    def inherit(self, known: CopyCache) -> None:
        """Start with the content of another cache, until the first LIST of this one has ended."""
        for where, found in known.objects.items():
            self.record_write(where, found)

    def policies(self) -> Iterable[PolicyId]:
        """Return the policies that have copies."""
        return list(self._keys_by_policy)

    def of(self, policy: PolicyId) -> list[CopyObject]:
        """Return the cached copies of a policy, by their keys, without those being deleted."""
        cached = (self.objects[where] for where in sorted(self._keys_by_policy.get(policy, ())))
        return [found for found in cached if not found.deleting]

    def read(self, body: bytes) -> CopyObject | None:
        """Parse an object as the watch does, None if it is not ours."""
        found = found_in(body, self._reader)
        is_foreign = found is not None and self._manager not in (None, *found.managers)
        return None if is_foreign else found

    def record_equal(self, found: CopyObject) -> CopyObject:
        """Record that the object's spec equals the one that was applied."""
        equal = replace(found, drifted=False, spec=None)
        if self.get(found.where) is found:
            self.record_write(found.where, equal)
        return equal

    def record_write(self, where: ObjectKey, found: CopyObject | None) -> None:
        """Store the result of our own write; this runs no callback."""
        before = self.get(where)
        self.put(where, None if found is None else _slim(found), notify=False)
        self._index(where, before, found)

    async def send(self, where: ObjectKey, request: Awaitable[bytes]) -> CopyObject | None:
        """Send a write of an object, and return its response.

        The response is cached, unless the watch is newer. Raises SyncError.
        """
        with self.writing(where) as write:
            response = await request
        return self.record_response(write, response)

    def record_response(self, write: Write, body: bytes) -> CopyObject | None:
        """Cache the response to a write, unless the watch is newer; return the response."""
        found, cached = self.read(body), self.get(write.key)
        is_later = cached is not None and found is not None and cached.state.is_later(found.state)
        if not write.overtaken and not is_later:
            self.record_write(write.key, found)
        elif found is not None:
            self._notify(found.placed.key.policy)  # it may have changed since the write
        return found

    def mark_deleting(self, found: CopyObject) -> None:
        """Mark an object as being deleted, until the watch reports that it is gone."""
        cached = self.get(found.where)
        if cached is not None and cached.uid == found.uid:
            self.record_write(found.where, replace(cached, deleting=True))

    def _merged_copy(self, before: CopyObject | None, found: CopyObject) -> CopyObject:
        """Return the entry to cache for an object that was read."""
        if before is not None and before.uid == found.uid:
            if before.state.is_later(found.state):
                return before  # the response to a write is newer
            drifted = self._manager is not None and _has_drifted(before, found)
            # An object that was being deleted still is.
            deleting = before.deleting or found.deleting
            return _slim(replace(found, drifted=drifted, deleting=deleting))
        # Changes before the first read are unknown: the digest counts only after a comparison.
        may_have_drifted = self._manager is not None and found.generation > 1
        return _slim(replace(found, drifted=may_have_drifted))

    def _changed(self, changes: Changes[CopyObject]) -> None:
        for where, (before, found) in changes.items():
            self._index(where, before, found)
            for policy in _changed_policies(before, found):
                self._notify(policy)

    def _index(self, where: ObjectKey, before: CopyObject | None, found: CopyObject | None) -> None:
        if before is not None:
            policy = before.placed.key.policy
            self._keys_by_policy[policy].discard(where)
            if not self._keys_by_policy[policy]:
                del self._keys_by_policy[policy]
        if found is not None:
            self._keys_by_policy.setdefault(found.placed.key.policy, set()).add(where)


def _slim(found: CopyObject) -> CopyObject:
    """Return it without its spec once no comparison needs it."""
    return found if found.drifted or found.spec is None else replace(found, spec=None)


def one_per_cluster(found: Iterable[CopyObject]) -> dict[str, Placed]:
    """Return one copy for each cluster; without a digest if there are several.

    The reconciler then writes it again, which removes the others.
    """
    clusters: dict[str, list[CopyObject]] = {}
    for one in found:
        clusters.setdefault(one.placed.key.cluster, []).append(one)
    return {
        cluster: replace(ones[0].comparable, digest="") if len(ones) > 1 else ones[0].comparable
        for cluster, ones in sorted(clusters.items())
    }


def found_in(body: bytes, read: ReadCopy) -> CopyObject | None:
    """Parse a copy and its object from JSON, None if there is none."""
    try:
        decoded: Any = msgspec.json.decode(body)
        metadata = decoded["metadata"]
        where = ObjectKey(metadata.get("namespace") or "", metadata["name"])
        if (placed := read(decoded)) is None:
            return None
        generation = metadata.get("generation")
        return CopyObject(
            placed,
            where,
            state_of(metadata["uid"], metadata.get("resourceVersion")),
            generation if isinstance(generation, int) else 0,
            "deletionTimestamp" in metadata,
            frozenset(_appliers(metadata)),
            spec=decoded.get("spec"),
        )
    except (*NO_JSON, KeyError, TypeError, AttributeError) as error:
        log.warning("copy_left_out", error=type(error).__name__)
        return None


def _appliers(metadata: Mapping[str, Any]) -> Iterator[str]:
    """Yield the managers that applied it: an object copied with all its labels has none of ours."""
    for entry in metadata.get("managedFields") or ():
        if entry.get("operation") == "Apply":
            yield entry["manager"]


def _has_drifted(before: CopyObject, found: CopyObject) -> bool:
    if before.placed.digest != found.placed.digest:
        return False  # our own write, whose response is pending
    return before.drifted or found.generation > before.generation


def _changed_policies(before: CopyObject | None, found: CopyObject | None) -> Iterable[PolicyId]:
    if _comparable(before) == _comparable(found):
        return ()
    both = (one.placed.key.policy for one in (before, found) if one is not None)
    return dict.fromkeys(both)


def _comparable(found: CopyObject | None) -> tuple[Placed, bool] | None:
    return None if found is None else (found.comparable, found.deleting)
