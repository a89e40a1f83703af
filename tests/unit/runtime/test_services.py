from __future__ import annotations

import asyncio
import signal
import sys
from asyncio.subprocess import PIPE, Process
from contextlib import suppress
from typing import Any

import pytest

from kube_sync.runtime.services import run_services
from tests.unit.async_tools import PATIENCE

_PRELUDE = """
import asyncio
from kube_sync.runtime.services import run_services

async def serve(name):
    print(name, "runs", flush=True)
    try:
        await asyncio.Event().wait()
    finally:
        print(name, "ended", flush=True)
"""
_TWO = _PRELUDE + 'asyncio.run(run_services([lambda: serve("one"), lambda: serve("two")]))'
_STUBBORN = (
    _PRELUDE
    + """
async def stubborn():
    try:
        await serve("one")
    finally:
        print("cleans up", flush=True)
        await asyncio.sleep(60)

asyncio.run(run_services([stubborn]))
"""
)


async def _started(script: str) -> Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, "-c", script, stdout=PIPE, stderr=PIPE
    )


async def _line(process: Process) -> str:
    assert process.stdout is not None
    return (await process.stdout.readline()).decode().strip()


async def _lines_after(process: Process) -> list[str]:
    """Wait for the end and return what was printed meanwhile, without log lines."""
    out, err = await process.communicate()
    assert b"Traceback" not in err
    return sorted(line for line in out.decode().splitlines() if "stopping" not in line)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_ends_every_service_and_the_process_exits_cleanly(
    number: signal.Signals,
) -> None:
    process = await _started(_TWO)
    try:
        async with asyncio.timeout(PATIENCE):
            assert {await _line(process), await _line(process)} == {"one runs", "two runs"}
            process.send_signal(number)
            assert await _lines_after(process) == ["one ended", "two ended"]
        assert process.returncode == 0
    finally:
        _end(process)


async def test_a_second_signal_exits_at_once() -> None:
    process = await _started(_STUBBORN)
    try:
        async with asyncio.timeout(PATIENCE):
            assert await _line(process) == "one runs"
            process.send_signal(signal.SIGTERM)
            while await _line(process) != "cleans up":
                pass
            process.send_signal(signal.SIGTERM)
            assert await process.wait() == 130
            await process.communicate()
    finally:
        _end(process)


def _end(process: Process) -> None:
    if process.returncode is None:
        process.kill()


async def _for_ever() -> None:
    await asyncio.Event().wait()


async def _fail() -> None:
    msg = "broken"
    raise ValueError(msg)


async def _end_by_itself() -> None:
    return


def _only(group: BaseExceptionGroup[Any]) -> BaseException:
    (error,) = group.exceptions
    return error


async def test_a_failing_service_ends_the_others_and_is_raised() -> None:
    ended = asyncio.Event()

    async def other() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    with pytest.raises(BaseExceptionGroup) as raised:
        await run_services([other, _fail])
    assert str(_only(raised.value)) == "broken"
    assert ended.is_set()


async def test_a_service_that_ends_by_itself_is_an_error() -> None:
    with pytest.raises(BaseExceptionGroup) as raised:
        await run_services([_for_ever, _end_by_itself])
    assert "_end_by_itself" in str(_only(raised.value))
    assert str(_only(raised.value)).endswith("ended by itself")


async def test_a_cancellation_from_outside_is_not_swallowed() -> None:
    task = asyncio.create_task(run_services([_for_ever]))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_signal_ends_services_in_this_process_too() -> None:
    """The same as with a process of its own, where coverage can see it."""

    async def stop() -> None:
        signal.raise_signal(signal.SIGTERM)
        await asyncio.Event().wait()

    async with asyncio.timeout(PATIENCE):
        await run_services([_for_ever, stop])


async def test_a_service_that_fails_while_stopping_is_raised() -> None:
    async def stop() -> None:
        try:
            signal.raise_signal(signal.SIGTERM)
            await asyncio.Event().wait()
        finally:
            await _fail()

    async with asyncio.timeout(PATIENCE):
        with pytest.raises(BaseExceptionGroup) as raised:
            await run_services([stop])
    assert str(_only(raised.value)) == "broken"


async def test_after_a_signal_something_is_finished_while_services_still_run() -> None:
    seen: list[str] = []

    async def serve() -> None:
        try:
            signal.raise_signal(signal.SIGTERM)
            await asyncio.Event().wait()
        finally:
            seen.append("ended")

    async def finish() -> None:
        await asyncio.sleep(0)
        seen.append("finished")

    async with asyncio.timeout(PATIENCE):
        await run_services([serve], finish)
    assert seen == ["finished", "ended"]


async def test_a_service_that_fails_meanwhile_is_raised() -> None:
    begun = asyncio.Event()

    async def serve() -> None:
        signal.raise_signal(signal.SIGTERM)
        await begun.wait()
        await _fail()

    async def finish() -> None:
        begun.set()
        await asyncio.Event().wait()

    async with asyncio.timeout(PATIENCE):
        with pytest.raises(BaseExceptionGroup) as raised:
            await run_services([serve], finish)
    assert str(_only(raised.value)) == "broken"


async def test_signal_handlers_are_removed_at_the_end() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with suppress(BaseExceptionGroup):
        await run_services([_fail])
    assert signal.getsignal(signal.SIGTERM) == before
