"""Sends one PATCH and classifies the response.

Invariant: only a process that may write sends one (`kube/fencedwriter.py`), and each is bound to
the resourceVersion that was read, so that a process that stalled in between gets a conflict if
another has written since. Each PATCH is reported to `recorder` before it is sent, and its outcome
afterwards. How the API server answers is reported to `pace`, which limits concurrent PATCHes.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Literal, Protocol

from kube_sync.errors import Conflict, NotFound, Overloaded, Refused, SyncError, Terminal
from kube_sync.kube.fencedwriter import Fenced, FencedWriter
from kube_sync.objects import GroupVersionResource, ObjectKey
from kube_sync.remediation.decision_cache import Key
from kube_sync.remediation.plan import Current, Write

Patch = Callable[[GroupVersionResource, ObjectKey, Write], Awaitable[None]]
Status = Literal["applied", "gone", "refused", "forbidden", "retried", "fenced"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a PATCH; `written` is None if it is not known.

    `retry_after` is the server's Retry-After, in seconds.
    """

    status: Status
    written: bool | None
    error: str = ""
    retry_after: float = 0.0


class WriteRecorder(Protocol):
    """Records writes."""

    async def intend(self, key: Key, current: Current, step: Write, approved: str) -> str:
        """Record a PATCH that is about to be sent, in bounded time; return a name for it."""

    def ended(self, name: str, key: Key, current: Current, outcome: Outcome) -> None:
        """Record the outcome of a PATCH."""


class Pace(Protocol):
    """Adapts the number of concurrent PATCHes to the API server's answers."""

    def now(self) -> float:
        """Return the present time, to report when a PATCH started."""

    def answered(self, started: float) -> None:
        """Record a success of the PATCH that started then."""

    def overloaded(self, started: float, retry_after: float | None = None) -> None:
        """Record that the API server refused a PATCH because of its load, or did not answer it."""


class Writer:
    """Sends PATCHes while this process may write."""

    def __init__(
        self,
        patch: Patch,
        fenced: FencedWriter,
        standby: Callable[[], str] = lambda: "another remediator is active",
        recorder: WriteRecorder | None = None,
        pace: Pace | None = None,
    ) -> None:
        """`standby` returns why this process may not write."""
        self._patch = patch
        self._fenced = fenced
        self.standby = standby
        self._recorder = recorder
        self._pace = pace

    @property
    def may(self) -> bool:
        """Whether this process may write now."""
        return self._fenced.may_write

    async def write(
        self, key: Key, step: Write, current: Current | None = None, approved: str = ""
    ) -> Outcome:
        """Send one PATCH for `current`; `approved` is what or who approved it."""
        if self._recorder is None or current is None or not self.may:
            return await self._write(key, step)
        name = await self._recorder.intend(key, current, step, approved)
        outcome = await self._write(key, step)
        self._recorder.ended(name, key, current, outcome)
        return outcome

    async def _write(self, key: Key, step: Write) -> Outcome:
        started = self._pace.now() if self._pace else 0.0
        try:
            await self._fenced.send("patch", lambda: self._patch(*key, step))
        except SyncError as error:
            if self._pace is not None and isinstance(error, Overloaded):
                self._pace.overloaded(started, error.retry_after)
            return _failed(error)
        if self._pace is not None:
            self._pace.answered(started)
        return Outcome("applied", written=True)


def _failed(error: SyncError) -> Outcome:
    match error:
        case Fenced():
            return Outcome("fenced", written=None if error.sent else False, error=str(error))
        case NotFound():
            return Outcome("gone", written=False, error=str(error))
        case Terminal():
            return Outcome("refused", written=False, error=str(error))
        case Refused():
            return Outcome("forbidden", written=False, error=str(error))
        case Conflict():
            # By the retry the watch has delivered the newer object.
            return Outcome("retried", written=False, error=str(error))
        case _:
            retry_after: float | None = getattr(error, "retry_after", None)
            return Outcome(
                "retried", written=None, error=str(error), retry_after=retry_after or 0.0
            )
