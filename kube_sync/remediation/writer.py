"""One PATCH, and what its answer means for whoever wants it.

Keeps true: only a process that may write sends one (`kube/fencedwriter.py`), and each is bound to
the state of the object that was read, so that a process that was stalled in between meets a
conflict where another has written since. What is about to be sent is told first,
and what became of it afterwards.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Literal, Protocol

from kube_sync.errors import Conflict, NotFound, Refused, SyncError, Terminal
from kube_sync.kube.fencedwriter import Fenced, FencedWriter
from kube_sync.objects import GroupVersionResource, ObjectKey
from kube_sync.remediation.decision_cache import Key
from kube_sync.remediation.plan import Current, Write

Patch = Callable[[GroupVersionResource, ObjectKey, Write], Awaitable[None]]
Word = Literal["applied", "gone", "refused", "forbidden", "retried", "fenced"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a PATCH: `written` is None where nobody knows.

    `retry_after` is what the server asked for, in seconds.
    """

    word: Word
    written: bool | None
    error: str = ""
    retry_after: float = 0.0


class Memory(Protocol):
    """Who remembers writes."""

    async def intend(self, key: Key, current: Current, step: Write, approved: str) -> str:
        """Take down what is about to be sent, for a bounded time; return a name for it."""
        ...

    def ended(self, name: str, key: Key, current: Current, outcome: Outcome) -> None:
        """Take down what became of it."""
        ...


class Writer:
    """Whoever may write, as long as it may."""

    def __init__(
        self,
        patch: Patch,
        fenced: FencedWriter,
        standby: Callable[[], str] = lambda: "another remediator is active",
        memory: Memory | None = None,
    ) -> None:
        """`standby` tells why this process may not write."""
        self._patch = patch
        self._fenced = fenced
        self.standby = standby
        self._memory = memory

    @property
    def may(self) -> bool:
        """Whether this process may write now."""
        return self._fenced.may_write

    async def write(
        self, key: Key, step: Write, current: Current | None = None, approved: str = ""
    ) -> Outcome:
        """Make one PATCH of what is `current`; `approved` says who or what let it through."""
        if self._memory is None or current is None or not self.may:
            return await self._write(key, step)
        name = await self._memory.intend(key, current, step, approved)
        outcome = await self._write(key, step)
        self._memory.ended(name, key, current, outcome)
        return outcome

    async def _write(self, key: Key, step: Write) -> Outcome:
        try:
            await self._fenced.send("patch", lambda: self._patch(*key, step))
        except SyncError as error:
            return _failed(error)
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
            # By then the watch has told what is there instead.
            return Outcome("retried", written=False, error=str(error))
        case _:
            asked: float | None = getattr(error, "retry_after", None)
            return Outcome("retried", written=None, error=str(error), retry_after=asked or 0.0)
