"""Ask the policy engine about one resource, and decide what its silence means.

Fails closed as soon as a policy may exist: undefined, malformed, an error, a time-out all deny,
each with its own reason. Where no policy exists, everything is admitted and nobody is asked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import msgspec

from kube_sync.admission.policygate import PolicyGate
from kube_sync.admission.review import Review
from kube_sync.decisions.decision import Decision, parse_decision
from kube_sync.errors import Retriable, SyncError, Undecided
from kube_sync.runtime.backoff import Backoff


class Engine(Protocol):
    """Whatever answers the design's REST call."""

    async def query(self, path: str, body: bytes) -> bytes | None:
        """Ask for a decision; None when it is undefined."""
        ...


@dataclass(frozen=True, slots=True)
class Asked:
    """What a verdict can be found by in the records of webhook and engine."""

    decision_id: str = ""  # the engine's own, else the review's uid
    policies: str = ""  # the policies in force when it was made; "" where the engine does not say


@dataclass(frozen=True, slots=True)
class Admitted:
    """The resource may be stored, with these annotations."""

    decision: Decision
    asked: Asked = Asked()


@dataclass(frozen=True, slots=True)
class Denied:
    """The policy refuses the resource."""

    reasons: tuple[str, ...]
    asked: Asked = Asked()


@dataclass(frozen=True, slots=True)
class Undecidable:
    """There may be a policy, and it gave no usable decision."""

    reason: str
    why: str = "failing"
    asked: Asked = Asked()


Verdict = Admitted | Denied | Undecidable


class Judge:
    """One engine, one decision path."""

    def __init__(
        self,
        engine: Engine,
        path: str,
        gate: PolicyGate,
        backoff: Callable[[], Backoff] = lambda: Backoff(0.1, 1.0),
    ) -> None:
        self._engine = engine
        self._path = path
        self._gate = gate
        self._backoff = backoff

    async def verdict(self, review: Review, seconds: float) -> Verdict:
        """Decide within `seconds`; never raises."""
        if not self._gate.policy_may_exist:
            return Admitted(Decision())
        failures: list[str] = []
        try:
            async with asyncio.timeout(seconds):
                decision = await self._decide(review.object, failures)
        except TimeoutError:
            why = f" ({failures[-1]})" if failures else ""
            return Undecidable(f"no policy decision within {seconds:.1f} s{why}")
        except SyncError as error:
            return Undecidable(str(error))
        return Denied(decision.errors) if decision.errors else Admitted(decision)

    async def _decide(self, resource: msgspec.Raw, failures: list[str]) -> Decision:
        """Ask until there is an answer; what went wrong meanwhile is left in `failures`."""
        body = msgspec.json.encode({"input": resource})
        backoff = self._backoff()
        while True:
            try:
                result = await self._engine.query(self._path, body)
            except Retriable as error:
                failures.append(str(error))
                await backoff.wait(error.retry_after)
                continue
            if result is None:
                msg = f"the policy decision {self._path} is undefined"
                raise Undecided(msg)
            return parse_decision(result)
