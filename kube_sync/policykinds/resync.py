"""Periodic resync of the conditions of a kind's policies.

The report on a policy may depend on other objects: DaemonSets, PriorityClasses. No watch of these
enqueues a policy, so all are reconciled again; only what differs is written.
"""

from __future__ import annotations

import asyncio
from typing import Final, NoReturn, Protocol

SECONDS: Final = 30.0


class Keeper(Protocol):
    """Reconciles the conditions of policies."""

    def wake(self) -> None:
        """Enqueue every policy."""
        ...


async def resync(keeper: Keeper, seconds: float = SECONDS) -> NoReturn:
    """Wake the keeper every so many seconds until cancelled."""
    while True:
        await asyncio.sleep(seconds)
        keeper.wake()
