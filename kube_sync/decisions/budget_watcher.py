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
from kube_sync.errors import Retriable, SyncError, Undecided, json_errors_as
from kube_sync.observability import metrics
from kube_sync.opa.analysis.result import Reads

log: structlog.stdlib.BoundLogger = structlog.get_logger()

BUDGET = "kube_sync_budget"  # the path of the document
LONGEST = 1 << 20  # bytes; it is part of a line of the stream

_QUERY = "kube_sync/batch/budget"
_REPEAT_SECONDS = 30.0  # if it changes by itself
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


class _Answer(msgspec.Struct):
    document: msgspec.Raw = msgspec.Raw()  # empty when undefined


class BudgetWatcher:
    """Keeps a DecisionHub's limits current, through one epoch of OPA's data."""

    def __init__(
        self,
        opa: DecisionApi,
        epoch: str,
        hub: DecisionHub,
        check: Callable[[Any], object],
        *,
        other_data: Iterable[Pending] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`check` reads a document, decoded from JSON. Raises Undecided.

        `other_data` is data that is written besides the collections.
        """
        self._opa = opa
        self._epoch = epoch
        self._hub = hub
        self._check = check
        self._other_data = tuple(other_data)
        self._clock = clock
        self._removing: set[str] = set()  # collections that are being removed from OPA
        self._reads: Reads | None = None
        self._is_empty = False  # there is no policy at all
        self._is_changing = True
        self._due = True  # no decision may be published before the first query
        self._stale = False
        self._queried_at, self._query_seconds = 0.0, 0.0
        self._unsettled_since: float | None = None

    @property
    def seconds(self) -> float | None:
        """Seconds until `refresh` or `settle` is due, None: not before a change."""
        since, next_query = self._unsettled_since, self._next_query_seconds
        settle = None
        if since is not None and not self._is_changing:  # else it ends with `policies_changed`
            settle = max(0.0, since + _SETTLE_SECONDS - self._clock())
        return min((s for s in (settle, next_query) if s is not None), default=None)

    @property
    def _next_query_seconds(self) -> float | None:
        """Seconds until the next query is due, None: not before a change."""
        if self._stale:
            seconds = _SHARE * self._query_seconds
        elif self._reads is not None and self._reads.impure and not self._is_empty:
            seconds = max(_REPEAT_SECONDS, _SHARE * self._query_seconds)
        else:
            return None
        return max(0.0, self._queried_at + seconds - self._clock())

    def policies_changing(self) -> None:
        """Record that OPA may hold another set of policies from now on."""
        self._is_changing = True

    def policies_changed(self, reads: Reads | None, *, is_empty: bool) -> None:
        """Record that OPA holds another set, whose limits read this; an empty one has none."""
        self._reads, self._is_empty = reads, is_empty
        self._is_changing, self._due = False, True

    def written(self, name: str) -> None:
        """Record that OPA holds another state of a collection, or no longer has the collection."""
        self._removing.discard(name)
        if self._may_read(name):
            self._stale = True

    def removing(self, name: str) -> None:
        """Record that a collection is being removed from OPA, until it is `written`."""
        self._removing.add(name)

    async def refresh(self) -> None:
        """Query the limits if they may be out of date. Raises SyncError."""
        cheap = self._stale and self._query_seconds <= _CHEAP_SECONDS
        if self._due or cheap or self._next_query_seconds == 0:
            await self._query()

    async def refresh_after(self, collections: Iterable[Pending]) -> None:
        """Do the same before publishing an answer that OPA has just given. Raises SyncError."""
        if self._is_pending(collections):
            self._stale = True
        if self._is_changing and self._query_seconds < _SLOW_SECONDS:
            self._due = True
        await self.refresh()

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
        if self._is_changing or (self._is_pending(collections) and now < since + _SETTLE_SECONDS):
            return
        self._unsettled_since = None
        self._hub.settle()

    def _is_pending(self, collections: Iterable[Pending]) -> bool:
        """Return whether OPA may hold unannounced data that the limits read."""
        written = (found.name for found in (*collections, *self._other_data) if found.pending)
        return any(self._may_read(name) for name in (*self._removing, *written))

    def _may_read(self, name: str) -> bool:
        read = self._reads.resources.get(name) if self._reads is not None else None
        return read is None or read.used

    async def _query(self) -> None:
        if self._is_empty and not self._is_changing:
            self._due = self._stale = False
            self._hub.set_limits(None)
            return
        due, self._due, self._stale = self._due, False, False  # changes from now on count anew
        self._queried_at = self._clock()
        try:
            document = await self._query_document()
        except SyncError as error:
            self._query_seconds = self._clock() - self._queried_at
            if not isinstance(error, Undecided) and self._query_seconds < _SLOW_SECONDS:
                self._due = due or self._due
                self._stale = True
                raise
            # A slow answer may succeed later; an evaluation error stays.
            self._stale = self._stale or not isinstance(error, Undecided)
            self._publish_failure(str(error))
        else:
            self._query_seconds = self._clock() - self._queried_at
            self._publish(document)
        self._queried_at = self._clock()

    async def _query_document(self) -> Any:  # noqa: ANN401 - whatever a policy says
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

    def _publish(self, document: Any) -> None:  # noqa: ANN401 - whatever a policy says
        metrics.budget_evaluations.labels("undefined" if document is None else "told").inc()
        metrics.budget_unusable.set(0)
        self._hub.set_limits(document)

    def _publish_failure(self, failure: str) -> None:
        metrics.budget_evaluations.labels("failed").inc()
        metrics.budget_unusable.set(1)
        log.warning("budget_unusable", error=failure)
        self._hub.set_limits_failure(failure)


def _decoded(raw: bytes, type_: Any) -> Any:  # noqa: ANN401 - whatever a policy says
    with json_errors_as(Undecided, f"data.{BUDGET} cannot be read"):
        return msgspec.json.decode(raw, type=type_)
