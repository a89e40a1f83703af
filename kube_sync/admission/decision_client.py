"""Asks the policy engine for the decision on a review, with retries; fails closed.

If a policy may exist, an undefined or malformed decision, an error and a time-out all deny, each
with its own reason. If no policy exists, everything is admitted without asking.

Retriable failures are retried while time and attempts are left; an engine that is known to be down
is not waited for (`breaker`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Protocol

import msgspec
from prometheus_client import Gauge

from kube_sync.admission.breaker import Breaker
from kube_sync.admission.conflicts import describe
from kube_sync.admission.engine_errors import Evaluation, Failed, Passing, Why
from kube_sync.admission.engine_formats import Answer
from kube_sync.admission.review import Review
from kube_sync.admission.verdict import Operation
from kube_sync.decisions.decision import Decision, parse_decision
from kube_sync.decisions.decision_reader import ReadDecision
from kube_sync.errors import SyncError, Undecided
from kube_sync.observability import metrics
from kube_sync.runtime.backoff import Backoff

_ATTEMPTS = 5
_FIRST_WAIT = 0.1  # seconds between two attempts
_LONGEST_WAIT = 1.0  # unless the engine asks for more

_MEND = "the policy has to be mended"
_LATER = "try again later"
_ADVICE: Mapping[Why, str] = {
    "undefined": "is the policy loaded, and does it decide on such a resource?",
    "malformed": _MEND,
    "evaluation-error": _MEND,
    "timeout": _LATER,
    "unauthorized": "the webhook needs a token that may ask for this decision",
    "unreachable": _LATER,
    "overloaded": _LATER,
    "failing": _LATER,
    "rejected": "is this the address of a policy engine?",
}


class Engine(Protocol):
    """A client of a policy engine."""

    @property
    def where(self) -> str:
        """The engine and the decision, for denials."""

    async def ask(self, review: Review, resource: msgspec.Raw) -> Answer:
        """Ask once. Raises Failed, or Passing if a retry may succeed."""

    async def probe(self) -> None:
        """Send an empty input to see whether the engine answers. Raises Failed and Passing."""


class Gate(Protocol):
    """Whether policies may exist."""

    @property
    def policy_may_exist(self) -> bool:
        """True unless it is known that there is none."""

    def modules(self) -> Mapping[str, str]:
        """Return the modules that may have failed, source by id."""


# Structs, not dataclasses: thousands are kept for classes. They hold text, so the garbage collector
# need not know them.
class DecisionReference(msgspec.Struct, frozen=True, gc=False):
    """Ids by which logs of webhook and engine show a verdict."""

    decision_id: str = ""  # the engine's own, else the review's uid
    policies: str = ""  # the policies in force when it was made; "" if not reported
    epoch: str = ""  # of the load of OPA's data that it was made on; "" if not reported


class Admitted(msgspec.Struct, frozen=True, gc=False):
    """The resource may be stored, with these annotations and labels, or with this JSON Patch."""

    decision: Decision
    asked: DecisionReference = DecisionReference()
    patch: tuple[Operation, ...] = ()
    ruled: bool = False  # by a built-in system, and not because no policy exists
    reasons: tuple[str, ...] = ()  # for the patch, from a system that explains


class Denied(msgspec.Struct, frozen=True, gc=False):
    """The policy denies the resource."""

    reasons: tuple[str, ...]
    asked: DecisionReference = DecisionReference()
    warnings: tuple[str, ...] = ()


class Undecidable(msgspec.Struct, frozen=True, gc=False):
    """A policy may exist, and there is no usable decision; `reason` is one line for the user."""

    reason: str
    why: Why
    asked: DecisionReference = DecisionReference()


Verdict = Admitted | Denied | Undecidable


class Decider(Protocol):
    """Decides reviews."""

    async def verdict(self, review: Review, seconds: float) -> Verdict:
        """Decide within so many seconds; never raises."""


Read = Callable[[bytes], Admitted | Denied]  # raises Undecided


def _as_sent(review: Review) -> msgspec.Raw:
    return review.object


def placement(answer: bytes, read: ReadDecision = parse_decision) -> Admitted | Denied:
    """Parse a placement decision with `read`. Raises Undecided."""
    decision = read(answer)
    if decision.errors:
        return Denied(decision.errors, warnings=decision.warnings)
    return Admitted(decision)


def waits(first: float = _FIRST_WAIT) -> Callable[[], Backoff]:
    """Return a factory of the back-off between attempts at one review; `first` is in seconds."""
    return lambda: Backoff(first, max(first, _LONGEST_WAIT))


class DecisionClient:
    """Decides reviews with one engine and its circuit breaker, if a policy may exist."""

    def __init__(
        self,
        engine: Engine,
        gate: Gate,
        view: Callable[[Review], msgspec.Raw] = _as_sent,
        *,
        backoff: Callable[[], Backoff] | None = None,
        attempts: int = _ATTEMPTS,
        read: Read = placement,
        down: Gauge = metrics.admission_engine_down,
        breaker: Breaker | None = None,
    ) -> None:
        """`view` returns the resource as the policy's input, `read` parses the decision.

        Pass a `breaker` to share that of another client of the same engine.
        """
        self._decided = read
        self._engine = engine
        self._gate = gate
        self._view = view
        self._backoff = backoff or waits()
        self._attempts = attempts
        self.breaker = breaker or Breaker(engine.where, down=down)

    async def verdict(self, review: Review, seconds: float, *, always: bool = False) -> Verdict:
        """Decide within `seconds`, `always` or only if a policy may exist; never raises."""
        asked = DecisionReference(review.uid)
        if not always and not self._gate.policy_may_exist:
            return Admitted(Decision(), asked)
        try:
            answer = await self._within(review, seconds)
            decision_id = answer.decision_id or review.uid
            asked = DecisionReference(decision_id, answer.policies, answer.epoch)
            return self._read(answer, asked)
        except Evaluation as error:
            return _undecidable(describe(error.error, self._gate.modules()), error.why, asked)
        except (Failed, Passing) as error:
            return _undecidable(str(error), error.why, asked)

    async def probe(self) -> None:
        """Probe the engine; reviews use the result. Raises Failed, Passing."""
        await self.breaker.run(self._engine.probe)

    @property
    def engine_is_down(self) -> bool:
        """Whether reviews are denied without waiting, until an attempt is answered."""
        return self.breaker.is_open

    async def _within(self, review: Review, seconds: float) -> Answer:
        """Return the engine's answer within `seconds`. Raises Failed and Passing."""
        failures: list[Passing] = []
        try:
            async with asyncio.timeout(seconds) as limit:
                return await self._answer(review, failures, limit.when() or 0.0)
        except TimeoutError as error:
            last = str(failures[-1]) if failures else self._engine.where
            msg = f"{last}: no decision within {seconds:.1f} s"
            raise Failed(msg, failures[-1].why if failures else "timeout") from error

    async def _answer(self, review: Review, failures: list[Passing], end: float) -> Answer:
        """Retry until there is an answer; failures are appended to `failures`.

        `end` is when the review's time is up, by the loop's clock.
        """
        resource, backoff = self._seen(review), self._backoff()
        now = asyncio.get_running_loop().time
        while True:
            try:
                return await self.breaker.run(
                    lambda: self._engine.ask(review, resource), self._engine.probe
                )
            except Passing as error:
                failures.append(error)
                # No wait for a Retry-After that is later than the end of the review.
                if len(failures) == self._attempts or now() + (error.retry_after or 0.0) >= end:
                    raise
                await backoff.wait(error.retry_after)

    def _seen(self, review: Review) -> msgspec.Raw:
        try:
            return self._view(review)
        except SyncError as error:
            raise Failed(str(error), "malformed") from error

    def _read(self, answer: Answer, asked: DecisionReference) -> Admitted | Denied:
        try:
            return msgspec.structs.replace(self._decided(answer.decision), asked=asked)
        except Undecided as error:
            msg = f"{self._engine.where}: {error}"
            raise Failed(msg, "malformed") from error


def _undecidable(what: str, why: Why, asked: DecisionReference) -> Undecidable:
    return Undecidable(f"{' '.join(what.split())}; {_ADVICE[why]}", why, asked)
