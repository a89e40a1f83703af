"""Why an engine gave no usable decision: a closed set of words, and errors by what to do next.

Undecided
└── Failed        asking again gives none either
    └── Evaluation    the policy itself failed; OPA's account of it is kept
Retriable
└── Passing       this attempt failed, the next one may not
    └── NoAnswer      nobody answered at all: what a circuit breaker counts
"""

from __future__ import annotations

from typing import Literal

from kube_sync.errors import Retriable, Undecided
from kube_sync.opa.client import OpaError

Why = Literal[
    "undefined",  # no answer to this question: no such rule, or none that holds
    "malformed",  # an answer that means nothing
    "evaluation-error",  # the policy failed on this input
    "timeout",  # nobody answered in time
    "unauthorized",  # 401 or 403, or no token to show
    "unreachable",  # no connection, or one that broke
    "overloaded",  # 429, 502, 503, 504
    "failing",  # any other 5xx that may pass
    "rejected",  # any other status that is no success
]


class Failed(Undecided):
    """No usable decision, and asking again gives none either."""

    def __init__(self, message: str, why: Why) -> None:
        super().__init__(message)
        self.why: Why = why


class Evaluation(Failed):
    """The policy failed on this input; `error` is OPA's own account."""

    def __init__(self, message: str, error: OpaError) -> None:
        super().__init__(message, "evaluation-error")
        self.error = error


class Passing(Retriable):
    """No decision this time; the same question may be answered later."""

    def __init__(self, message: str, why: Why, retry_after: float | None = None) -> None:
        super().__init__(message, retry_after)
        self.why: Why = why


class NoAnswer(Passing):
    """Nobody answered: the connection failed or broke, or the time was up."""
