"""Shares one verdict between equal reviews: concurrent ones, and mutating and validating ones.

Pods that a controller creates in bulk differ only in fields that no rule reads (`question`).
Invariant: a review that joins another gets a verdict that did not exist when it arrived, so it is
as fresh as its own would be; if that verdict is undecidable, it asks itself with its remaining
time.

An object is sent to `/admit/…`, and milliseconds later to `/validate/…`, usually unchanged but for
the patch. Invariant: only an object that is equal in all that the decision reads (with the patch
applied) gets the earlier verdict, for some seconds, and only after a real decision; if another
webhook has changed any of that, it is decided anew. The number of remembered digests is bounded.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable

from kube_sync.admission.decision_client import Decider, DecisionReference, Undecidable, Verdict
from kube_sync.admission.pod_digest import question
from kube_sync.admission.review import Review
from kube_sync.admission.verdict import Operation


class InFlight:
    """The reviews that are being decided."""

    def __init__(self, decider: Decider) -> None:
        """Share the verdicts of `decider`."""
        self._decider = decider
        self._open: dict[bytes, asyncio.Task[Verdict]] = {}

    async def verdict(self, review: Review, seconds: float) -> Verdict:
        """Decide within `seconds`; never raises."""
        digest = question(review)
        if digest is None:
            return await self._decider.verdict(review, seconds)
        if (task := self._open.get(digest)) is not None:
            return await self._joined(task, review, seconds)
        task = asyncio.create_task(self._decider.verdict(review, seconds))
        self._open[digest] = task
        task.add_done_callback(lambda _: self._open.pop(digest, None))
        # Others may wait for it, also if this caller goes away.
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
            return await self._decider.verdict(review, max(end - loop.time(), 0.0))
        return verdict


_SECONDS = 5.0  # longer than the API server takes between the two webhooks
_MOST = 10_000


class Memo:
    """The digests of objects that were admitted within the last seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._until: OrderedDict[bytes, float] = OrderedDict()

    def note(self, review: Review, patch: Iterable[Operation]) -> None:
        """Remember that an object with this patch was admitted."""
        if (digest := question(review, patch, resolved=False)) is not None:
            self._until[digest] = self._clock() + _SECONDS
            self._until.move_to_end(digest)
            if len(self._until) > _MOST:
                self._until.popitem(last=False)

    def contains(self, review: Review) -> bool:
        """Return whether this object was admitted a moment ago."""
        digest = question(review, resolved=False)
        return digest is not None and self._until.get(digest, 0.0) > self._clock()
