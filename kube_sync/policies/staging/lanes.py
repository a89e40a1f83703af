"""Staged policies as lanes beside what is in force: which ones OPA is to hold now.

Keeps true: what is in force neither waits for a lane nor is touched by one. A lane is for exactly
the policies that it was made of; while others are in force, or staged, there is none until it was
made anew. Candidates are compiled likewise, and OPA holds nothing of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import msgspec
import structlog

from kube_sync.errors import SyncError
from kube_sync.kube.policynames import named
from kube_sync.kube.staging import CANDIDATE
from kube_sync.opa.client import OpaError
from kube_sync.opa.scratch import Cause
from kube_sync.policies.bundle import digest
from kube_sync.policies.configmap_status import WAITING, account
from kube_sync.policies.placementpolicy_status import Policy
from kube_sync.policies.staging.lane_builder import Beside, LaneMaker, Stage, Staged

log: structlog.stdlib.BoundLogger = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Counted:
    """How many objects a lane decides on, and how many would go each way, by effect."""

    objects: int
    differences: Mapping[str, int]
    unknown: int = 0  # objects beside them of which nothing is known yet
    of: object = None  # what was counted, as whoever had it counted calls it


class Lanes:
    """The lane of one stage that was made last."""

    def __init__(self, maker: LaneMaker, stage: Stage = "shadow") -> None:
        self._maker = maker
        self._stage: Stage = stage
        self._made: tuple[object, Staged] | None = None
        self.untried = False  # there was no answer when they were to be made

    def made(self, staged: Sequence[Policy], beside: Beside) -> Staged | None:
        """Return the lanes of exactly these, None where they are not made yet."""
        if not staged:
            return Staged()
        if self._made is None or self._made[0] != _question(staged, beside):
            return None
        return self._made[1]

    async def make(self, staged: Sequence[Policy], beside: Beside) -> bool:
        """Make the lanes of these unless they are made; returns whether there is news."""
        self.untried = False
        before, question = self.made(staged, beside), _question(staged, beside)
        if before is not None and not _waits(before):
            return False
        try:
            made = await self._maker.make(staged, beside, self._stage)
        except SyncError as error:
            # It is tried again by and by: what is in force does not wait for it.
            log.warning("staged_policies_not_tried", error=str(error))
            self.untried = True
            return False
        if made == before:
            return False
        for key, causes in made.failures.items():
            why = str(OpaError(errors=[*causes]))
            log.warning("staged_policy_rejected", policy=str(key), error=why)
        self._made = question, made
        return True

    def statuses(
        self,
        staged: Sequence[Policy],
        beside: Beside,
        counted: Counted | None = None,
        refused: Iterable[Cause] = (),
    ) -> Iterator[tuple[Policy, str]]:
        """Yield what to say of each of these, as an annotation says it, once they are made.

        `refused` is why OPA does not take their lane.
        """
        if (made := self.made(staged, beside)) is None:
            return
        causes = {policy.key: [*made.failures.get(policy.key, ()), *refused] for policy in staged}
        for policy in staged:
            others = [p for p in staged if p.key != policy.key and p.key not in made.failures]
            yield policy, status_of(policy, causes[policy.key], counted, others)


def status_of(
    policy: Policy,
    causes: Sequence[Cause],
    counted: Counted | None,
    others: Sequence[Policy],
) -> str:
    """Return what is said of a staged policy: the text of a ConfigMap's status annotation.

    What was `counted` is said of the lane as a whole, on each that is staged in it; the `others`
    are named.
    """
    if causes:
        return account(causes, (), in_force=False)
    status: dict[str, object] = {"status": "ok", "stage": policy.stage}
    status |= {
        "stands_for": named(policy.stands_for or policy.key),
        "modules": digest(policy.modules),
    }
    if together := sorted(named(other.key) for other in others):
        status["together_with"] = together
    if policy.stage == CANDIDATE:
        status["plan"] = f"kube-sync plan --staged --candidate {policy.key}"
    if counted is not None:
        status |= {"objects": counted.objects, **counted.differences}
    return msgspec.json.encode(status).decode()


def _waits(made: Staged) -> bool:
    """Tell whether some of these wait for others to be tried, so that they are to be made again."""
    return any(cause.get("code") == WAITING for found in made.failures.values() for cause in found)


def _question(staged: Sequence[Policy], beside: Beside) -> object:
    return [(p.key, p.stage, p.stands_for, p.modules, p.born) for p in staged], beside
