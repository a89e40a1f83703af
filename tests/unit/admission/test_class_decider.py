from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from msgspec.structs import replace
from prometheus_client import REGISTRY

from kube_sync.admission.answer_origin import AnswerOrigin
from kube_sync.admission.class_decider import Answers, ClassDecider, Mode
from kube_sync.admission.decision_client import (
    Admitted,
    DecisionReference,
    Denied,
    Undecidable,
    Verdict,
)
from kube_sync.admission.review import Review, parse_review
from kube_sync.decisions.basis import Basis
from kube_sync.decisions.classes import Classify
from kube_sync.decisions.classifier import input_classifier
from kube_sync.decisions.decision import Decision
from tests.fakes.reviews import body

BY_TEAM = ("metadata", "labels", "team")
FIRST = Basis("me", 1, "p", (BY_TEAM,), epoch="e")
CLASSIFY = input_classifier([BY_TEAM])


@dataclass
class Opa:
    """A client that decides by the team's label and by what is decided now."""

    says: str = "eu"
    epoch: str = "e"
    asked: list[Review] = field(default_factory=list)
    engine_is_down: bool = False
    instead: Verdict | None = None
    meanwhile: Any = lambda: None

    async def verdict(self, review: Review, seconds: float, *, always: bool = False) -> Verdict:
        del seconds, always
        self.asked.append(review)
        found = self.instead or Admitted(
            Decision({"place": f"{self.says}/{(review.labels or {}).get('team')}"}),
            DecisionReference(f"id{len(self.asked)}", epoch=self.epoch),
        )
        self.meanwhile()
        return found


@dataclass
class World:
    """A decider, OPA, and the basis."""

    mode: Mode = "on"
    opa: Opa = field(default_factory=Opa)
    confirmed: Basis | None = FIRST
    classify: Classify | None = CLASSIFY
    may_exist: bool = True
    now: float = 0.0
    asked: float = 0.1

    def __post_init__(self) -> None:
        self.decider = ClassDecider(
            self.opa,
            self,
            Answers(),
            AnswerOrigin(lambda _: None),
            lambda review: review.object,
            lambda: self.may_exist,
            mode=self.mode,
            outage_seconds=60.0,
            clock=lambda: self.now,
        )

    async def review(self, team: str = "shop", name: str = "web") -> Verdict:
        return await self.decider.verdict(review(team, name), 1.0)

    def begin_revision(self) -> None:
        assert self.confirmed is not None
        self.confirmed = replace(self.confirmed, revision=self.confirmed.revision + 1)


def review(team: str, name: str) -> Review:
    return parse_review(body({"kind": "Pod", "metadata": {"name": name, "labels": {"team": team}}}))


def place(verdict: Verdict) -> str:
    assert isinstance(verdict, Admitted)
    return verdict.decision.annotations["place"]


def _counted(outcome: str) -> float:
    name = "kube_sync_admission_class_answers_total"
    return REGISTRY.get_sample_value(name, {"outcome": outcome}) or 0.0


async def test_known_class_is_answered_without_asking_opa() -> None:
    world = World()
    first = await world.review(name="a")
    assert await world.review(name="b") is first
    assert len(world.opa.asked) == 1


async def test_answer_names_the_decision_of_opa_that_it_repeats() -> None:
    world = World()
    await world.review()
    assert (await world.review()).asked.decision_id == "id1"


async def test_other_class_is_asked_about() -> None:
    world = World()
    assert [place(await world.review(team)) for team in ("a", "b")] == ["eu/a", "eu/b"]


async def test_other_revision_is_asked_about() -> None:
    world = World()
    await world.review()
    world.begin_revision()
    world.opa.says = "us"
    assert place(await world.review()) == "us/shop"


async def test_revision_of_another_replicator_process_is_another_one() -> None:
    world = World()
    await world.review()
    world.confirmed = replace(FIRST, instance="other")
    await world.review()
    assert len(world.opa.asked) == 2


async def test_answer_that_was_asked_for_before_a_change_does_not_hold_after_it() -> None:
    world = World()
    world.opa.meanwhile = world.begin_revision
    await world.review()
    world.opa.meanwhile = lambda: None
    world.opa.says = "us"
    assert place(await world.review()) == "us/shop"


@pytest.mark.parametrize("missing", ["confirmed", "classify"])
async def test_opa_is_asked_while_answers_cannot_be_shared(missing: str) -> None:
    world = World()
    await world.review()
    setattr(world, missing, None)
    await world.review()
    assert len(world.opa.asked) == 2


async def test_denial_is_reused_too() -> None:
    world = World()
    world.opa.instead = Denied(("no room",), DecisionReference(epoch="e"))
    assert await world.review() is await world.review()
    assert len(world.opa.asked) == 1


async def test_answer_is_reused_once_the_revision_was_confirmed_after_it() -> None:
    """While policies change, OPA may distinguish what the class does not."""
    world = World()
    world.now = 5.0
    await world.review()
    await world.review()
    assert len(world.opa.asked) == 2
    world.asked = 5.1
    assert (await world.review()).asked.decision_id == "id1"


