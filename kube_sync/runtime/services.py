"""Run the long-lived parts of a process until a signal or until one of them fails.

The first SIGTERM or SIGINT cancels every service and waits for it to end; a second one exits at
once. A service that ends by itself is an error: services run for ever.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable, Sequence

import structlog

log: structlog.stdlib.BoundLogger = structlog.get_logger()

Service = Callable[[], Awaitable[object]]

_SECOND_SIGNAL_STATUS = 130


async def run_services(services: Sequence[Service]) -> None:
    """Run all of `services`; returns after a signal, raises what the first failing one raised."""
    main = asyncio.create_task(_run_all(services))
    loop = asyncio.get_running_loop()
    stopping = False

    def stop(name: str) -> None:
        nonlocal stopping
        if stopping:
            os._exit(_SECOND_SIGNAL_STATUS)
        stopping = True
        log.info("stopping", signal=name)
        main.cancel()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop, number.name)
    try:
        await main
    except asyncio.CancelledError:
        if not stopping:
            raise
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)


async def _run_all(services: Sequence[Service]) -> None:
    async with asyncio.TaskGroup() as group:
        for service in services:
            group.create_task(_for_ever(service))


async def _for_ever(service: Service) -> None:
    await service()
    msg = f"{service} ended by itself"
    raise RuntimeError(msg)
