"""When candidates are planned with: as they change, and now and then while other things do.

Keeps true: only the replica that writes statuses plans, one plan at a time, and nothing waits for
it. A candidate is planned with once two looks have found the same; planned again it is where what
it is compared with has changed, after a rest, and where there was no plan for a reason that may
pass. Of several candidates the one at fault is told so, and the others are planned with without it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, NoReturn, Protocol

import structlog

from kube_sync.kube.placementpolicies import PlacementPolicy
from kube_sync.kube.policymaps import PolicyMap
from kube_sync.kube.policynames import named
from kube_sync.objects import ObjectKey
from kube_sync.replicator.candidates.answers import (
    Answer,
    Planned,
    Unplanned,
    Version,
    dated_as,
    is_of,
    says,
    text_of,
)
from kube_sync.replicator.candidates.running import Made
from kube_sync.replicator.policies.bundle import digest
from kube_sync.replicator.policies.outcomes import Policy
from kube_sync.replicator.status import Leadership

log: structlog.stdlib.BoundLogger = structlog.get_logger()

_SETTLE_SECONDS: Final = 3.0  # between two looks that have to find the same
_RESTS: Final = 10  # times as long as the plan before took

Make = Callable[[Sequence[str]], Awaitable[Made | Unplanned]]
Want = Callable[[PolicyMap, str], None]
_Asked = Mapping[ObjectKey, Version]


class Found(Protocol):
    """What is staged now."""

    def __call__(self) -> Sequence[Policy] | None:
        """Return the candidates, None while that is not known."""
        ...


@dataclass(frozen=True, slots=True)
class Told:
    """Whom it is told: each ConfigMap its text, and once what is new for PlacementPolicies."""

    want: Want
    news: Callable[[], None]


class Planner:
    """Plans with what is staged as a candidate."""

    def __init__(
        self,
        make: Make,
        leadership: Leadership,
        found: Found,
        told: Told,
        every: float,
        *,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """`every`: the shortest rest, in seconds, between two plans of the same candidates."""
        self._make = make
        self._leadership = leadership
        self._found = found
        self._told = told
        self._every = every
        self._clock = clock
        self._now = now
        self._news = asyncio.Event()
        self._answers: dict[ObjectKey, Answer] = {}
        self._wanted: dict[ObjectKey, tuple[str, str]] = {}  # the text, and on which version
        self._seen: tuple[_Asked, float] | None = None  # by the last look, and since when
        self._asked: _Asked = {}  # with what was planned last
        self._again = False  # what was planned is out of date, or nothing was
        self._free_at = self._again_at = 0.0
        self._digests: dict[ObjectKey, tuple[str, str]] = {}

    def wake(self) -> None:
        """Say that candidates, or who writes statuses, may have changed."""
        self._news.set()

    def changed(self) -> None:
        """Say that objects or policies in force have changed."""
        if not self._again:
            self._again = True
            self._news.set()

    def said(self, policy: PlacementPolicy) -> str | None:
        """Return what an annotation would say of a candidate, None: nothing is known by now."""
        answer = self._answers.get(policy.key)
        if answer is None or answer.version != self._version(policy):
            return None
        return dated_as(policy.staged, text_of(answer))

    async def run(self) -> NoReturn:
        """Plan until cancelled."""
        while True:
            self._news.clear()
            wait = await self._turn()
            with suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._news.wait()

    async def _turn(self) -> float | None:
        """Take one step; returns after how many seconds the next one is due, None: with news."""
        if not self._leadership.held:
            # Another one plans meanwhile: what was found out before is not told after that.
            self._asked, self._answers, self._seen = {}, {}, None
            return None
        if (found := self._found()) is None:
            return None
        asked = {policy.key: self._version(policy) for policy in found}
        self._digests = {key: self._digests[key] for key in asked}
        if (wait := self._due(asked)) == 0.0:
            await self._plan(asked)
            return 0.0
        self._tell(found)
        return wait

    def _due(self, asked: _Asked) -> float | None:
        now = self._clock()
        if not asked:
            self._asked, self._answers, self._seen = {}, {}, None
            return None
        if asked == self._asked:
            return max(0.0, self._again_at - now) if self._again else None
        if self._seen is None or self._seen[0] != asked:
            self._seen = asked, now
        return max(0.0, self._seen[1] + _SETTLE_SECONDS - now, self._free_at - now)

    async def _plan(self, asked: _Asked) -> None:
        began, self._asked, self._again = self._clock(), asked, False
        self._answers = {k: a for k, a in self._answers.items() if asked.get(k) == a.version}
        # Told all at once: half of them would be of another plan.
        answers, passing = await self._answered(asked)
        self._answers, self._wanted = answers, {}
        self._again = self._again or passing
        ended = self._clock()
        took = ended - began
        self._free_at = ended + max(_SETTLE_SECONDS, took)
        self._again_at = ended + max(self._every, _RESTS * took)
        planned = sum(isinstance(answer.outcome, Planned) for answer in answers.values())
        log.info("candidates_tried", tried=len(asked), planned=planned, seconds=round(took, 1))
        self._told.news()

    async def _answered(self, asked: _Asked) -> tuple[dict[ObjectKey, Answer], bool]:
        """Return the answers, and whether there is none to some for a reason that may pass."""
        left, answers = dict(asked), dict[ObjectKey, Answer]()
        while left:
            made = await self._make([str(key) for key in left])
            if isinstance(made, Made):
                versions = {key: made.versions.get(str(key), left[key]) for key in left}
                return answers | self._all(versions, made.planned), False
            log.warning("candidates_not_planned", candidates=len(left), error=made.lines[0])
            faulty = {key: own for key in left if (own := _own(made, key))}
            if not faulty:
                return answers | self._all(left, made), True
            for key, own in faulty.items():
                answers |= self._all({key: left.pop(key)}, own)
        return answers, False

    def _all(self, versions: _Asked, outcome: Planned | Unplanned) -> dict[ObjectKey, Answer]:
        when = self._now().astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        return {
            key: Answer(key, version, outcome, when, _others(key, versions))
            for key, version in versions.items()
        }

    def _tell(self, found: Sequence[Policy]) -> None:
        before, self._wanted = self._wanted, {}
        for policy in found:
            answer = self._answers.get(policy.key)
            if not isinstance(policy, PolicyMap) or answer is None:
                continue
            text = text_of(answer)
            if answer.version != self._version(policy) or says(policy.status, text):
                continue
            self._wanted[policy.key] = text, policy.version
            if before.get(policy.key) != (text, policy.version):
                self._told.want(policy, text)

    def _version(self, policy: Policy) -> Version:
        """Return which version of a candidate this is; writing its status makes no other one."""
        known = self._digests.get(policy.key)
        if known is None or known[0] != policy.version:
            known = self._digests[policy.key] = policy.version, digest(policy.modules)
        return Version(str(policy.stands_for), known[1])


def _own(made: Unplanned, key: ObjectKey) -> Unplanned | None:
    """Return what is wrong with this candidate itself."""
    lines = tuple(line for line in made.lines if is_of(line, key))
    return Unplanned(lines) if lines else None


def _others(key: ObjectKey, versions: _Asked) -> tuple[str, ...]:
    return tuple(sorted(named(other) for other in versions if other != key))
