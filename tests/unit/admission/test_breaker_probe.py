from __future__ import annotations

from kube_sync.admission.breaker import probing
from kube_sync.admission.engine_errors import NoAnswer
from tests.unit.async_tools import Waits, running, until


class Engine:
    """Answers, or does not, or is known to be down, in this order; then answers for ever."""

    def __init__(self, *states: str) -> None:
        self.left = list(states)
        self.engine_is_down = False

    async def probe(self) -> None:
        state = self.left.pop(0) if self.left else "up"
        self.engine_is_down = state == "down"
        if state != "up":
            raise NoAnswer(state, "unreachable")


async def test_what_the_engine_is_like_is_told_and_one_that_is_down_is_asked_often() -> None:
    told: list[str | None] = []
    waits = Waits()
    async with running(probing(Engine("up", "away", "down", "down"), told.append, waits.backoff)):
        await until(lambda: len(waits.seconds) >= 5)
    assert told[:5] == [None, "away", "down", "down", None]
    assert waits.seconds[:5] == [5.0, 5.0, 0.5, 0.5, 5.0]
