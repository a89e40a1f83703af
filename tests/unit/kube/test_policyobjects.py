from __future__ import annotations

import pytest

from kube_sync.kube.collection import Event, Item, ResourceVersion
from kube_sync.kube.policyobjects import PolicyObjects
from kube_sync.objects import ObjectKey
from tests.fakes.listing import Listing, at_once, listed

VERSION = ResourceVersion("1")


def _item(name: str, namespace: str = "") -> Item:
    return Item(ObjectKey(namespace, name), "u", VERSION, b"{}")


@pytest.fixture
def news() -> list[None]:
    return []


@pytest.fixture
def objects(news: list[None]) -> PolicyObjects:
    return PolicyObjects(lambda: news.append(None))


def test_it_knows_nothing_before_the_first_list(objects: PolicyObjects) -> None:
    assert not objects.listed


def test_it_holds_what_was_listed(objects: PolicyObjects, news: list[None]) -> None:
    listed(objects, Listing([_item("a"), _item("b")], VERSION))
    assert (objects.listed, len(objects), len(news)) == (True, 2, 1)
    listed(objects, Listing([_item("b")], VERSION))
    assert len(objects) == 1


def test_none_of_them_has_modules_of_its_own(objects: PolicyObjects) -> None:
    listed(objects, Listing([_item("a")], VERSION))
    assert [dict(found.modules) for found in objects] == [{}]


def test_it_follows_what_happens(objects: PolicyObjects, news: list[None]) -> None:
    listed(objects, Listing([], VERSION))
    for kind, expected in (("ADDED", 1), ("MODIFIED", 1), ("DELETED", 0), ("DELETED", 0)):
        objects.apply(Event(kind, VERSION, _item("a")))
        assert len(objects) == expected
    assert len(news) == 3
    objects.apply(Event("BOOKMARK", VERSION))
    assert len(news) == 3


def test_it_knows_which_namespaces_hold_any(objects: PolicyObjects) -> None:
    listed(objects, Listing([_item("a", "shop"), _item("b", "shop"), _item("a", "depot")], VERSION))
    for name, left in (("a", True), ("a", True), ("b", False)):
        objects.apply(Event("DELETED", VERSION, _item(name, "shop")))
        assert objects.any_in("shop") is left
    assert objects.any_in("depot")
    assert not objects.any_in("other")
    for kind in ("ADDED", "MODIFIED"):
        objects.apply(Event(kind, VERSION, _item("c", "shop")))
    objects.apply(Event("DELETED", VERSION, _item("c", "shop")))
    assert not objects.any_in("shop")
    listed(objects, Listing([_item("a", "shop")], VERSION))
    assert (objects.any_in("shop"), objects.any_in("depot")) == (True, False)


def test_a_list_that_breaks_off_changes_nothing(objects: PolicyObjects) -> None:
    listed(objects, Listing([_item("a")], VERSION))
    at_once(objects.page([_item("b")]))
    objects.abandon()
    listed(objects, Listing([_item("c")], VERSION))
    assert len(objects) == 1


def test_a_kind_that_is_not_there_has_no_objects(objects: PolicyObjects) -> None:
    listed(objects, Listing([_item("a")], VERSION))
    objects.finish(known=False)
    assert (objects.listed, len(objects)) == (True, 0)


def test_that_the_kind_is_lacking_is_told_once(objects: PolicyObjects) -> None:
    """Whatever goes wrong next is another matter: policies may be there by then."""
    objects.finish(known=False)
    assert objects.is_lacking()
    assert not objects.is_lacking()
    objects.finish(known=True)
    assert not objects.is_lacking()
