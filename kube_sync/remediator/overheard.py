"""One decision stream for more than one sink: records on their way, heard by somebody else too."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Protocol

from kube_sync.decisions.records import Record


class Records(Protocol):
    """Where records come from; None says that a new stream begins."""

    def records(self) -> AsyncGenerator[Record | None]:
        """Yield records for ever."""
        ...


class Overheard:
    """A decision stream as it is, that tells `take` each record first."""

    def __init__(self, stream: Records, take: Callable[[Record | None], None]) -> None:
        self._stream = stream
        self._take = take

    async def records(self) -> AsyncGenerator[Record | None]:
        """Yield what the stream yields."""
        async with aclosing(self._stream.records()) as records:
            async for record in records:
                self._take(record)
                yield record
