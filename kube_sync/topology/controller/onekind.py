"""One kind that is followed: what reaches the World of it, and what people are told.

Keeps true: a 404 while the kind is known to be there, and any other failure, changes nothing. Only
a kind that was never listed, and was denied all along for a while, counts as one without objects.
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
    """The Store of one Reflector, before that of the World."""

    def __init__(
        self,
        choice: Choice,
        store: Store,
        note: Callable[[str], None],
        is_waited_for: Callable[[], bool],
        may_be_absent: Callable[[], bool],
        patience: float,
    ) -> None:
        """`is_waited_for` tells whether nothing was ever listed; `patience` is in seconds.

        `may_be_absent` tells whether a 404 may be true.
        """
        self.choice = choice
        self.feed = Feed(self, self._report, self._failed)
        self.unseen = ""  # why it counts as empty although nobody knows
        self.remark = ""  # what there is to say of its definition
        self._store = store
        self._note = note
        self._is_waited_for = is_waited_for
        self._may_be_absent = may_be_absent
        self._patience = patience
        self._denied = ""
        self._trouble = "not listed yet"
        self._failure = ""  # of what was asked last
        self._missing = False  # and it was that the API server does not know the kind
        self._timer: asyncio.TimerHandle | None = None

    @property
    def failure(self) -> str:
        """Why what is known of it is not current, "" where nothing is in the way."""
        return "" if self._missing and self._may_be_absent() else self._failure

    def close(self) -> None:
        """Wait for nothing more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def tell(self) -> None:
        """Tell how it goes."""
        empty = "it counts as a kind without objects" if self.unseen else ""
        trouble = [part for part in (self.remark, self._trouble, empty) if part]
        self._note("; ".join(trouble) or "ok")

    async def page(self, items: Sequence[Item]) -> None:
        """Take a part of a LIST."""
        await self._store.page(items)

    def finish(self, *, known: bool) -> None:
        """Hold exactly what the pages held; a kind that is said to be unknown may be there."""
        if known:
            self.close()
            self.unseen = self._denied = ""
            self._store.finish(known=True)
        elif self._may_be_absent() and not self._is_waited_for():
            self._store.finish(known=False)

    def abandon(self) -> None:
        """Forget the pages of a LIST that broke off."""
        self._store.abandon()

    def apply(self, event: Event) -> None:
        """Take one change in."""
        self._store.apply(event)

    def _report(self, reason: str | None) -> None:
        self._trouble = self._failure = reason or ""
        self.tell()

    def _failed(self, error: SyncError) -> None:
        self._missing = isinstance(error, NotFound)
        self._denied = str(error) if isinstance(error, Refused | NotFound | Unconfirmed) else ""
        if not self._denied:
            self.close()  # denied all along, or nothing is known
        elif self._timer is None and self._is_waited_for():
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._patience, self._give_up)

    def _give_up(self) -> None:
        self._timer = None
        self.unseen = self._denied
        log.warning("kind_counts_as_empty", gvk=str(self.choice.kind.id), error=self.unseen)
        self._store.finish(known=False)
        self.tell()
