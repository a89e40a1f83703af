"""One followed kind: its feed into the World, and its state on the readiness page.

Invariant: a 404 while the kind is known to exist, and any other failure, changes nothing. Only a
kind that was never listed, and was denied all along for a while, counts as empty.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import structlog

from kube_sync.errors import NotFound, Refused, SyncError, Unconfirmed
from kube_sync.kube.collection import Event, Item
from kube_sync.kube.following import Feed
from kube_sync.kube.reflector import Store
from kube_sync.topology.controller.kind_selection import Choice

log: structlog.stdlib.BoundLogger = structlog.get_logger()


class FollowedKind:
    """The Store of one Reflector, in front of the World's."""

    def __init__(
        self,
        choice: Choice,
        store: Store,
        note: Callable[[str], None],
        is_waited_for: Callable[[], bool],
        may_be_absent: Callable[[], bool],
        patience: float,
    ) -> None:
        """`is_waited_for` returns whether it was never listed; `patience` is in seconds.

        `may_be_absent` returns whether a 404 may be true.
        """
        self.choice = choice
        self.feed = Feed(self, self._report, self._failed)
        self.unseen = ""  # why it counts as empty without a LIST
        self.remark = ""  # a remark on its definition
        self._store = store
        self._note = note
        self._is_waited_for = is_waited_for
        self._may_be_absent = may_be_absent
        self._patience = patience
        self._denied = ""
        self._trouble = "not listed yet"
        self._failure = ""  # of the last request
        self._missing = False  # whether the API server does not know the kind
        self._timer: asyncio.TimerHandle | None = None

    @property
    def failure(self) -> str:
        """Why it is stale, "" if it is not."""
        return "" if self._missing and self._may_be_absent() else self._failure

    def close(self) -> None:
        """Cancel the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def tell(self) -> None:
        """Report the state."""
        empty = "it counts as a kind without objects" if self.unseen else ""
        trouble = [part for part in (self.remark, self._trouble, empty) if part]
        self._note("; ".join(trouble) or "ok")

    async def page(self, items: Sequence[Item]) -> None:
        """Take a part of a LIST."""
        await self._store.page(items)

    def finish(self, *, known: bool) -> None:
        """Hold exactly the objects of the pages; an unknown kind may exist nevertheless."""
        if known:
            self.close()
            self.unseen = self._denied = ""
            self._store.finish(known=True)
        elif self._may_be_absent() and not self._is_waited_for():
            self._store.finish(known=False)

    def abandon(self) -> None:
        """Drop the pages of an incomplete LIST."""
        self._store.abandon()

    def apply(self, event: Event) -> None:
        """Apply one watch event."""
        self._store.apply(event)

    def _report(self, reason: str | None) -> None:
        self._trouble = self._failure = reason or ""
        self.tell()

    def _failed(self, error: SyncError) -> None:
        self._missing = isinstance(error, NotFound)
        self._denied = str(error) if isinstance(error, Refused | NotFound | Unconfirmed) else ""
        if not self._denied:
            self.close()  # only a kind that is denied all along counts as empty
        elif self._timer is None and self._is_waited_for():
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._patience, self._give_up)

    def _give_up(self) -> None:
        self._timer = None
        self.unseen = self._denied
        log.warning("kind_counts_as_empty", gvk=str(self.choice.kind.id), error=self.unseen)
        self._store.finish(known=False)
        self.tell()
