from __future__ import annotations

from kube_sync.policysync.spokesteps import carries


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
