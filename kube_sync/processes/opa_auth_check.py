"""Checks that OPA requires authorization, if it is expected to.

A process that has a token for OPA expects that others need one too. An OPA that answers requests
without one was started without its authorization, so that anybody may change decisions: the
process is not ready until that is fixed. Other checks report an OPA that does not answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, NoReturn, Protocol

from kube_sync.errors import SyncError
from kube_sync.observability.readiness import Readiness

CONDITION: Final = "opa authorization"
_CHECK_SECONDS: Final = 30.0
_SOON_SECONDS: Final = 2.0  # interval while something is wrong, or nothing known


class OpaProbe(Protocol):
    """A client of OPA without a token."""

    async def answers_strangers(self) -> bool:
        """Return whether OPA answers a request without a token. Raises SyncError."""


async def watch_authorization(
    opa: OpaProbe,
    url: str,
    readiness: Readiness,
    *,
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
) -> NoReturn:
    """Check periodically whether OPA at `url` requires authorization, for ever."""
    while True:
        pause = _SOON_SECONDS
        try:
            if await opa.answers_strangers():
                why = "--authentication=token, --authorization=basic and system.authz are missing"
                readiness.waiting(CONDITION, f"OPA {url} answers whoever has no token: {why}")
            else:
                readiness.met(CONDITION)
                pause = _CHECK_SECONDS
        except SyncError:
            pass  # no answer: the last result stays
        await sleep(pause)
