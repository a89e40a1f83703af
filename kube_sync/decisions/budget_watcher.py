"""Query OPA for the limits on moves: `data.kube_sync_budget`, which policies may define.

Invariant: before a decision is published, the limits on its move are queried at the same state of
policies and data, or at a later one. So the query follows OPA's answer and precedes its
publication, whenever the limits may have changed; always between two sets of policies, and during a
write to data that they read. Slow limits are queried for at most a tenth of the time: these follow
the data later, but the policies at once. Looser limits are published after the decisions on the
data that loosened them. An unusable document changes nothing, and is reported in the hub.
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
_AGAIN_SECONDS = 30.0  # if it changes by itself
_CHEAP_SECONDS = 0.05  # of OPA's time: such a query is repeated each time
_SLOW_SECONDS = 5.0  # an immediate retry would not help
_SETTLE_SECONDS = 10.0  # continuous writes keep former limits in force no longer than this
_SHARE = 10  # otherwise the pause, as a multiple of the query's time


class Pending(Protocol):
    """A collection, or other data that is written."""

    name: str

    @property
    def pending(self) -> int:
        """The number of changes that OPA may hold and that were not announced yet."""
        ...


class _Answer(msgspec.Struct):
    document: msgspec.Raw = msgspec.Raw()  # empty when undefined


class Limiting:
    """Keeps a DecisionHub's limits current, through one epoch of OPA's data."""

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

        `beside` is data that is written besides the collections.
        """
        self._opa = opa
        self._epoch = epoch
        self._hub = hub
        self._check = check
        self._beside = tuple(beside)
        self._clock = clock
        self._leaving: set[str] = set()  # collections that are being removed from OPA
        self._reads: Reads | None = None
        self._none = False  # there is no policy at all
        self._changing = True
        self._due = True  # no decision may be published before the first query
        self._stale = False
        self._asked_at, self._took = 0.0, 0.0
        self._unsettled_since: float | None = None

    @property
    def seconds(self) -> float | None:
        """Seconds until `keep` or `settle` is due, None: not before a change."""
        since, again = self._unsettled_since, self._again
        settle = None
        if since is not None and not self._changing:  # else it ends with `policies_changed`
            settle = max(0.0, since + _SETTLE_SECONDS - self._clock())
        return min((s for s in (settle, again) if s is not None), default=None)

    @property
    def _again(self) -> float | None:
        """Seconds until the next query is due, None: not before a change."""
        if self._stale:
            again = _SHARE * self._took
        elif self._reads is not None and self._reads.impure and not self._none:
            again = max(_AGAIN_SECONDS, _SHARE * self._took)
        else:
            return None
        return max(0.0, self._asked_at + again - self._clock())

    def policies_changing(self) -> None:
        """Record that OPA may hold another set of policies from now on."""
        self._changing = True

    def policies_changed(self, reads: Reads | None, *, none: bool) -> None:
        """Record that OPA holds another set, whose limits read this; `none`: it is empty."""
        self._reads, self._none = reads, none
        self._changing, self._due = False, True

    def written(self, name: str) -> None:
        """Record that OPA holds another state of a collection, or no longer has the collection."""
        self._leaving.discard(name)
        if self._looks_at(name):
            self._stale = True

    def leaving(self, name: str) -> None:
        """Record that a collection is being removed from OPA, until it is `written`."""
        self._leaving.add(name)

    async def keep(self) -> None:
        """Query the limits if they may be out of date. Raises SyncError."""
        cheap = self._stale and self._took <= _CHEAP_SECONDS
        if self._due or cheap or self._again == 0:
            await self._ask()

    async def keep_after(self, collections: Iterable[Pending]) -> None:
        """Do the same before publishing an answer that OPA has just given. Raises SyncError."""
        if self._under_way(collections):
            self._stale = True
        if self._changing and self._took < _SLOW_SECONDS:
            self._due = True
        await self.keep()

    def settle(self, collections: Iterable[Pending]) -> None:
        """Leave only the present limits in force, once all decisions have been published.

        Not while OPA may hold data on which decisions are still to be made.
        """
        if self._hub.is_settled:
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
        """Return whether OPA may hold unannounced data that the limits read."""
        written = (found.name for found in (*collections, *self._beside) if found.pending)
        return any(self._looks_at(name) for name in (*self._leaving, *written))

    def _looks_at(self, name: str) -> bool:
        read = self._reads.resources.get(name) if self._reads is not None else None
        return read is None or read.used

    async def _ask(self) -> None:
        if self._none and not self._changing:
            self._due = self._stale = False
            self._hub.set_limits(None)
            return
        due, self._due, self._stale = self._due, False, False  # changes from now on count anew
        self._asked_at = self._clock()
        try:
            document = await self._document()
        except SyncError as error:
            self._took = self._clock() - self._asked_at
            if not isinstance(error, Undecided) and self._took < _SLOW_SECONDS:
                self._due = due or self._due
                self._stale = True
                raise
            # A slow answer may succeed later; an evaluation error stays.
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
        self._hub.set_limits(document)

    def _failed(self, failure: str) -> None:
        metrics.budget_evaluations.labels("failed").inc()
        metrics.budget_unusable.set(1)
        log.warning("budget_unusable", error=failure)
        self._hub.set_limits_failure(failure)


def _decoded(raw: bytes, type_: Any) -> Any:  # noqa: ANN401 - whatever a policy says
    try:
        return msgspec.json.decode(raw, type=type_)
    except NO_JSON as error:
        msg = f"data.{BUDGET} cannot be read: {error}"
        raise Undecided(msg) from error
