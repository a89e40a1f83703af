"""Classes of objects that a decision cannot distinguish, and the class of each object in OPA.

Invariant: an object's class is known only if it is that of the very state that OPA was last known
to hold, by the present classifier; any other counts as unknown. Objects of unknown class are
classes of their own. It keeps digests and uids, never objects.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from typing import Protocol

import msgspec

from kube_sync.errors import NO_JSON
from kube_sync.objects import ObjectKey
from kube_sync.opa.analysis.paths import Path, covers
from kube_sync.opa.analysis.result import Reads

Classify = Callable[[bytes], bytes]

_revisions = itertools.count(1)


def may_share(reads: Reads) -> bool:
    """Return whether objects with equal projections always get equal decisions."""
    return reads.gave_up is None and not reads.impure


def may_share_classes(reads: Reads) -> bool:
    """Return whether objects may share decisions without being equal as a whole."""
    return may_share(reads) and () not in reads.input.paths


def why_not_shared(reads: Reads | None, documents: Iterable[Path] = ()) -> str | None:
    """Return why answers cannot be shared between inputs of a class, None if they can.

    `documents` are the paths below `data` of what the replicator writes besides collections.
    """
    if reads is None:
        return "it is not known what the policies read"
    if reads.gave_up is not None:
        return f"the policies could not be analysed: {reads.gave_up}"
    if reads.impure:
        return f"the decision reads what no class covers: {', '.join(reads.impure)}"
    for read in reads.foreign:
        if not any(covers(document, read.path) for document in documents):
            path = ".".join("*" if key is None else key for key in read.path)
            return f"the decision reads data that the replicator does not write: data.{path}"
    if () in reads.input.paths:
        return "the decision reads the whole input"
    return None


# Not a dataclass: there is one for each object, and the garbage collector need not know it.
class Member(msgspec.Struct, frozen=True, gc=False):
    """One state of an object: its class (digest of what is read of it) and its uid."""

    kind: bytes
    uid: str


class Classified(msgspec.Struct, frozen=True, gc=False):
    """A state of an object that OPA may not hold yet: class, uid, and which classifier it was."""

    kind: bytes
    uid: str
    edition: int


class Members:
    """The known classes of the objects of one collection."""

    def __init__(self) -> None:
        self._classify: Classify | None = None
        self._edition = 0
        # Another one whenever the class of an object may have changed; no two have the same.
        self.revision = next(_revisions)
        self._members: dict[ObjectKey, Member] = {}
        self._sizes: Counter[bytes] = Counter()
        self._kinds: dict[bytes, bytes] = {}  # interned digests

    @property
    def known(self) -> int:
        """The number of objects with a known class."""
        return len(self._members)

    @property
    def classes(self) -> int:
        """The number of classes."""
        return len(self._sizes)

    @property
    def is_classifying(self) -> bool:
        """Whether objects are classified at all."""
        return self._classify is not None

    def classify(self, classify: Classify | None) -> bool:
        """Classify by this from now on, None: not at all; return whether classes were dropped."""
        if classify is self._classify:
            return False
        self._classify = classify
        self._edition += 1
        self.revision = next(_revisions)
        for found in (self._members, self._sizes, self._kinds):
            found.clear()
        return True

    def fresh(self) -> Members:
        """Return an empty one that classifies as this does now."""
        found = Members()
        found._classify, found._edition = self._classify, self._edition
        return found

    def adopt(self, other: Members) -> None:
        """Replace all classes by those of a `fresh` one, unless the classifier changed since."""
        is_current = other._edition == self._edition
        found = other if is_current else self.fresh()
        self._members, self._sizes, self._kinds = found._members, found._sizes, found._kinds  # noqa: SLF001
        self.revision = next(_revisions)

    def read(self, body: bytes, uid: str) -> Classified | None:
        """Return the class of an object, None if it is unknown."""
        if self._classify is None:
            return None
        try:
            return Classified(self._classify(body), uid, self._edition)
        except NO_JSON:
            return None

    def note(self, key: ObjectKey, found: Classified | None) -> None:
        """Record the class of an object in OPA; None: it is unknown, or there is no object."""
        self.revision = next(_revisions)
        if (old := self._members.get(key)) is not None:
            self._sizes[old.kind] -= 1
            if not self._sizes[old.kind]:
                del self._sizes[old.kind], self._kinds[old.kind]
        # The object may have been read before the classifier changed, and written after.
        if found is None or found.edition != self._edition:
            self._members.pop(key, None)
            return
        kind = self._kinds.setdefault(found.kind, found.kind)
        # Not removed first: the table keeps the key that it has, which others share.
        self._members[key] = Member(kind, found.uid)
        self._sizes[kind] += 1

    def of(self, key: ObjectKey) -> Member | None:
        """Return the class of an object in OPA, None if it is unknown."""
        return self._members.get(key)

    def by_class(self) -> dict[bytes, tuple[list[ObjectKey], list[str]]]:
        """Return the objects of each class, and their uids."""
        found: dict[bytes, tuple[list[ObjectKey], list[str]]] = {k: ([], []) for k in self._sizes}
        for key, member in self._members.items():
            keys, uids = found[member.kind]
            keys.append(key)
            uids.append(member.uid)
        return found

    def without(self, keys: Collection[ObjectKey]) -> list[ObjectKey]:
        """Return those of `keys`, each named once, that have no known class."""
        if len(keys) == len(self._members):  # each object with a class is one of them
            return []
        return [key for key in keys if key not in self._members]


class Objects(Protocol):
    """OPA's content of one collection."""

    name: str
    members: Members

    @property
    def object_count(self) -> int:
        """The number of objects in OPA."""

    def is_pending(self, key: ObjectKey) -> bool:
        """Return whether OPA may hold another state of an object than the classified one."""
