from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from kube_sync.topology.controller.events import Backlog, EventType, ResourceEvent
from kube_sync.topology.gateway import GATEWAY
from kube_sync.topology.nodes import Body, Locator
from tests.fakes.topologies import NS

NONE: frozenset[Locator] = frozenset()


def event(old: int | None, new: int | None, name: str = "gw", **said: bool) -> ResourceEvent:
    bodies = [None if state is None else {"spec": state} for state in (old, new)]
    return ResourceEvent(GATEWAY, NS, name, bodies[0], bodies[1], **said)


def held(backlog: Backlog) -> Sequence[ResourceEvent]:
    return backlog.show()[0]


def test_events_of_one_object_become_one() -> None:
    backlog = Backlog()
    backlog.add([event(1, 2)], NONE)
    backlog.add([event(2, 3)], NONE)
    assert held(backlog) == [event(1, 3)]


def test_what_nobody_has_heard_of_and_is_gone_is_forgotten() -> None:
    """A process that waits for the Lease for months must not keep every object there ever was."""
    backlog = Backlog()
    backlog.add([event(None, 1)], NONE)
    backlog.add([event(1, None)], NONE)
    assert held(backlog) == []


def test_what_a_failed_reconcile_has_heard_of_and_is_gone_is_told() -> None:
    """It may have done something about it before it failed."""
    backlog = Backlog()
    backlog.add([event(None, 1)], NONE)
    backlog.show()
    backlog.add([event(1, 2)], NONE)
    backlog.add([event(2, None)], NONE)
    (gone,) = held(backlog)
    assert (gone.type, gone.old) == (EventType.DELETE, {"spec": 2})


def test_what_changed_back_is_told() -> None:
    backlog = Backlog()
    backlog.add([event(1, 2)], NONE)
    backlog.show()
    backlog.add([event(2, 1)], NONE)
    assert held(backlog) == [event(1, 1)]


def test_what_went_and_came_back_is_an_update() -> None:
    backlog = Backlog()
    backlog.add([event(1, None)], NONE)
    backlog.add([event(None, 2)], NONE)
    assert held(backlog) == [event(1, 2)]


def test_a_meaning_outlasts_what_comes_later_without_one() -> None:
    backlog = Backlog()
    backlog.add([event(1, 2), event(1, 2, "other", meaning=False)], NONE)
    backlog.add([event(2, 3, meaning=False), event(2, 3, "other", meaning=False)], NONE)
    assert [found.meaning for found in held(backlog)] == [True, False]


def test_events_are_in_order_and_shown_until_a_reconcile_has_succeeded() -> None:
    backlog = Backlog()
    backlog.add([event(1, 2, "b")], frozenset({Locator("b")}))
    backlog.add([event(1, 2, "a")], frozenset({Locator("a")}))
    both = frozenset({Locator("a"), Locator("b")})
    for _ in range(2):
        assert backlog.show() == ([event(1, 2, "a"), event(1, 2, "b")], both)
    backlog.clear()
    assert backlog.show() == ([], frozenset())


def test_what_was_reconciled_counts_as_unheard_of_again() -> None:
    backlog = Backlog()
    backlog.add([event(None, 1)], NONE)
    backlog.show()
    backlog.clear()
    backlog.add([event(None, 1)], NONE)
    backlog.add([event(1, None)], NONE)
    assert held(backlog) == []


@given(
    st.lists(
        st.tuples(
            st.dictionaries(st.sampled_from("abc"), st.integers(0, 2), max_size=3),
            st.sampled_from(["fails", "succeeds", "waits"]),
        )
    )
)
def test_who_succeeds_has_heard_of_all_that_happened(
    worlds: list[tuple[dict[str, int], str]],
) -> None:
    """A mirror that is brought forward by successes alone is the world whenever one succeeds."""
    backlog, last = Backlog(), dict[str, int]()
    mirror: dict[str, Body] = {}
    for world, ending in worlds:
        changed = sorted(n for n in last.keys() | world.keys() if last.get(n) != world.get(n))
        backlog.add([event(last.get(n), world.get(n), n) for n in changed], NONE)
        last = world
        if ending == "waits":
            continue
        events = held(backlog)
        assert len({found.name for found in events}) == len(events)
        if ending == "fails":
            continue
        for found in events:
            if found.new is None:
                mirror.pop(found.name, None)
            else:
                mirror[found.name] = found.new
        backlog.clear()
        assert mirror == {name: {"spec": state} for name, state in world.items()}
