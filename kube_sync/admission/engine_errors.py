"""Errors of a policy engine without a usable decision, by what to do next; a closed set of causes.

Undecided
└── Failed        a retry fails too
    └── Evaluation    the policy itself failed; contains OPA's error
Retriable
└── Passing       this attempt failed, a retry may succeed
    └── NoAnswer      no answer at all: counted by the circuit breaker
"""

from __future__ import annotations

from typing import Literal

from kube_sync.errors import Retriable, Undecided
from kube_sync.opa.client import OpaError

Why = Literal[
    "undefined",  # no such rule, or none that holds for this input
    "malformed",  # an answer of another shape
    "evaluation-error",  # the policy failed on this input
    "timeout",  # no answer in time
    "unauthorized",  # 401 or 403, or no token to send
    "unreachable",  # no connection, or one that broke
    "overloaded",  # 429, 502, 503, 504
    "failing",  # any other 5xx that a retry may pass
    "rejected",  # any other status that is no success
]


class Failed(Undecided):
    """No usable decision, and a retry fails too."""

    def __init__(self, message: str, why: Why) -> None:
        super().__init__(message)
        self.why: Why = why


class Evaluation(Failed):
    """The policy failed on this input; `error` is OPA's own."""

    def __init__(self, message: str, error: OpaError) -> None:
        super().__init__(message, "evaluation-error")
        self.error = error


class Passing(Retriable):
    """No decision this time; a retry may succeed."""

    def __init__(self, message: str, why: Why, retry_after: float | None = None) -> None:
        super().__init__(message, retry_after)
        self.why: Why = why


class NoAnswer(Passing):
    """No answer: the connection failed or broke, or the time was up."""
