from __future__ import annotations

from kube_sync.kube.cache import Cache
from kube_sync.kube.collection import Event, Item, ResourceVersion
from kube_sync.objects import ObjectKey
from kube_sync.remediation.stores import Both, Proven
from tests.fakes.listing import Listing, at_once, listed

VERSION = ResourceVersion("1")


def _key(name: str) -> ObjectKey:
    return ObjectKey("ns", name)


def _item(name: str, body: str = "x") -> Item:
    return Item(_key(name), "u", VERSION, body.encode())


def _cache() -> Cache[str]:
    return Cache(lambda item: item.body.decode())


def test_two_stores_of_one_collection_hold_the_same() -> None:
    one, other = _cache(), _cache()
    both = Both(one, other)
    at_once(both.page([_item("torn")]))
    both.abandon()
    listed(both, Listing([_item("a")], VERSION))
    both.apply(Event("ADDED", VERSION, _item("b")))
    for cache in (one, other):
        assert [cache.get(_key(name)) for name in ("torn", "a", "b")] == [None, "x", "x"]
    listed(both, Listing([], VERSION), known=False)
    assert [cache.served for cache in (one, other)] == [False, False]


def test_objects_are_taken_in_as_they_are_proven() -> None:
    cache = _cache()
    store = Proven(cache, lambda item: item.body.removeprefix(b"forged "))
    listed(store, Listing([_item("a", "forged 1"), _item("b", "2")], VERSION))
    assert [cache.get(_key(name)) for name in "ab"] == ["1", "2"]
    store.apply(Event("MODIFIED", VERSION, _item("b", "forged 3")))
    store.apply(Event("BOOKMARK", VERSION))
    assert cache.get(_key("b")) == "3"
    at_once(store.page([_item("c")]))
    store.abandon()
    listed(store, Listing([_item("a", "1")], VERSION))
    assert cache.get(_key("c")) is None
