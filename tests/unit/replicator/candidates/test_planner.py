"""When a plan is made, by a clock that only the test moves, and whom its summary is told."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from kube_sync.kube.placementpolicies import PlacementPolicy
from kube_sync.kube.policymaps import PolicyMap
from kube_sync.kube.policynames import policy_key
from kube_sync.objects import ObjectKey
from kube_sync.replicator.candidates.answers import Planned, Unplanned, Version
from kube_sync.replicator.candidates.planner import Planner, Told
from kube_sync.replicator.candidates.running import Made
from kube_sync.replicator.policies.bundle import digest
from kube_sync.replicator.policies.outcomes import Policy
from tests.unit.async_tools import running, until

EVERY = 600.0
NOON = datetime(2026, 11, 22, 12, tzinfo=UTC)
FAULTY = "ConfigMap ns/b-candidate (ns/b/p.rego):3: rego_parse_error: unexpected }"


def staged(name: str = "a", source: str = "package a", status: str | None = None) -> PolicyMap:
    key = ObjectKey("ns", f"{name}-candidate")
    modules = {f"{key}/p.rego": source}
    place = ObjectKey("ns", name)
    return PolicyMap(key, digest(modules), modules, status, "", "candidate", place)


def staged_object(source: str = "package a") -> PlacementPolicy:
    key = policy_key(ObjectKey("ns", "a-candidate"))
    modules = {f"{key}/p.rego": source}
    place = policy_key(ObjectKey("ns", "a"))
    return PlacementPolicy(key, digest(modules), "u", 1, "", "candidate", modules, (), None, place)


def version(policy: Policy) -> Version:
    return Version(str(policy.stands_for), digest(policy.modules))


@dataclass
class World:
    """What is staged, how plans end, and what was told."""

    found: list[Policy] | None
    held: bool = True
    time: float = 1000.0
    took: float = 0.0  # seconds of each plan
    moves: int = 1
    fault: Callable[[Sequence[str]], str | None] = lambda _: None
    plans: list[list[str]] = field(default_factory=list)
    going: asyncio.Event | None = None  # which a plan waits for
    wanted: list[tuple[str, Any]] = field(default_factory=list)
    news: int = 0
    turns: int = 0
    planner: Planner = field(init=False)

    def __post_init__(self) -> None:
        told = Told(self._want, self._told)
        self.planner = Planner(
            self._make,
            self,
            self._staged,
            told,
            EVERY,
            clock=lambda: self.time,
            now=lambda: NOON,
        )

    def _staged(self) -> list[Policy] | None:
        self.turns += 1
        return self.found

    async def _make(self, names: Sequence[str]) -> Made | Unplanned:
        self.plans.append([*names])
        found = [policy for policy in self.found or [] if str(policy.key) in names]
        if self.going is not None:
            await self.going.wait()
        self.time += self.took
        if (fault := self.fault(names)) is not None:
            return Unplanned((fault,))
        versions = {str(policy.key): version(policy) for policy in found}
        return Made(Planned(3, {"moves": self.moves}, 2), versions)

    def _want(self, policy: PolicyMap, text: str) -> None:
        self.wanted.append((policy.key.name, json.loads(text)))

    def _told(self) -> None:
        self.news += 1

    async def pass_(self, seconds: float) -> None:
        """Let time pass, and everything be done that is due then."""
        self.time += seconds
        self.planner.wake()
        for _ in range(20):
            await asyncio.sleep(0)

    async def planned(self) -> None:
        """Let two looks find what is staged."""
        await self.pass_(0)
        await self.pass_(3)

    def accept(self, name: str = "a") -> None:
        """Let the API server store what was wanted, which makes another version of it."""
        text = json.dumps(dict(self.wanted)[f"{name}-candidate"])
        assert self.found is not None
        self.found = [
            replace(policy, version=policy.version + "1", status=text)
            if isinstance(policy, PolicyMap) and policy.key.name == f"{name}-candidate"
            else policy
            for policy in self.found
        ]


@asynccontextmanager
async def world(*found: Policy, **more: Any) -> AsyncGenerator[World]:
    made = World([*found], **more)
    async with running(made.planner.run()):
        yield made


async def test_candidate_is_planned_with_once_two_looks_found_the_same() -> None:
    async with world(staged()) as it:
        await it.pass_(0)
        await it.pass_(2)
        assert it.plans == []
        await it.pass_(1)
        assert it.plans == [["ns/a-candidate"]]
        ((name, said),) = it.wanted
        assert (name, said["moves"], said["exit"]) == ("a-candidate", 1, 2)
        assert said["modules"] == version(staged()).modules
        assert said["when"] == "2026-11-22T12:00:00Z"


async def test_candidate_that_is_being_edited_is_left_in_peace() -> None:
    async with world(staged()) as it:
        for number in range(5):
            it.found = [staged(source=f"package a{number}")]
            await it.pass_(2)
        assert it.plans == []
        await it.pass_(3)
        assert len(it.plans) == 1


async def test_status_that_was_written_makes_no_other_plan_and_no_other_write() -> None:
    async with world(staged()) as it:
        await it.planned()
        it.accept()
        await it.pass_(EVERY * 20)
        assert (len(it.plans), len(it.wanted)) == (1, 1)


async def test_changed_objects_are_planned_with_after_a_rest_and_the_same_summary_is_no_write() -> (
    None
):
    async with world(staged()) as it:
        await it.planned()
        it.accept()
        it.planner.changed()
        await it.pass_(EVERY - 1)
        assert len(it.plans) == 1
        await it.pass_(1)
        assert (len(it.plans), len(it.wanted)) == (2, 1)
        it.moves = 7
        it.planner.changed()
        await it.pass_(EVERY)
        assert (len(it.plans), it.wanted[-1][1]["moves"]) == (3, 7)


async def test_long_plan_has_a_long_rest() -> None:
    async with world(staged(), took=100.0) as it:
        await it.planned()
        it.planner.changed()
        await it.pass_(999)
        assert len(it.plans) == 1
        await it.pass_(1)
        assert len(it.plans) == 2


async def test_edited_candidate_does_not_wait_for_the_rest() -> None:
    async with world(staged()) as it:
        await it.planned()
        it.found = [staged(source="package b")]
        await it.planned()
        assert len(it.plans) == 2
        assert it.wanted[-1][1]["modules"] == version(it.found[0]).modules


async def test_candidate_that_stands_for_another_one_is_planned_with_again() -> None:
    async with world(staged()) as it:
        await it.planned()
        it.found = [replace(staged(), stands_for=ObjectKey("ns", "c"))]
        await it.planned()
        assert len(it.plans) == 2
        assert it.wanted[-1][1]["stands_for"] == "ns/c"


async def test_summary_is_not_said_of_what_was_edited_meanwhile() -> None:
    async with world(staged(), going=asyncio.Event()) as it:
        await it.planned()
        it.found = [staged(source="package b")]
        assert it.going is not None
        it.going.set()
        await it.pass_(0)
        assert it.wanted == []
        await it.pass_(3)
        assert [said["modules"] for _, said in it.wanted] == [version(it.found[0]).modules]


async def test_one_plan_is_made_at_a_time() -> None:
    async with world(staged(), going=asyncio.Event()) as it:
        await it.planned()
        it.found = [staged(source="package b")]
        await it.pass_(100)
        assert len(it.plans) == 1


async def test_candidates_are_planned_with_together_and_say_so() -> None:
    async with world(staged("a"), staged("b")) as it:
        await it.planned()
        assert it.plans == [["ns/a-candidate", "ns/b-candidate"]]
        said = dict(it.wanted)
        assert said["a-candidate"]["together_with"] == ["ns/b-candidate"]
        assert said["b-candidate"]["together_with"] == ["ns/a-candidate"]


async def test_candidate_at_fault_is_told_so_and_the_others_are_planned_with_without_it() -> None:
    def fault(names: Sequence[str]) -> str | None:
        return FAULTY if "ns/b-candidate" in names else None

    async with world(staged("a"), staged("b"), fault=fault) as it:
        await it.planned()
        assert it.plans == [["ns/a-candidate", "ns/b-candidate"], ["ns/a-candidate"]]
        said = dict(it.wanted)
        assert said["a-candidate"]["status"] == "ok"
        assert "together_with" not in said["a-candidate"]
        (cause,) = said["b-candidate"]["error"]["errors"]
        assert cause["location"] == {"file": "ns/b-candidate/p.rego", "row": 3}
        await it.pass_(EVERY * 20)
        assert len(it.plans) == 2  # nothing but an edit helps


async def test_fault_that_may_pass_is_told_and_tried_again_after_the_rest() -> None:
    async with world(staged(), fault=lambda _: "the API server answers 503") as it:
        await it.planned()
        assert it.wanted[0][1]["error"]["message"] == "the API server answers 503"
        it.accept()
        await it.pass_(EVERY - 1)
        assert len(it.plans) == 1
        it.fault = lambda _: None
        await it.pass_(1)
        assert [said["status"] for _, said in it.wanted] == ["error", "ok"]


async def test_status_that_somebody_takes_away_is_written_again() -> None:
    async with world(staged()) as it:
        await it.planned()
        it.found = [replace(staged(), version="9")]
        await it.pass_(0)
        assert (len(it.plans), len(it.wanted)) == (1, 2)
        await it.pass_(0)
        assert len(it.wanted) == 2  # until the watch tells of it


async def test_status_that_could_not_be_written_is_wanted_again_with_the_next_plan() -> None:
    async with world(staged()) as it:
        await it.planned()
        it.planner.changed()
        await it.pass_(EVERY)
        assert (len(it.plans), len(it.wanted)) == (2, 2)


async def test_only_the_replica_that_writes_statuses_plans() -> None:
    async with world(staged(), held=False) as it:
        await it.pass_(0)
        await it.pass_(100)
        assert it.plans == []
        it.held = True
        await it.planned()
        assert len(it.plans) == 1


async def test_replica_that_had_lost_the_lease_tells_nothing_of_before() -> None:
    async with world(staged()) as it:
        await it.planned()
        it.held = False
        await it.pass_(0)
        it.held, it.moves = True, 7
        await it.pass_(0)
        assert len(it.wanted) == 1
        await it.pass_(3)
        assert [said["moves"] for _, said in it.wanted] == [1, 7]


async def test_answers_stand_while_it_is_not_known_what_is_staged() -> None:
    async with world(staged()) as it:
        await it.planned()
        it.accept()
        found, it.found = it.found, None
        await it.pass_(100)
        it.found = found
        await it.planned()
        assert (len(it.plans), len(it.wanted)) == (1, 1)


async def test_candidate_that_is_gone_is_planned_with_anew_when_it_comes_back() -> None:
    async with world(staged()) as it:
        await it.planned()
        it.found = []
        await it.pass_(0)
        it.found = [staged()]
        await it.planned()
        assert len(it.plans) == 2


async def test_of_a_placementpolicy_it_is_said_once_it_was_planned_with() -> None:
    policy = staged_object()
    async with world(policy) as it:
        assert it.planner.said(policy) is None
        await it.planned()
        await until(lambda: it.news == 1)
        found = json.loads(it.planner.said(policy) or "")
        assert (found["stage"], found["moves"], found["exit"]) == ("candidate", 1, 2)
        assert it.planner.said(staged_object("package b")) is None
        assert it.wanted == []
