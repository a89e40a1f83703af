"""Run the long-lived parts of a process until a signal or until one of them fails.

The first SIGTERM or SIGINT cancels every service and waits for it to end; a second one exits at
once. A service that ends by itself is an error: services run for ever. `finish` runs
while all services still run.
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


async def _nothing() -> None:
    return


async def run_services(services: Sequence[Service], finish: Service = _nothing) -> None:
    """Run all of `services`; return after a signal, raise the error of the first that fails.

    After a signal `finish` runs before any service is cancelled.
    """
    signalled = asyncio.Event()
    loop = asyncio.get_running_loop()

    def stop(name: str) -> None:
        if signalled.is_set():
            log.warning("stopping_at_once", signal=name)
            os._exit(_SECOND_SIGNAL_STATUS)
        log.info("stopping", signal=name)
        signalled.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop, number.name)
    try:
        await _run_all(services, signalled, finish)
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)


async def _run_all(services: Sequence[Service], signalled: asyncio.Event, finish: Service) -> None:
    async with asyncio.TaskGroup() as group:
        running = [group.create_task(_for_ever(service)) for service in services]
        await signalled.wait()
        await finish()
        for task in running:
            task.cancel()


async def _for_ever(service: Service) -> None:
    await service()
    msg = f"{service} ended by itself"
    raise RuntimeError(msg)
