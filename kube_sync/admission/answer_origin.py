"""Checks that OPA's answers are from the load of OPA's data that the replicator confirms.

Invariant: an answer is kept for its class only if OPA named the confirmed epoch with it. So nothing
is reused if webhook and replicator do not use the same OPA; if a Service leads to several OPAs, the
answers of the confirmed one are kept.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import structlog

from kube_sync.decisions.batch_module import REVIEWED_PATH

log: structlog.stdlib.BoundLogger = structlog.get_logger()

_UNNAMED: Final = (
    "answers are not reused: OPA does not name the load of its data (does the replicator have the"
    f" webhook's version, and may opa.token_file ask for {REVIEWED_PATH}?)"
)
_ANOTHER: Final = (
    "answers are not reused: the OPA at opa.url is not the one that the replicator at decisions.url"
    " loads"
)
_SEVERAL: Final = (
    "some answers are not reused: they are from another OPA than the one that the replicator at"
    " decisions.url loads"
)


class AnswerOrigin:
    """Whether answers are from the confirmed load of OPA's data, and what is said of it."""

    def __init__(self, note: Callable[[str], None]) -> None:
        """`note` receives `ok`, or why answers are not kept, in one line for an operator."""
        self._note = note
        self._epoch: str | None = None
        self._found: set[bool] = set()  # results under this epoch

    def is_confirmed(self, epoch: str, answered: str) -> bool:
        """Return whether an answer of the load `answered` is of the confirmed `epoch`."""
        if epoch != self._epoch:
            self._epoch = epoch
            self._found.clear()
        same = epoch != "" and epoch == answered
        if same not in self._found:
            self._found.add(same)
            self._report(_ANOTHER if answered and epoch else _UNNAMED)
        return same

    def _report(self, reason: str) -> None:
        if self._found == {True}:
            self._note("ok")
            return
        reason = _SEVERAL if True in self._found else reason
        log.warning("class_answers_elsewhere", reason=reason)
        self._note(reason)
