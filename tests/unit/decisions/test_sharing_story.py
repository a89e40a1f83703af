"""Whatever happens in whatever order, readers end up with what one evaluation an object gives."""

from __future__ import annotations

import asyncio
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from kube_sync.decisions.records import DecisionRecord, decode
from kube_sync.errors import Retriable
from kube_sync.replicator.mirror import Batch
from tests.fakes.fleet import Body, Fleet, Policy, reads
from tests.parts import examples


def _a(body: Body, cluster: Any, _all: dict[str, Body]) -> str | None:
    return f"a{body.get('a')} in {cluster}" if body.get("a") != cluster else None


def _b(body: Body, _cluster: Any, _all: dict[str, Body]) -> str | None:
    return f"b{body.get('b')}"


def _both(body: Body, cluster: Any, _all: dict[str, Body]) -> str | None:
    return f"a{body.get('a')} b{body.get('b')} in {cluster}"


def _name(body: Body, cluster: Any, _all: dict[str, Body]) -> str | None:
    return f"{body['metadata']['name']} in {cluster}"


def _twins(body: Body, _cluster: Any, everything: dict[str, Body]) -> str | None:
    return f"twins {sum(other.get('a') == body.get('a') for other in everything.values())}"


POLICIES = (
    Policy(_a, reads(("a",))),
    Policy(_b, reads(("b",), clusters=False)),
    Policy(_both, reads(("a",), ("b",))),
    Policy(_name, reads(("metadata", "name"))),
    Policy(_both, reads(("a",), ("b",), impure=("rand.intn",))),
    Policy(_both, reads((), gave_up="unknown")),
    Policy(_twins, reads(("a",), targets=True, clusters=False)),
)
TWINS = POLICIES[-1]
NAMES = ("n0", "n1", "n2", "n3", "n4")
_FEW = st.integers(0, 2)
_OFTEN = ("begin", "end", "evaluate", "answer", "turns")
_STEPS = st.one_of(
    st.tuples(st.just("put"), st.sampled_from(NAMES), st.tuples(_FEW, _FEW)),
    st.tuples(st.just("put"), st.sampled_from(NAMES), st.tuples(_FEW, _FEW)),
    st.tuples(st.just("delete"), st.sampled_from(NAMES), st.none()),
    st.tuples(st.just("cluster"), st.none(), _FEW),
    st.tuples(st.just("policy"), st.none(), st.integers(0, len(POLICIES) - 1)),
    *(
        st.tuples(st.just(what), st.none(), st.integers(0, 6))
        for what in (
            *_OFTEN,
            *_OFTEN,
            "cluster is known",
            "policy is known",
            "learn",
            "learning",
            "fail",
        )
    ),
)


class Story:
    """A fleet, and all that could ever be true of each object."""

    def __init__(self) -> None:
        self.fleet = Fleet(POLICIES[0], **{n: {"a": i % 2, "b": 0} for i, n in enumerate(NAMES)})
        self.writes: list[Batch] = []
        self.unknown = False  # it is not known yet what the policy in force reads
        self.true: dict[str, set[tuple[str, str | None]]] = {name: set() for name in NAMES}
        self.noted = dict(self.fleet.data)  # what OPA is known to hold
        self.told = self.fleet.cluster  # what is known of the cluster
        self.note()

    def note(self) -> None:
        """Add what is decided now, of what OPA holds and of what it is known to hold."""
        fleet, decide = self.fleet, self.fleet.policy.decide
        for body in (*fleet.data.values(), *self.noted.values()):
            metadata = body["metadata"]
            self.true[metadata["name"]] |= {
                (metadata["uid"], decide(body, cluster, fleet.data))
                for cluster in (fleet.cluster, self.told)
            }

    async def do(self, what: str, name: str, value: Any) -> None:  # noqa: C901, PLR0912 - one case a step
        fleet = self.fleet
        match what:
            case "put":
                fleet.put(name, a=value[0], b=value[1])
            case "delete" if name in fleet.api:
                fleet.delete(name)
            case "cluster":
                fleet.cluster = value
            case "cluster is known":
                self.told = fleet.cluster
                fleet.change_cluster(fleet.cluster)
            case "policy" if not self.unknown:
                self.unknown = True
                fleet.begin_policy(POLICIES[value])
            case "policy is known" if self.unknown:
                self.unknown = False
                fleet.end_policy()
            case "begin" if not self.writes:  # the Writer sends one after another
                self.writes.append(fleet.begin())
            case "end" if self.writes:
                fleet.end(self.writes.pop())
                self.noted = dict(fleet.data)
            case "learn":
                fleet.learn()
                fleet.mirror.learning = False
                fleet.tracker.wake()
            case "learning":
                fleet.mirror.learning = fleet.mirror.members.is_classifying
            case "evaluate":
                fleet.go_on(fleet.evaluating)
            case "answer":
                fleet.go_on(fleet.answering)
            case "fail":
                fleet.failures = [Retriable("503")]
            case _:
                for _ in range(value or 0):
                    await asyncio.sleep(0)
        self.note()

    async def end(self) -> None:
        if self.unknown:
            self.fleet.end_policy()
        self.fleet.failures = []
        self.fleet.mirror.learning = False
        self.fleet.change_cluster(self.fleet.cluster)
        for batch in self.writes:
            self.fleet.end(batch)
        self.fleet.write()
        self.note()
        await self.fleet.rest()

    def possible(self, record: DecisionRecord) -> bool:
        """Tell whether it was true of this very object at some time."""
        if record.decision is None:
            return True
        text = record.decision.annotations["place"]
        # What is compared with others is true of a moment that nobody notes.
        return text.startswith("twins") or (record.uid, text) in self.true[record.object.name]


@settings(max_examples=examples(400))
@given(st.lists(_STEPS, min_size=10, max_size=60))
async def test_any_story_ends_in_the_decisions_of_one_evaluation_an_object(
    steps: list[tuple[str, Any, Any]],
) -> None:
    story = Story()
    fleet = story.fleet
    async with fleet.running():
        with fleet.hub.subscribe() as reader:
            fleet.held_back = True
            for step in steps:
                await story.do(*step)
                for record in map(
                    decode, b"".join(reader.snapshot(1000)).splitlines(keepends=True)
                ):
                    if isinstance(record, DecisionRecord):
                        assert story.possible(record), record
            await story.end()
        assert fleet.told == fleet.right
