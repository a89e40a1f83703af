from __future__ import annotations

import json
from functools import partial
from typing import Any

import pytest

from kube_sync.kube.collection import Event, Item, ResourceVersion
from kube_sync.policysync.copies import PolicyId
from kube_sync.policysync.copy_cache import CopyCache
from kube_sync.policysync.feedback_fields import FIELDS
from kube_sync.policysync.spoke_collection import copy_in
from tests.fakes.copies import PLACE, copy, policy

READ = partial(copy_in, cluster="east", fields=FIELDS)
VERSION = ResourceVersion("1")


def body(version: str = "5", generation: object = 1, **metadata: Any) -> dict[str, Any]:
    managed = [{"manager": "us", "operation": "Apply"}]
    more = {"uid": "u", "resourceVersion": version, "generation": generation}
    found = {**copy().body["metadata"], **more, "managedFields": managed, **metadata}
    return {"metadata": found, "spec": {}}


def event(found: object, kind: str = "MODIFIED") -> Event:
    return Event(kind, VERSION, Item(PLACE, "u", VERSION, json.dumps(found).encode()))


@pytest.fixture
def news() -> list[PolicyId]:
    return []


@pytest.fixture
def copies(news: list[PolicyId]) -> CopyCache:
    found = CopyCache(READ, news.append, "us")
    found.apply(event(body()))
    news.clear()
    return found


def test_an_event_that_is_older_than_what_was_written_is_passed_over(
    copies: CopyCache, news: list[PolicyId]
) -> None:
    written = json.dumps(body("9", 2)).encode()
    copies.record_write(PLACE, copies.read(written))
    copies.apply(event(body("7", 1)))
    copies.apply(event(body("9", 2)))
    assert news == []
    (found,) = copies.of(policy())
    assert found.state.version == 9
    assert found.comparable.digest == copy().digest


def test_a_spec_that_changed_under_our_digest_is_drift_until_it_is_written(
    copies: CopyCache, news: list[PolicyId]
) -> None:
    copies.apply(event(body("6", 2)))
    copies.apply(event(body("7", 2)))  # its status, say
    assert news == [policy()]
    assert copies.of(policy())[0].comparable.digest == ""
    copies.record_write(PLACE, copies.read(json.dumps(body("8", 3)).encode()))
    assert copies.of(policy())[0].comparable.digest == copy().digest


@pytest.mark.parametrize(
    ("meanwhile", "left"),
    [
        (event({}, "DELETED"), []),
        (event(body("9", 3, uid="another")), [8]),  # whoever made it anew is told of by the watch
        (event(body("9", 3)), [9]),
        (event(body("8", 2)), [8]),
    ],
)
def test_the_answer_to_a_write_counts_unless_the_watch_is_further(
    copies: CopyCache, news: list[PolicyId], meanwhile: Event, left: list[int]
) -> None:
    with copies.writing(PLACE) as write:
        copies.apply(meanwhile)
        news.clear()
    answer = copies.record_response(write, json.dumps(body("8", 2)).encode())
    assert answer is not None
    assert answer.state.version == 8
    assert [one.state.version for one in copies.of(policy())] == left
    assert news == ([policy()] if left != [8] else []), "told that it is to be looked at again"


def test_an_answer_that_is_no_copy_is_held_as_none(copies: CopyCache) -> None:
    with copies.writing(PLACE) as write:
        pass
    assert copies.record_response(write, b"{}") is None
    assert copies.of(policy()) == []
    with copies.writing(PLACE) as write:
        copies.apply(event({}, "DELETED"))
    assert copies.record_response(write, b"{}") is None


def test_what_was_on_its_way_out_stays_so(copies: CopyCache, news: list[PolicyId]) -> None:
    """An event from before the deletion may come after its answer."""
    copies.mark_deleting(copies.of(policy())[0])
    copies.apply(event(body("6")))
    assert (held := copies.get(PLACE)) is not None
    assert held.deleting
    assert copies.of(policy()) == []
    assert news == []
    copies.apply(event({}, "DELETED"))
    assert news == [policy()]
    assert copies.policies() == []


def test_what_is_gone_by_then_does_not_leave(copies: CopyCache) -> None:
    found = copies.of(policy())[0]
    copies.record_write(PLACE, None)
    copies.mark_deleting(found)
    copies.record_write(PLACE, None)
    assert copies.policies() == []


def test_one_that_was_made_anew_has_not_drifted(copies: CopyCache) -> None:
    copies.apply(event(body("3", 1, uid="another")))
    (found,) = copies.of(policy())
    assert found.uid == "another"
    assert found.comparable.digest == copy().digest


async def test_a_list_replaces_what_is_held_and_one_that_fails_does_not(
    copies: CopyCache, news: list[PolicyId]
) -> None:
    item = event(body()).item
    assert item is not None
    await copies.page([item])
    copies.abandon()
    copies.finish(known=False)
    assert not copies.listed
    assert news == []
    await copies.page([item])
    copies.finish(known=True)
    assert copies.listed
    assert news == []
    copies.finish(known=True)
    assert news == [policy()]
    copies.apply(Event("BOOKMARK", VERSION))


@pytest.mark.parametrize(
    "change",
    [
        {"managedFields": None},
        {"managedFields": [{"manager": "other", "operation": "Apply"}]},
        {"managedFields": [{"manager": "us", "operation": "Update"}]},
        {"managedFields": ["us"]},
        {"managedFields": [{"operation": "Apply"}]},
        {"labels": {}},
        {"labels": 7},
        {"annotations": None},
        {"annotations": {"kube-sync.io/policy": "a/b"}},
        {"name": "another"},
        {"uid": None, "managedFields": 7},
    ],
)
def test_what_is_not_ours_or_cannot_be_read_is_not_held(
    news: list[PolicyId], change: dict[str, Any]
) -> None:
    held = CopyCache(READ, news.append, "us")
    held.apply(event(body(**change)))
    assert held.policies() == []
    assert news == []


@pytest.mark.parametrize("found", [[], {}, {"metadata": 7}, {"metadata": {}}, 7])
def test_what_is_no_object_is_not_held(news: list[PolicyId], found: object) -> None:
    held = CopyCache(READ, news.append)
    held.apply(event(found))
    assert held.policies() == []


@pytest.mark.parametrize(("version", "generation"), [("x", "y"), (None, None)])
def test_versions_that_are_no_numbers_do_not_count(
    news: list[PolicyId], version: Any, generation: object
) -> None:
    held = CopyCache(READ, news.append, "us")
    held.apply(event(body(version, generation)))
    (found,) = held.of(policy())
    assert (found.state.version, found.generation) == (0, 0)
