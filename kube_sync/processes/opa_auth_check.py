"""Whether OPA asks who calls, where it is expected to.

A process that has a token for OPA takes it that others need one too. One that answers a stranger
was started without its authorization, so that anybody may change what is decided: the process is
not ready until that is mended. An OPA that does not answer is for others to tell of.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, NoReturn, Protocol

from kube_sync.errors import SyncError
from kube_sync.observability.readiness import Readiness

CONDITION: Final = "opa authorization"
_LOOK_SECONDS: Final = 30.0
_SOON_SECONDS: Final = 2.0  # while something is wrong, or nothing known


class OpaProbe(Protocol):
    """An OPA, as somebody without a token finds it."""

    async def answers_strangers(self) -> bool:
        """Tell whether it answers a request without a token. Raises SyncError."""
        ...


async def watch_door(
    door: OpaProbe,
    url: str,
    readiness: Readiness,
    *,
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
) -> NoReturn:
    """Look now and again whether OPA at `url` is open to anybody, for ever."""
    while True:
        pause = _SOON_SECONDS
        try:
            if await door.answers_strangers():
                why = "--authentication=token, --authorization=basic and system.authz are missing"
                readiness.waiting(CONDITION, f"OPA {url} answers whoever has no token: {why}")
            else:
                readiness.met(CONDITION)
                pause = _LOOK_SECONDS
        except SyncError:
            pass  # it says nothing now: what was known of it stands
        await sleep(pause)