@pytest.mark.parametrize("epoch", ["another", ""])
async def test_answer_of_another_load_of_opa_is_given_and_not_kept(epoch: str) -> None:
    world, before = World(), _counted("elsewhere")
    world.opa.epoch = epoch
    assert place(await world.review()) == "eu/shop"
    world.opa.says, world.opa.epoch = "us", "e"
    assert place(await world.review()) == "us/shop"
    assert _counted("elsewhere") == before + 1
    world.opa.says = "asia"
    assert place(await world.review()) == "us/shop"


async def test_answers_are_not_kept_where_neither_side_names_the_load() -> None:
    """A replicator of an earlier version announces none."""
    world = World(confirmed=replace(FIRST, epoch=""))
    world.opa.epoch = ""
    await world.review()
    await world.review()
    assert len(world.opa.asked) == 2


async def test_answer_of_another_load_is_not_compared() -> None:
    world, before = World("verify"), _counted("differed")
    await world.review()
    world.opa.says, world.opa.epoch = "us", "another"
    await world.review()
    assert _counted("differed") == before


async def test_failure_is_never_kept() -> None:
    world = World()
    world.opa.instead = Undecidable("away", "unreachable")
    await world.review()
    world.opa.instead = None
    assert place(await world.review()) == "eu/shop"


async def test_nothing_is_kept_or_reused_while_there_is_no_policy() -> None:
    world = World(may_exist=False)
    world.opa.instead = Admitted(Decision())
    await world.review()
    world.may_exist, world.opa.instead = True, None
    assert place(await world.review()) == "eu/shop"
    world.may_exist, world.opa.instead = False, Admitted(Decision())
    assert await world.review() == Admitted(Decision())


async def test_object_that_cannot_be_classified_is_asked_about() -> None:
    def unreadable(_: bytes) -> bytes:
        raise RecursionError

    world = World(classify=unreadable)
    await world.review()
    await world.review()
    assert len(world.opa.asked) == 2


async def test_known_classes_are_decided_on_while_opa_is_down_for_a_limited_time() -> None:
    world = World()
    first = await world.review("a")
    world.opa.engine_is_down = True
    world.opa.instead = Undecidable("away", "unreachable")
    assert await world.review("a") is first
    assert isinstance(await world.review("b"), Undecidable)
    world.now += 60.0
    assert await world.review("a") is first
    world.now += 0.1
    assert isinstance(await world.review("a"), Undecidable)
    world.opa.engine_is_down, world.opa.instead = False, None
    assert await world.review("a") is first
    world.opa.engine_is_down = True
    world.now += 60.0
    assert await world.review("a") is first


async def test_opa_can_be_done_without_while_answers_may_be_reused() -> None:
    world = World()
    assert not world.decider.does_without_opa, "no class is known"
    await world.review()
    world.opa.engine_is_down = True
    assert world.decider.does_without_opa
    world.now += 60.1
    assert not world.decider.does_without_opa, "for too long"
    world.opa.engine_is_down = False
    assert world.decider.does_without_opa
    world.begin_revision()
    assert not world.decider.does_without_opa, "of another revision"
    world.confirmed = None
    assert not world.decider.does_without_opa


async def test_verification_does_not_do_without_opa() -> None:
    world = World("verify")
    await world.review()
    assert not world.decider.does_without_opa


async def test_change_of_what_is_read_while_opa_is_down_ends_it() -> None:
    world = World()
    await world.review()
    world.opa.engine_is_down = True
    world.opa.instead = Undecidable("away", "unreachable")
    world.confirmed = None
    assert isinstance(await world.review(), Undecidable)


async def test_verification_asks_always_and_counts_agreement() -> None:
    world, before = World("verify"), _counted("agreed")
    await world.review(name="a")
    await world.review(name="b")
    assert len(world.opa.asked) == 2
    assert _counted("agreed") == before + 1


async def test_difference_is_counted_once_no_change_explains_it_and_the_answer_of_opa_given() -> (
    None
):
    world, before = World("verify"), _counted("differed")
    await world.review()
    world.opa.says = "us"
    assert place(await world.review()) == "us/shop"
    assert _counted("differed") == before
    world.asked = 1.0
    await world.review()
    assert _counted("differed") == before + 1


async def test_answer_that_opa_may_have_given_after_a_change_is_not_compared() -> None:
    world, before = World("verify"), _counted("differed")
    await world.review()
    world.opa.says, world.opa.meanwhile = "us", world.begin_revision
    await world.review()
    assert _counted("differed") == before


async def test_answer_by_a_change_that_was_reported_later_is_not_compared() -> None:
    """OPA has a change before the replicator knows, and tells, that it has."""
    world, before = World("verify"), _counted("differed")
    await world.review()
    world.opa.says = "us"
    await world.review()
    world.begin_revision()
    world.asked = 1.0
    await world.review()
    world.asked = 2.0
    await world.review()
    assert _counted("differed") == before


async def test_number_of_classes_is_bounded() -> None:
    world = World()
    world.decider = ClassDecider(
        world.opa,
        world,
        Answers(most=1),
        AnswerOrigin(lambda _: None),
        lambda review: review.object,
        lambda: True,
        mode="on",
        outage_seconds=60.0,
        clock=lambda: 0.0,
    )
    for team in ("a", "b", "a", "b"):
        await world.review(team)
    assert len(world.opa.asked) == 3
