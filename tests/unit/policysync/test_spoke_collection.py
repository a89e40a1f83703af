from __future__ import annotations

from kube_sync.policysync.spoke_collection import contains


def test_what_is_wanted_is_there_with_whatever_else() -> None:
    assert contains({"a": 1, "b": [{"c": True, "d": 2}]}, {"a": 1.0, "b": [{"c": True}]})
    assert contains({}, {"a": None})


def test_what_is_wanted_is_not_there_where_anything_of_it_differs() -> None:
    assert not contains({"a": 1}, {"a": True})
    assert not contains({"a": [1, 2]}, {"a": [1]})
    assert not contains({"a": "x"}, {"a": {"b": 1}})
    assert not contains({}, {"a": 1})
    assert not contains(None, {"a": 1})
    assert not contains({"a": {}}, {"a": [1]})
