"""Ask the engine now and then, so that its state is known before the first review finds out.

Often while it is down, so that one that is back is known without a review that tries it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn, Protocol

from kube_sync.errors import SyncError
from kube_sync.runtime.backoff import Backoff

_USUAL_SECONDS = 5.0
_DOWN_SECONDS = 0.5


class Probed(Protocol):
    """Whatever can tell whether its engine answers."""

    @property
    def engine_is_down(self) -> bool:
        """Whether it is known to be down."""
        ...

    async def probe(self) -> None:
        """Ask it. Raises SyncError."""
        ...


async def probing(
    judge: Probed,
    report: Callable[[str | None], None],
    backoff: Callable[[float, float], Backoff] = Backoff,
) -> NoReturn:
    """Tell `report` for ever why the engine gives no answers, or None while it does."""
    usual, down = (backoff(seconds, seconds) for seconds in (_USUAL_SECONDS, _DOWN_SECONDS))
    while True:
        try:
            await judge.probe()
            report(None)
        except SyncError as error:
            report(str(error))
        await (down if judge.engine_is_down else usual).wait()
