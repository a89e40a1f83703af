from __future__ import annotations

from typing import Any

import msgspec

from kube_sync.kube.collection import Event, Item, ResourceVersion
from kube_sync.kube.policymaps import STATUS, PolicyMaps, parse
from kube_sync.objects import ObjectKey
from tests.fakes.listing import Listing, at_once, listed


def item(name: str, version: str = "1", *, status: str | None = None, **data: Any) -> Item:
    metadata: dict[str, Any] = {"name": name}
    if status is not None:
        metadata["annotations"] = {STATUS: status}
    body = msgspec.json.encode({"metadata": metadata, "data": data or None})
    return Item(ObjectKey("policies", name), f"uid-{name}", ResourceVersion(version), body)


def event(kind: str, found: Item | None) -> Event:
    return Event(kind, found.version if found else ResourceVersion("1"), found)


class Store:
    def __init__(self) -> None:
        self.told = 0
        self.maps = PolicyMaps("policies", self.tell)

    def tell(self) -> None:
        self.told += 1

    @property
    def names(self) -> list[str]:
        return [policy.key.name for policy in self.maps]


def test_keys_that_end_in_rego_are_modules_and_others_are_not() -> None:
    found = parse(item("p", "7", **{"a.rego": "package a", "README": "words", "b.rego": ""}))
    assert found is not None
    assert found.modules == {"policies/p/a.rego": "package a", "policies/p/b.rego": ""}
    assert (found.version, found.status) == ("7", None)


def test_configmap_without_a_module_is_no_policy() -> None:
    assert parse(item("p", README="words")) is None
    assert parse(item("p")) is None


def test_status_annotation_is_read() -> None:
    found = parse(item("p", status="ok", **{"a.rego": ""}))
    assert found is not None
    assert found.status == "ok"


def test_listing_replaces_what_was_held() -> None:
    store = Store()
    assert not store.maps.listed
    rego = {"a.rego": ""}
    version = ResourceVersion("1")
    listed(store.maps, Listing([item("a", **rego), item("b", **rego)], version))
    listed(store.maps, Listing([item("b", **rego), item("none")], version))
    assert store.names == ["b"]
    assert (len(store.maps), store.maps.listed, store.told) == (1, True, 2)


def test_namespace_that_cannot_be_listed_is_not_listed() -> None:
    store = Store()
    listed(store.maps, Listing([], ResourceVersion("")), known=False)
    assert not store.maps.listed


def test_events_add_change_and_delete_policies() -> None:
    store = Store()
    store.maps.apply(event("ADDED", item("a", "1", **{"a.rego": "one"})))
    store.maps.apply(event("MODIFIED", item("a", "2", **{"a.rego": "two"})))
    assert [policy.version for policy in store.maps] == ["2"]
    store.maps.apply(event("DELETED", item("a", "3", **{"a.rego": "two"})))
    assert store.names == []
    assert store.told == 3


def test_configmap_that_loses_its_last_module_is_no_policy_any_more() -> None:
    store = Store()
    store.maps.apply(event("ADDED", item("a", **{"a.rego": "one"})))
    store.maps.apply(event("MODIFIED", item("a", **{"a.txt": "one"})))
    assert store.names == []


def test_bookmark_is_no_news() -> None:
    store = Store()
    store.maps.apply(event("BOOKMARK", None))
    assert store.told == 0


def test_deletion_of_what_was_no_policy_is_harmless() -> None:
    store = Store()
    store.maps.apply(event("DELETED", item("a")))
    assert store.names == []


def test_list_that_breaks_off_changes_nothing() -> None:
    store = Store()
    rego = {"a.rego": ""}
    listed(store.maps, Listing([item("a", **rego)], ResourceVersion("1")))
    at_once(store.maps.page([item("torn", **rego)]))
    store.maps.abandon()
    listed(store.maps, Listing([item("a", **rego)], ResourceVersion("2")))
    assert store.names == ["a"]
