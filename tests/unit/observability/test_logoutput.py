from __future__ import annotations

import asyncio
import io
import subprocess
import sys
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from kube_sync.observability.logoutput import BATCHED, LogOutput


class Stream(io.StringIO):
    """A stream that keeps each write."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[str] = []

    def write(self, text: str) -> int:
        self.writes.append(text)
        return len(text)


class World:
    """A stream, and both loggers of it."""

    def __init__(self) -> None:
        self.stream = Stream()
        output = LogOutput(self.stream)
        self.batched: SimpleNamespace = output(BATCHED)
        self.prompt: SimpleNamespace = output()


@pytest.fixture
def world() -> World:
    return World()


async def test_batched_lines_of_one_turn_are_one_write(world: World) -> None:
    for number in range(3):
        world.batched.info(f"{number}")
    assert world.stream.writes == []
    await asyncio.sleep(0)
    world.batched.warning("3")
    await asyncio.sleep(0)
    assert world.stream.writes == ["0\n1\n2\n", "3\n"]


async def test_other_line_is_written_at_once_after_those_before_it(world: World) -> None:
    world.batched.info("a")
    world.prompt.error("b")
    assert world.stream.writes == ["a\nb\n"]
    world.batched.info("c")
    await asyncio.sleep(0)
    assert world.stream.writes == ["a\nb\n", "c\n"]


def test_without_a_loop_each_line_is_written_at_once(world: World) -> None:
    world.batched.info("a")
    world.batched.info("b")
    assert world.stream.writes == ["a\n", "b\n"]


async def test_line_of_a_thread_is_written_at_once_after_those_before_it(world: World) -> None:
    world.batched.info("a")
    await asyncio.to_thread(world.batched.info, "b")
    assert "".join(world.stream.writes) == "a\nb\n"


def _in_one_turn(function: Callable[[], object]) -> None:
    """Run a loop for one turn, and close it."""
    loop = asyncio.new_event_loop()
    loop.call_soon(function)
    loop.call_soon(loop.stop)
    loop.run_forever()
    loop.close()


def test_line_that_a_closed_loop_has_not_written_is_written_by_the_next(world: World) -> None:
    _in_one_turn(lambda: world.batched.info("a"))
    assert world.stream.writes == []

    async def batch() -> None:
        world.batched.info("b")
        await asyncio.sleep(0)

    asyncio.run(batch())
    assert world.stream.writes == ["a\nb\n"]


_SCRIPT = """
import asyncio, structlog
from kube_sync.observability.logoutput import BATCHED
from kube_sync.observability.logs import configure_logs

configure_logs()
loop = asyncio.new_event_loop()
loop.call_soon(lambda: structlog.get_logger(BATCHED).info("reviewed"))
loop.call_soon({end})
loop.run_forever()
"""


@pytest.mark.parametrize("end", ["loop.stop", "exit"])
def test_line_is_written_when_the_process_ends_within_the_turn(end: str) -> None:
    command = (sys.executable, "-c", _SCRIPT.replace("{end}", end))
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert '"event": "reviewed"' in ended.stderr
