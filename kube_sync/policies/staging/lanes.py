"""The current lane of one stage: which staged modules OPA is to hold now.

Invariant: the set in force neither waits for a lane nor is changed by one. A lane is valid only for
the policies it was built of; when others are in force, or staged, there is none until it is built
anew. Candidates are compiled likewise, and none of their modules goes into OPA.
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
from kube_sync.policies.staging.neighbours import neighbours

log: structlog.stdlib.BoundLogger = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Counted:
    """The number of objects that a lane decides on, and of those that would change, by effect."""

    objects: int
    differences: Mapping[str, int]
    unknown: int = 0  # objects without a decision yet, not in `objects`
    of: object = None  # identifies what was counted


class Lanes:
    """The last lane that was built for one stage."""

    def __init__(self, maker: LaneMaker, stage: Stage = "shadow") -> None:
        self._maker = maker
        self._stage: Stage = stage
        self._made: tuple[object, Staged] | None = None
        self.untried = False  # the compiler did not answer when it was to be built

    def made(self, staged: Sequence[Policy], beside: Beside) -> Staged | None:
        """Return the lane of exactly these policies, None if it is not built yet."""
        if not staged:
            return Staged()
        if self._made is None or self._made[0] != _question(staged, beside):
            return None
        return self._made[1]

    async def make(self, staged: Sequence[Policy], beside: Beside) -> bool:
        """Build the lane of these policies unless it is built; return whether there is a change."""
        self.untried = False
        before, question = self.made(staged, beside), _question(staged, beside)
        if before is not None and not _waits(before):
            return False
        try:
            made = await self._maker.make(staged, beside, self._stage)
        except SyncError as error:
            # Retried later: the set in force does not wait for it.
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
        """Yield the status text of each of these policies, once their lane is built.

        `refused` is why OPA rejects the lane.
        """
        if (made := self.made(staged, beside)) is None:
            return
        causes = {policy.key: [*made.failures.get(policy.key, ()), *refused] for policy in staged}
        for policy in staged:
            others = [p for p in staged if p.key != policy.key and p.key not in made.failures]
            decides_with = neighbours(policy, beside.versions)
            yield policy, status_of(policy, causes[policy.key], counted, others, decides_with)


def status_of(
    policy: Policy,
    causes: Sequence[Cause],
    counted: Counted | None,
    others: Sequence[Policy],
    decides_with: Sequence[str] = (),
) -> str:
    """Return the status of a staged policy as the text of a ConfigMap's annotation.

    `counted` is of the lane as a whole and appears on each of its policies; the `others` are named,
    and so are the policies in force that it `decides_with` once it is active.
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
    if decides_with:
        status["decides_with"] = decides_with
    if policy.stage == CANDIDATE:
        status["plan"] = f"kube-sync plan --staged --candidate {policy.key}"
    if counted is not None:
        status |= {"objects": counted.objects, **counted.differences}
    return msgspec.json.encode(status).decode()


def _waits(made: Staged) -> bool:
    """Return whether some policies wait for others to be tried, so that a rebuild is due."""
    return any(cause.get("code") == WAITING for found in made.failures.values() for cause in found)


def _question(staged: Sequence[Policy], beside: Beside) -> object:
    return [(p.key, p.stage, p.stands_for, p.modules, p.born) for p in staged], beside
