"""Knows whether OPA may hold something else than was last known of what decisions read.

A change that is sent to OPA may be in force there before OPA acknowledges it, and a source that is
stale may have changes that nobody has seen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, Protocol

from kube_sync.decisions.collections import Collection_, TrackedCollections
from kube_sync.decisions.records import DecisionFreshness

UNWRITTEN_SECONDS: Final = 0.25  # for so long a change may be unacknowledged


class Pending(Protocol):
    """Data that may be in OPA without an acknowledgement."""

    @property
    def pending(self) -> int:
        """The number of documents."""


class Documents(Protocol):
    """Data that is written besides the collections."""

    @property
    def unsettled(self) -> Pending:
        """What is being written."""

    def places(self) -> Iterable[tuple[str, ...]]:
        """Return the paths of the documents below `data`."""


class Unwritten:
    """Since when a change of what decisions read is not acknowledged."""

    def __init__(
        self,
        collections: TrackedCollections,
        may_read: Callable[[str], bool],
        freshness: DecisionFreshness,
        documents: Documents | None,
        clock: Callable[[], float],
    ) -> None:
        """`may_read` returns whether decisions may depend on a collection; `clock` is monotonic."""
        self._collections = collections
        self._may_read = may_read
        self._freshness = freshness
        self._documents = documents
        self._clock = clock
        self._since: float | None = None

    def note(self) -> None:
        """Note that a change arrived, or was acknowledged."""
        documents = self._documents is not None and self._documents.unsettled.pending
        if not documents and not any(found.pending for found in self._read()):
            self._since = None
        elif self._since is None:
            self._since = self._clock()

    def is_current(self) -> bool:
        """Return whether all changes are acknowledged, but for a moment, and no source is stale."""
        if self._since is not None and self._clock() - self._since > UNWRITTEN_SECONDS:
            return False
        names = tuple(f"{found.name} " for found in self._read())  # a source may add a namespace
        return not any(f"{one.source} ".startswith(names) for one in self._freshness.sources)

    def _read(self) -> list[Collection_]:
        found = self._collections.by_name
        return [one for name, one in found.items() if self._may_read(name)]
