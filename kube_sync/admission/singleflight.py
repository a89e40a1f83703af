"""One decision for all equal questions that are open at the same time, or were a moment ago.

Pods that a controller makes in bulk differ in what no rule looks at (`question`). Keeps
true: whoever joins a question gets an answer that was not there yet when it asked, so that it is
as new as the answers to two questions of one moment may be; where that turns out to be none, it
asks for itself with the time that is left to it.

An object that may still be changed is asked about at `/admit/…`, and what became of it at
`/validate/…`, milliseconds later and as a rule unchanged but for what was patched. Keeps true: only
what is equal in all that the decision looks at is known again (with the patch in it), for some
seconds, and only after a decision that was really made; what another webhook changed of that
meanwhile is asked about anew. No more than so many are remembered, as digests.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Protocol

from kube_sync.admission.decision_client import DecisionReference, Undecidable, Verdict
from kube_sync.admission.pod_digest import question
from kube_sync.admission.review import Review
from kube_sync.admission.verdict import Operation


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
            return Undecidable(reason, "timeout", DecisionReference(review.uid))
        if isinstance(verdict, Undecidable):
            return await self._judge.verdict(review, max(end - loop.time(), 0.0))
        return verdict


_SECONDS = 5.0  # longer than the API server takes from one question to the other
_MOST = 10_000


class Memo:
    """The decisions of the last seconds that admitted an object."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._until: OrderedDict[bytes, float] = OrderedDict()

    def note(self, review: Review, patch: Iterable[Operation]) -> None:
        """Remember that an object may be created, as it is with this patch."""
        if (digest := question(review, patch, resolved=False)) is not None:
            self._until[digest] = self._clock() + _SECONDS
            self._until.move_to_end(digest)
            if len(self._until) > _MOST:
                self._until.popitem(last=False)

    def knows(self, review: Review) -> bool:
        """Tell whether just this was decided a moment ago, and admitted."""
        digest = question(review, resolved=False)
        return digest is not None and self._until.get(digest, 0.0) > self._clock()
