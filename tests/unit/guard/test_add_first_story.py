"""Whatever happens in whatever order, no step takes the last healthy cluster away."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from kube_sync.guard.add_first import Terms, Whole
from tests.parts import examples
from tests.unit.guard.test_add_first import World

CLUSTERS = "abcd"
_clusters = st.sampled_from(CLUSTERS)
_some = st.frozensets(_clusters, min_size=1).map(lambda found: ",".join(sorted(found)))
_terms = st.builds(Terms, st.sampled_from([0.0, 300.0]), st.sampled_from(["revert", "keep"]))
_events = st.lists(
    st.one_of(
        st.tuples(st.just("decide"), _some),
        st.tuples(st.just("healthy"), _clusters),
        st.tuples(st.just("ill"), _clusters),
        st.tuples(st.just("later"), st.sampled_from([1, 200, 1_000])),
        st.tuples(st.just("seen"), st.sampled_from("12")),
        st.tuples(st.just("fleet"), st.none() | st.frozensets(_clusters)),
        st.tuples(st.just("known"), st.booleans()),
        st.just(("step",)),
        st.just(("step",)),
    ),
    max_size=30,
)


class Story:
    def __init__(self, has: str, terms: Terms) -> None:
        self.world, self.terms = World(has, has, *CLUSTERS), terms
        self.changes = 0

    def tell(self, events: list[tuple[Any, ...]]) -> None:
        for event in events:
            self.event(*event)

    def event(self, what: str, value: Any = None) -> None:
        world = self.world
        match what:
            case "decide":
                world.wanted = {"place": value}
            case "healthy":
                world.healthy.add(value)
            case "ill":
                world.healthy.discard(value)
            case "later":
                world.now += value
            case "seen":
                world.seen = value
            case "fleet":
                world.exists = value
            case "known":
                world.knows_health = value
            case "step":
                self.step()

    def step(self) -> None:
        world, stored = self.world, dict(self.world.has)
        before, known = self.names(), self.world.exists
        # Computed twice, as by a process that ended before it could write: the same.
        assert world.next(self.terms) == world.next(self.terms)
        found = world.take(self.terms)
        if isinstance(found, Whole) and known is not None and known.isdisjoint(self.wanted()):
            world.has = stored  # the guard holds it
        self.changes += self.names() != before
        assert not before & world.healthy or self.names() & world.healthy
        assert self.names() <= before | self.wanted()

    def names(self) -> set[str]:
        return set(self.world.place.split(","))

    def wanted(self) -> set[str]:
        return set(self.world.wanted["place"].split(","))

    def settle(self) -> None:
        for _ in range(4):
            self.step()


@settings(max_examples=examples(400))
@given(_some, _terms, _events)
def test_no_step_takes_the_last_healthy_cluster_and_all_end_as_decided(
    has: str, terms: Terms, events: list[tuple[Any, ...]]
) -> None:
    story = Story(has, terms)
    story.tell(events)
    story.world.exists, story.world.seen, story.world.knows_health = None, "3", True
    story.world.healthy = set(CLUSTERS)
    story.settle()
    assert story.names() == story.wanted()
    assert story.world.record is None


@settings(max_examples=examples(400))
@given(_some, _terms, _events, st.lists(st.sampled_from([1, 200, 1_000]), max_size=20))
def test_nothing_goes_back_and_forth_while_nothing_changes(
    has: str, terms: Terms, events: list[tuple[Any, ...]], pauses: list[int]
) -> None:
    story = Story(has, terms)
    story.tell(events)
    story.changes = 0
    for pause in pauses:
        story.event("later", pause)
        story.step()
    assert story.changes <= 2  # it is added, and taken away here or there
