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

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import structlog

from kube_sync.errors import NO_JSON
from kube_sync.kube.collection import Event, Item
from kube_sync.objects import ObjectKey
from kube_sync.policysync.copies import Placed, PolicyId
from kube_sync.policysync.placer import News

log: structlog.stdlib.BoundLogger = structlog.get_logger()

Read = Callable[[Mapping[str, Any]], Placed | None]


@dataclass(frozen=True, slots=True)
class Found:
    """One object that carries a copy."""

    placed: Placed
    where: ObjectKey
    uid: str
    version: int  # resourceVersion; 0 where it is no number
    generation: int
    deleting: bool
    managers: frozenset[str] = frozenset()  # those that have applied it
    drifted: bool = False
    spec: object = None  # as it was found, for who compares it with what is wanted

    @property
    def told(self) -> Placed:
        """The copy as it is to be compared: without a digest where that says nothing any more."""
        return replace(self.placed, digest="") if self.drifted else self.placed


class HeldCopies:
    """The Store of one collection."""

    def __init__(self, read: Read, news: News, manager: str | None = None) -> None:
        """`read` makes a Placed of an object, None where it is no copy.

        With `manager` only what that one has applied is ours, and a digest tells only what it was
        then; without, a digest is of what is there.
        """
        self.listed = False
        self._read = read
        self._news = news
        self._manager = manager
        self._objects: dict[ObjectKey, Found] = {}
        self._policies: dict[PolicyId, dict[ObjectKey, Found]] = {}
        self._listing: dict[ObjectKey, Found] = {}

    def inherit(self, known: HeldCopies) -> None:
        """Hold what another one held, until the first LIST of this one has ended."""
        for where, found in known._objects.items():
            self.wrote(where, found)

    def policies(self) -> Iterable[PolicyId]:
        """Return the policies that there are copies of."""
        return list(self._policies)

    def of(self, policy: PolicyId) -> list[Found]:
        """Return what there is of a policy, in the order of its places."""
        return [found for _, found in sorted(self._policies.get(policy, {}).items())]

    def at(self, where: ObjectKey) -> Found | None:
        """Return what is held of one place."""
        return self._objects.get(where)

    def read(self, body: bytes) -> Found | None:
        """Read an object as the watch would, None for one that is not ours."""
        found = found_in(body, self._read)
        foreign = found is not None and self._manager not in (None, *found.managers)
        return None if foreign else found

    def compared(self, found: Found) -> Found:
        """Hold that what was found is what it was applied as."""
        right = replace(found, drifted=False, spec=None)
        if self._objects.get(found.where) is found:
            self.wrote(found.where, right)
        return right

    def wrote(self, where: ObjectKey, found: Found | None) -> None:
        """Hold what a write of ours has left at a place; that is no news to anybody."""
        if (before := self._objects.pop(where, None)) is not None:
            policy = before.placed.key.policy
            del self._policies[policy][where]
            if not self._policies[policy]:
                del self._policies[policy]
        if found is not None:
            found = found if found.drifted else replace(found, spec=None)
            self._objects[where] = found
            self._policies.setdefault(found.placed.key.policy, {})[where] = found

    def leaves(self, found: Found) -> None:
        """Hold that an object is on its way out, until the watch tells that it is gone."""
        held = self._objects.get(found.where)
        if held is not None and held.uid == found.uid:
            self.wrote(found.where, replace(held, deleting=True))

    async def page(self, items: Sequence[Item]) -> None:
        """Take a part of a LIST."""
        for item in items:
            if (found := self.read(item.body)) is not None:
                self._listing[item.key] = found

    def finish(self, *, known: bool) -> None:
        """Hold exactly what the LIST held; nothing changes while the kind is unknown."""
        listing, self._listing = self._listing, {}
        self.listed = known
        if known:
            for where in self._objects.keys() - listing.keys():
                self._put(where, None)
            for where, found in listing.items():
                self._put(where, found)

    def abandon(self) -> None:
        """Forget the LIST that broke off."""
        self._listing = {}

    def apply(self, event: Event) -> None:
        """Take one watch event in."""
        if event.item is not None:
            gone = event.type == "DELETED"
            self._put(event.item.key, None if gone else self.read(event.item.body))

    def _put(self, where: ObjectKey, found: Found | None) -> None:
        before = self._objects.get(where)
        if found is not None and before is not None and before.uid == found.uid:
            if 0 < found.version < before.version:
                return  # the answer to a write was here first
            drifted = self._manager is not None and _drifted(before, found)
            # What was on its way out before is so still.
            deleting = before.deleting or found.deleting
            found = replace(found, drifted=drifted, deleting=deleting)
        elif found is not None and self._manager is not None and found.generation > 1:
            # Nobody saw how it came to be so: it counts only when it was compared.
            found = replace(found, drifted=True)
        self.wrote(where, found)
        for policy in _concerned(before, found):
            self._news(policy)


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
        version, generation = metadata.get("resourceVersion"), metadata.get("generation")
        return Found(
            placed,
            where,
            metadata["uid"],
            int(version) if isinstance(version, str) and version.isdecimal() else 0,
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
