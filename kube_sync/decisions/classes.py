"""Classes of objects that a decision cannot tell apart, and which of them OPA holds.

Keeps true: a member is known only where its class is that of the very state that OPA was last known
to hold, as the present classifier sees it; whatever else there may be counts as unknown. Objects of
unknown class are classes of their own. It holds digests and uids, never objects.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from kube_sync.errors import NO_JSON
from kube_sync.objects import ObjectKey
from kube_sync.opa.analysis.reads import Reads

Classify = Callable[[bytes], bytes]


def shares(reads: Reads) -> bool:
    """Tell whether objects that agree in what is read of them are decided alike at any time."""
    return reads.gave_up is None and not reads.impure


def shares_classes(reads: Reads) -> bool:
    """Tell whether objects may be decided alike without all of each being equal."""
    return shares(reads) and () not in reads.input.paths


class Member(NamedTuple):
    """One state of an object: the digest of what is read of it, and the object's uid.

    `edition` tells the classifier that made it from earlier ones.
    """

    kind: bytes
    uid: str
    edition: int


class Members:
    """The members of one collection, as far as they are known."""

    def __init__(self) -> None:
        self._classify: Classify | None = None
        self._edition = 0
        self._held: dict[ObjectKey, Member] = {}
        self._sizes: Counter[bytes] = Counter()
        self._kinds: dict[bytes, bytes] = {}  # one object for each digest

    @property
    def known(self) -> int:
        """How many objects are known."""
        return len(self._held)

    @property
    def classes(self) -> int:
        """How many classes those make."""
        return len(self._sizes)

    @property
    def wanted(self) -> bool:
        """Whether anybody wants to know."""
        return self._classify is not None

    def classify(self, classify: Classify | None) -> bool:
        """Know objects by this from now on, None by nothing; returns whether all were forgotten."""
        if classify is self._classify:
            return False
        self._classify = classify
        self._edition += 1
        for found in (self._held, self._sizes, self._kinds):
            found.clear()
        return True

    def read(self, body: bytes, uid: str) -> Member | None:
        """Return what an object is a member of, None where it is not known."""
        if self._classify is None:
            return None
        try:
            return Member(self._classify(body), uid, self._edition)
        except NO_JSON:
            return None

    def note(self, key: ObjectKey, member: Member | None) -> None:
        """Take note that OPA holds this state of an object, or one that is unknown, or none."""
        self._forget(key)
        # It may have been read before the classifier changed, and written after.
        if member is None or member.edition != self._edition:
            return
        kind = self._kinds.setdefault(member.kind, member.kind)
        self._held[key] = member._replace(kind=kind)
        self._sizes[kind] += 1

    def of(self, key: ObjectKey) -> Member | None:
        """Return what OPA holds of an object, None where that is not known."""
        return self._held.get(key)

    def _forget(self, key: ObjectKey) -> None:
        if (old := self._held.pop(key, None)) is None:
            return
        self._sizes[old.kind] -= 1
        if not self._sizes[old.kind]:
            del self._sizes[old.kind], self._kinds[old.kind]
