from __future__ import annotations

from kube_sync.policysync.rivals import TRUCE, Rivals
from kube_sync.policysync.spokesteps import carries
from tests.fakes.copies import PLACE


def wrote(*at: float) -> Rivals:
    found = Rivals()
    for one in at:
        found.wrote(PLACE, "d", one)
    return found


def test_three_writes_within_a_minute_end_in_a_truce_and_then_begin_anew() -> None:
    found = wrote(0, 30, 60)
    assert found.truce(PLACE, "d", 61) == 60 + TRUCE
    assert found.truce(PLACE, "d", 60 + TRUCE) is None
    assert found.truce(PLACE, "d", 61) is None


def test_fewer_or_slower_writes_or_those_of_another_copy_end_in_none() -> None:
    assert wrote(0, 30).truce(PLACE, "d", 31) is None
    assert wrote(0, 30, 61).truce(PLACE, "d", 62) is None
    assert wrote(0, 1, 2).truce(PLACE, "another", 3) is None


def test_a_copy_that_was_deleted_is_forgotten() -> None:
    found = wrote(0, 1, 2)
    found.forget(PLACE)
    assert found.truce(PLACE, "d", 3) is None


def test_what_is_wanted_is_there_with_whatever_else() -> None:
    assert carries({"a": 1, "b": [{"c": True, "d": 2}]}, {"a": 1.0, "b": [{"c": True}]})
    assert carries({}, {"a": None})


def test_what_is_wanted_is_not_there_where_anything_of_it_differs() -> None:
    assert not carries({"a": 1}, {"a": True})
    assert not carries({"a": [1, 2]}, {"a": [1]})
    assert not carries({"a": "x"}, {"a": {"b": 1}})
    assert not carries({}, {"a": 1})
    assert not carries(None, {"a": 1})
    assert not carries({"a": {}}, {"a": [1]})
