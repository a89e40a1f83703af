"""One decision for all equal questions that are open at the same time.

Pods that a controller makes in bulk differ in what no rule looks at (`question`). Keeps
true: whoever joins a question gets an answer that was not there yet when it asked, so that it is
as new as the answers to two questions of one moment may be; where that turns out to be none, it
asks for itself with the time that is left to it. Nothing is kept once a question is answered.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from kube_sync.admission.judge import Asked, Undecidable, Verdict
from kube_sync.admission.question import question
from kube_sync.admission.review import Review


class Decides(Protocol):
    """Whoever decides on reviews; never raises."""

    async def verdict(self, review: Review, seconds: float) -> Verdict:
        """Decide within so many seconds."""
        ...


class InFlight:
    """The questions that are open now."""

    def __init__(self, judge: Decides) -> None:
        """Join what is put to `judge`."""
        self._judge = judge
        self._open: dict[bytes, asyncio.Task[Verdict]] = {}

    async def verdict(self, review: Review, seconds: float) -> Verdict:
        """Decide within `seconds`; never raises."""
        asked = question(review)
        if asked is None:
            return await self._judge.verdict(review, seconds)
        if (task := self._open.get(asked)) is not None:
            return await self._joined(task, review, seconds)
        task = asyncio.create_task(self._judge.verdict(review, seconds))
        self._open[asked] = task
        task.add_done_callback(lambda _: self._open.pop(asked, None))
        # Others may wait for it, whoever of the callers goes away.
        return await asyncio.shield(task)

    async def _joined(self, task: asyncio.Task[Verdict], review: Review, seconds: float) -> Verdict:
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        try:
            async with asyncio.timeout(seconds):
                verdict = await asyncio.shield(task)
        except TimeoutError:
            reason = f"no decision within {seconds:.1f} s"
            return Undecidable(reason, "timeout", Asked(review.uid))
        if isinstance(verdict, Undecidable):
            return await self._judge.verdict(review, max(end - loop.time(), 0.0))
        return verdict
