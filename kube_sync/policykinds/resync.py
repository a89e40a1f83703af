"""Has the policies of a kind judged again from time to time.

What is said of a policy may depend on what is no policy: the DaemonSets of the cluster, its
PriorityClasses. Their changes wake nobody, so all is looked at again; what is right is not written.
"""

from __future__ import annotations

import asyncio
from typing import Final, NoReturn, Protocol

SECONDS: Final = 30.0


class Keeper(Protocol):
    """Who keeps the conditions of policies."""

    def wake(self) -> None:
        """Look at every policy again."""
        ...


async def resync(keeper: Keeper, seconds: float = SECONDS) -> NoReturn:
    """Wake the keeper every so many seconds until cancelled."""
    while True:
        await asyncio.sleep(seconds)
        keeper.wake()
