from __future__ import annotations

import asyncio

import pytest

from kube_sync.inspect.survey import progress
from kube_sync.inspect.survey.progress import Progress


def test_counts_are_told_at_most_every_two_seconds() -> None:
    said: list[str] = []
    now = [0.0]
    found = Progress(said.append, lambda: now[0])
    for moment in (0.0, 1.9, 2.0, 3.9, 4.1, 9.0):
        now[0] = moment
        found.report(str(moment))
    assert said == ["2.0", "4.1", "9.0"]


async def test_block_that_is_quick_is_not_told() -> None:
    said: list[str] = []
    with Progress(said.append).during("compiling"):
        await asyncio.sleep(0)
    assert said == []


async def test_block_that_takes_long_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "_SECONDS", 0.0)
    said = asyncio.Queue[str]()
    with Progress(said.put_nowait).during("compiling"):
        assert await said.get() == "compiling …"
