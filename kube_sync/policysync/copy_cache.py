"""The copies of one collection, as a watch tells of them, by the policy that they are of.

Keeps true: what is not ours is not held, however much it looks like it; an event that is older
than what was written here is passed over; a LIST that fails, or a kind that is said to be unknown
(API servers say so for a moment after a start), loses nothing. News are told for what differs.

A copy whose spec was changed by somebody else still carries the digest of what was applied. It is
recognised by its generation, which only a change of the spec moves (API conventions, "Metadata"):
its digest then counts as unknown, and whoever compares digests writes it again. One that is seen
for the first time may have been changed before: unless it was never changed at all, its digest
counts only when its spec was compared with what is wanted.
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
from kube_sync.policysync.copies import News, Placed, PolicyId

log: structlog.stdlib.BoundLogger = structlog.get_logger()

Read = Callable[[Mapping[str, Any]], Placed | None]


@dataclass(frozen=True, slots=True)
class Found:
    """One object that carries a copy."""

    placed: Placed
    where: ObjectKey
    state: State
    generation: int
    deleting: bool
    managers: frozenset[str] = frozenset()  # those that have applied it
    drifted: bool = False
    spec: object = None  # as it was found, for who compares it with what is wanted

    @property
    def uid(self) -> str:
        """The object's."""
        return self.state.uid

    @property
    def told(self) -> Placed:
        """The copy as it is to be compared: without a digest where that says nothing any more."""
        return replace(self.placed, digest="") if self.drifted else self.placed


class HeldCopies(Cache[Found]):
    """The copies in one collection."""

    def __init__(self, read: Read, news: News, manager: str | None = None) -> None:
        """`read` makes a Placed of an object, None where it is no copy.

        With `manager` only what that one has applied is ours, and a digest tells only what it was
        then; without, a digest is of what is there.
        """
        super().__init__(lambda item: self.read(item.body), self._changed, merge=self._judged)
        self._reader = read
        self._news = news
        self._manager = manager
        self._places: dict[PolicyId, set[ObjectKey]] = {}

    def inherit(self, known: HeldCopies) -> None:
        """Hold what another one held, until the first LIST of this one has ended."""
        for where, found in known.objects.items():
            self.wrote(where, found)

    def policies(self) -> Iterable[PolicyId]:
        """Return the policies that there are copies of."""
        return list(self._places)

    def of(self, policy: PolicyId) -> list[Found]:
        """Return what is held of a policy, by its places, without what is on its way out."""
        held = (self.objects[where] for where in sorted(self._places.get(policy, ())))
        return [found for found in held if not found.deleting]

    def read(self, body: bytes) -> Found | None:
        """Read an object as the watch would, None for one that is not ours."""
        found = found_in(body, self._reader)
        foreign = found is not None and self._manager not in (None, *found.managers)
        return None if foreign else found

    def compared(self, found: Found) -> Found:
        """Hold that what was found is what it was applied as."""
        right = replace(found, drifted=False, spec=None)
        if self.get(found.where) is found:
            self.wrote(found.where, right)
        return right

    def wrote(self, where: ObjectKey, found: Found | None) -> None:
        """Hold what a write of ours has left at a place; that is no news to anybody."""
        before = self.get(where)
        self.put(where, None if found is None else _slim(found), notify=False)
        self._index(where, before, found)

    async def send(self, where: ObjectKey, request: Awaitable[bytes]) -> Found | None:
        """Send a write of what is at a place, and return what it is answered with.

        The answer is held, unless the watch is further. Raises SyncError.
        """
        with self.writing(where) as write:
            answer = await request
        return self.answered(write, answer)

    def answered(self, write: Write, body: bytes) -> Found | None:
        """Hold what a write was answered with, unless the watch is further; return the answer."""
        found, held = self.read(body), self.get(write.key)
        later = held is not None and found is not None and held.state.is_later(found.state)
        if not write.overtaken and not later:
            self.wrote(write.key, found)
        elif found is not None:
            self._news(found.placed.key.policy)  # it may not be as it was written any more
        return found

    def leaves(self, found: Found) -> None:
        """Hold that an object is on its way out, until the watch tells that it is gone."""
        held = self.get(found.where)
        if held is not None and held.uid == found.uid:
            self.wrote(found.where, replace(held, deleting=True))

    def _judged(self, before: Found | None, found: Found) -> Found:
        """Return what is to be held of what was found."""
        if before is not None and before.uid == found.uid:
            if before.state.is_later(found.state):
                return before  # the answer to a write was here first
            drifted = self._manager is not None and _drifted(before, found)
            # What was on its way out before is so still.
            deleting = before.deleting or found.deleting
            return _slim(replace(found, drifted=drifted, deleting=deleting))
        # Nobody saw how it came to be so: it counts only when it was compared.
        unseen = self._manager is not None and found.generation > 1
        return _slim(replace(found, drifted=unseen))

    def _changed(self, changes: Changes[Found]) -> None:
        for where, (before, found) in changes.items():
            self._index(where, before, found)
            for policy in _concerned(before, found):
                self._news(policy)

    def _index(self, where: ObjectKey, before: Found | None, found: Found | None) -> None:
        if before is not None:
            policy = before.placed.key.policy
            self._places[policy].discard(where)
            if not self._places[policy]:
                del self._places[policy]
        if found is not None:
            self._places.setdefault(found.placed.key.policy, set()).add(where)


def _slim(found: Found) -> Found:
    """Return it without the spec that nobody will compare."""
    return found if found.drifted or found.spec is None else replace(found, spec=None)


def single(found: Iterable[Found]) -> dict[str, Placed]:
    """Return one copy for each cluster; without a digest where there is more than one.

    Whoever compares digests has it written again, which removes the others.
    """
    clusters: dict[str, list[Found]] = {}
    for one in found:
        clusters.setdefault(one.placed.key.cluster, []).append(one)
    return {
        cluster: replace(ones[0].told, digest="") if len(ones) > 1 else ones[0].told
        for cluster, ones in sorted(clusters.items())
    }


def found_in(body: bytes, read: Read) -> Found | None:
    """Read a copy and its object out of JSON, None where there is none."""
    try:
        decoded: Any = msgspec.json.decode(body)
        metadata = decoded["metadata"]
        where = ObjectKey(metadata.get("namespace") or "", metadata["name"])
        if (placed := read(decoded)) is None:
            return None
        generation = metadata.get("generation")
        return Found(
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
    """Yield who has applied it: what somebody has copied, with all its labels, tells nobody."""
    for entry in metadata.get("managedFields") or ():
        if entry.get("operation") == "Apply":
            yield entry["manager"]


def _drifted(before: Found, found: Found) -> bool:
    if before.placed.digest != found.placed.digest:
        return False  # a write of ours, whose answer is on its way
    return before.drifted or found.generation > before.generation


def _concerned(before: Found | None, found: Found | None) -> Iterable[PolicyId]:
    if _essence(before) == _essence(found):
        return ()
    both = (one.placed.key.policy for one in (before, found) if one is not None)
    return dict.fromkeys(both)


def _essence(found: Found | None) -> tuple[Placed, bool] | None:
    return None if found is None else (found.told, found.deleting)
