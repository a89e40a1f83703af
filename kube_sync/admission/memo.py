"""What was decided a moment ago, so that the API server's second question needs no second decision.

An object that may still be changed is asked about at `/admit/…`, and what became of it at
`/validate/…`, milliseconds later and as a rule unchanged but for what was patched. Keeps true: only
what is equal in all that the decision looks at is known again (`question`, with the patch in it),
for some seconds, and only after a decision that was really made; what another webhook changed of
that meanwhile is asked about anew. No more than so many are remembered, as digests.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Iterable

from kube_sync.admission.question import question
from kube_sync.admission.review import Review
from kube_sync.admission.ruling import Operation

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
