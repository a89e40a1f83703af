from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from kube_sync.config import Settings
from kube_sync.errors import Misconfigured
from kube_sync.observability.readiness import Readiness
from kube_sync.processes import context as module
from kube_sync.processes.context import Context, begun, impatient


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_AGAIN_SECONDS", 0.0)


class Starting:
    """A part that opens something and fails a few times, as its files come."""

    def __init__(self, failures: int) -> None:
        self.failures = failures
        self.open = 0
        self.said: list[dict[str, str]] = []

    @asynccontextmanager
    async def opened(self) -> AsyncGenerator[None]:
        self.open += 1
        try:
            yield
        finally:
            self.open -= 1

    async def start(self, context: Context) -> str:
        self.said.append(context.readiness.reasons)
        assert self.open == 0
        await context.stack.enter_async_context(self.opened())
        if self.failures:
            self.failures -= 1
            msg = "token file /run/token: No such file or directory"
            raise Misconfigured(msg)
        return "services"


def context_of(stack: AsyncExitStack) -> Context:
    nothing: Any = None
    return Context(Settings(), Readiness(), stack, nothing, nothing)


async def test_what_is_missing_is_told_and_tried_again_with_nothing_left_open() -> None:
    part = Starting(2)
    async with AsyncExitStack() as stack:
        assert await begun(context_of(stack), part.start, lambda: True) == "services"
        assert part.open == 1
    assert part.open == 0
    told = {"start": "token file /run/token: No such file or directory"}
    assert part.said == [{}, told, told]


async def test_without_patience_it_ends_with_the_reason() -> None:
    part = Starting(1)
    async with AsyncExitStack() as stack:
        with pytest.raises(Misconfigured, match="/run/token"):
            await begun(context_of(stack), part.start, impatient)
        assert part.open == 0


async def test_another_configuration_ends_the_patience() -> None:
    part, asked = Starting(9), [True, True, False]
    async with AsyncExitStack() as stack:
        with pytest.raises(Misconfigured):
            await begun(context_of(stack), part.start, lambda: asked.pop(0))
    assert part.failures == 6
