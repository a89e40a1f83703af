"""Ask OPA how much may move: `data.kube_sync_budget`, which policies may define.

Keeps true: when a decision is told, what limits its move was asked for at the same state of
policies and data, or at a later one. So it is asked for after the answer and before that is told,
whenever it may have changed; between two sets of policies, and while a write is under way to what
it looks at, each time. Limits that take OPA long are asked for again at most for a tenth of the
time: these follow the data later, but the policies at once. What limits less comes after the
decisions that were made on what made it so. What cannot be used changes nothing, and is said in the
hub.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any, Protocol

import msgspec
import structlog

from kube_sync.decisions.evaluator import DecisionApi
from kube_sync.decisions.hub import DecisionHub
from kube_sync.errors import NO_JSON, Retriable, SyncError, Undecided
from kube_sync.observability import metrics
from kube_sync.opa.analysis.reads import Reads

log: structlog.stdlib.BoundLogger = structlog.get_logger()

BUDGET = "kube_sync_budget"  # the path of the document
LONGEST = 1 << 20  # bytes; it is part of a line of the stream

_QUERY = "kube_sync/batch/budget"
_AGAIN_SECONDS = 30.0  # where it changes by itself
_CHEAP_SECONDS = 0.05  # of OPA's time: nobody waits for long who asks each time
_SLOW_SECONDS = 5.0  # such an answer would not come by asking again at once
_SETTLE_SECONDS = 10.0  # writes that are under way without end keep nothing in force for longer
_SHARE = 10  # else it rests this many times as long as it took


class Pending(Protocol):
    """A collection, or what else is written to."""

    name: str

    @property
    def pending(self) -> int:
        """How many changes there are of which nobody was told that OPA holds them."""
        ...


class _Answer(msgspec.Struct):
    document: msgspec.Raw = msgspec.Raw()  # empty when undefined


class Limiting:
    """Keeps what a DecisionHub tells of the limits current, through one epoch of OPA's data."""

    def __init__(
        self,
        opa: DecisionApi,
        epoch: str,
        hub: DecisionHub,
        check: Callable[[Any], object],
        *,
        beside: Iterable[Pending] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`check` reads a document, decoded from JSON. Raises Undecided.

        `beside` is what is written beside the collections that objects are replicated to.
        """
        self._opa = opa
        self._epoch = epoch
        self._hub = hub
        self._check = check
        self._beside = tuple(beside)
        self._clock = clock
        self._leaving: set[str] = set()  # collections that are on their way out of OPA
        self._reads: Reads | None = None
        self._none = False  # there is no policy at all
        self._changing = True
        self._due = True  # nothing may be told before it was asked for
        self._stale = False
        self._asked_at, self._took = 0.0, 0.0
        self._unsettled_since: float | None = None

    @property
    def seconds(self) -> float | None:
        """How long until there is something to do, None: when something changes."""
        since, again = self._unsettled_since, self._again
        settle = None
        if since is not None and not self._changing:  # else the news of that is what ends it
            settle = max(0.0, since + _SETTLE_SECONDS - self._clock())
        return min((s for s in (settle, again) if s is not None), default=None)

    @property
    def _again(self) -> float | None:
        """How long until it is to be asked for, None: when something changes."""
        if self._stale:
            again = _SHARE * self._took
        elif self._reads is not None and self._reads.impure and not self._none:
            again = max(_AGAIN_SECONDS, _SHARE * self._took)
        else:
            return None
        return max(0.0, self._asked_at + again - self._clock())

    def policies_changing(self) -> None:
        """Take note that OPA may hold another set of policies from now on."""
        self._changing = True

    def policies_changed(self, reads: Reads | None, *, none: bool) -> None:
        """Take note that OPA holds another set, whose limits read this; `none`: it is empty."""
        self._reads, self._none = reads, none
        self._changing, self._due = False, True

    def written(self, name: str) -> None:
        """Take note that OPA holds something new in a collection, or the collection no more."""
        self._leaving.discard(name)
        if self._looks_at(name):
            self._stale = True

    def leaving(self, name: str) -> None:
        """Take note that a collection is on its way out of OPA, until that is `written`."""
        self._leaving.add(name)

    async def keep(self) -> None:
        """Ask if what is known may be out of date. Raises SyncError."""
        cheap = self._stale and self._took <= _CHEAP_SECONDS
        if self._due or cheap or self._again == 0:
            await self._ask()

    async def keep_after(self, collections: Iterable[Pending]) -> None:
        """Do so before an answer is told that OPA gave a moment ago. Raises SyncError."""
        if self._under_way(collections):
            self._stale = True
        if self._changing and self._took < _SLOW_SECONDS:
            self._due = True
        await self.keep()

    def settle(self, collections: Iterable[Pending]) -> None:
        """Let the limits alone be in force that are known, all decisions being told.

        Not while OPA may hold something already on which there is still to be decided.
        """
        if self._hub.settled:
            self._unsettled_since = None
            return
        now = self._clock()
        since = self._unsettled_since = (
            now if self._unsettled_since is None else self._unsettled_since
        )
        if self._changing or (self._under_way(collections) and now < since + _SETTLE_SECONDS):
            return
        self._unsettled_since = None
        self._hub.settle()

    def _under_way(self, collections: Iterable[Pending]) -> bool:
        """Tell whether OPA may hold something that the limits look at, and that is not told yet."""
        written = (found.name for found in (*collections, *self._beside) if found.pending)
        return any(self._looks_at(name) for name in (*self._leaving, *written))

    def _looks_at(self, name: str) -> bool:
        read = self._reads.resources.get(name) if self._reads is not None else None
        return read is None or read.used

    async def _ask(self) -> None:
        if self._none and not self._changing:
            self._due = self._stale = False
            self._hub.limit(None)
            return
        due, self._due, self._stale = self._due, False, False  # what changes from now on, again
        self._asked_at = self._clock()
        try:
            document = await self._document()
        except SyncError as error:
            self._took = self._clock() - self._asked_at
            if not isinstance(error, Undecided) and self._took < _SLOW_SECONDS:
                self._due = due or self._due
                self._stale = True
                raise
            # An answer that is too slow may come one day; an evaluation error stays.
            self._stale = self._stale or not isinstance(error, Undecided)
            self._failed(str(error))
        else:
            self._took = self._clock() - self._asked_at
            self._told(document)
        self._asked_at = self._clock()

    async def _document(self) -> Any:  # noqa: ANN401 - whatever a policy says
        body = msgspec.json.encode({"input": {"epoch": self._epoch}})
        answer = await self._opa.query(_QUERY, body)
        if answer is None:
            msg = "OPA does not hold all that this replicator loaded"
            raise Retriable(msg)
        raw = bytes(_decoded(answer, _Answer).document)
        if not raw:
            return None
        if len(raw) > LONGEST:
            msg = f"data.{BUDGET} is longer than {LONGEST} bytes"
            raise Undecided(msg)
        document = _decoded(raw, Any)
        self._check(document)
        return document

    def _told(self, document: Any) -> None:  # noqa: ANN401 - whatever a policy says
        metrics.budget_evaluations.labels("undefined" if document is None else "told").inc()
        metrics.budget_unusable.set(0)
        self._hub.limit(document)

    def _failed(self, failure: str) -> None:
        metrics.budget_evaluations.labels("failed").inc()
        metrics.budget_unusable.set(1)
        log.warning("budget_unusable", error=failure)
        self._hub.not_limited(failure)


def _decoded(raw: bytes, type_: Any) -> Any:  # noqa: ANN401 - whatever a policy says
    try:
        return msgspec.json.decode(raw, type=type_)
    except NO_JSON as error:
        msg = f"data.{BUDGET} cannot be read: {error}"
        raise Undecided(msg) from error
