from __future__ import annotations

import json
from typing import Any, Literal

import pytest

from kube_sync.guard import ADDITION
from kube_sync.kube.collection import Event, Item, ResourceVersion
from kube_sync.objects import ObjectKey
from kube_sync.remediation.plan import Current
from kube_sync.remediation.targets import Targets
from tests.fakes.listing import Listing, at_once, listed

VERSION = ResourceVersion("1")


def _key(name: str) -> ObjectKey:
    return ObjectKey("ns", name)


def _item(name: str, annotations: dict[str, str] | None = None, uid: str = "u") -> Item:
    body = {"metadata": {"name": name} | ({"annotations": annotations} if annotations else {})}
    return Item(_key(name), uid, VERSION, json.dumps(body).encode())


class Store(Targets):
    def __init__(self, *items: Item) -> None:
        self.told: set[ObjectKey] = set()
        super().__init__(self.told.add)
        listed(self, Listing(list(items), VERSION))


def test_uid_annotations_and_version_are_kept() -> None:
    store = Store(_item("a", {"k": "v"}))
    assert store.get(_key("a")) == Current("u", {"k": "v"}, {}, "1")


def test_labels_are_kept() -> None:
    body = b'{"metadata":{"labels":{"l":"v"}}}'
    assert Store(Item(_key("a"), "u", VERSION, body)).get(_key("a")) == Current(
        "u", {}, {"l": "v"}, "1"
    )


def test_an_object_without_annotations_has_none() -> None:
    assert Store(_item("a")).get(_key("a")) == Current("u", {}, {}, "1")


def test_a_list_tells_every_key_that_came_stayed_or_went() -> None:
    store = Store(_item("went"), _item("stayed"))
    store.told.clear()
    listed(store, Listing([_item("stayed"), _item("came")], VERSION))
    assert store.told == {_key("went"), _key("stayed"), _key("came")}
    assert store.get(_key("went")) is None


def test_an_event_replaces_the_object_and_tells_its_key() -> None:
    store = Store(_item("a", {"k": "1"}), _item("b"))
    store.told.clear()
    store.apply(Event("MODIFIED", ResourceVersion("2"), _item("a", {"k": "2"}, "u2")))
    assert store.get(_key("a")) == Current("u2", {"k": "2"}, {}, "1")
    assert store.told == {_key("a")}


def test_a_deletion_forgets_the_object_and_tells_its_key() -> None:
    store = Store(_item("a"))
    store.told.clear()
    store.apply(Event("DELETED", VERSION, _item("a")))
    store.apply(Event("DELETED", VERSION, _item("never-seen")))
    assert store.get(_key("a")) is None
    assert store.told == {_key("a")}


def test_objects_are_counted_by_namespace() -> None:
    store = Store(_item("a"), _item("b"))
    other = Item(ObjectKey("other", "c"), "u", VERSION, b'{"metadata":{}}')
    store.apply(Event("ADDED", VERSION, other))
    store.apply(Event("MODIFIED", VERSION, _item("b")))
    store.apply(Event("DELETED", VERSION, _item("a")))
    store.apply(Event("DELETED", VERSION, _item("never-seen")))
    assert store.namespaces == {"ns": 1, "other": 1}
    listed(store, Listing([other], VERSION))
    assert store.namespaces == {"other": 1}


def test_a_namespace_that_is_empty_by_now_is_forgotten() -> None:
    store = Store(_item("a"))
    store.apply(Event("DELETED", VERSION, _item("a")))
    store.apply(Event("DELETED", VERSION, _item("never-seen")))
    assert list(store.namespaces) == []  # a Counter equals one without its zeros


def test_a_bookmark_tells_nothing() -> None:
    store = Store(_item("a"))
    store.told.clear()
    store.apply(Event("BOOKMARK", VERSION))
    assert store.told == set()


def test_list_that_breaks_off_changes_nothing() -> None:
    """Or its objects would look as if they had been there in the next one."""
    store = Store(_item("here"))
    at_once(store.page([_item("torn")]))
    store.abandon()
    listed(store, Listing([_item("here")], VERSION))
    assert store.get(_key("torn")) is None


def _managed(*managers: tuple[str, str, str, list[str]]) -> Current:
    fields = [
        {
            "manager": manager,
            "operation": operation,
            "fieldsType": "FieldsV1",
            "fieldsV1": {"f:metadata": {f"f:{what}": {f"f:{key}": {} for key in keys}}},
        }
        for manager, operation, what, keys in managers
    ]
    has = dict.fromkeys("abc", "1")
    return _read({"annotations": has, "labels": has, "managedFields": fields})


def _read(metadata: dict[str, Any]) -> Current:
    store = Store()
    body = json.dumps({"metadata": {"name": "a", **metadata}}).encode()
    store.apply(Event("ADDED", VERSION, Item(_key("a"), "u", VERSION, body)))
    current = store.get(_key("a"))
    assert current is not None
    return current


def test_what_only_the_remediator_applied_is_its_own() -> None:
    ours = ("kube-sync-remediator", "Apply")
    current = _managed(
        (*ours, "annotations", ["a", "b", "gone"]),
        (*ours, "labels", ["b", "c"]),
        ("kubectl", "Update", "annotations", ["b", "c"]),
    )
    assert [current.ours, current.our_labels] == [{"a"}, {"b", "c"}]
    labels = _managed((*ours, "labels", ["b", "c"]), ("kubectl", "Apply", "labels", ["c"]))
    assert [labels.ours, labels.our_labels] == [set(), {"b"}]


def test_what_the_remediator_gave_back_is_not_its_own() -> None:
    """A JSON Patch makes it an owner too: by an update, of a value that was asked for."""
    current = _managed(
        ("kube-sync-remediator", "Update", "annotations", ["a"]),
        ("kube-sync-remediator", "Apply", "annotations", ["a", "b"]),
    )
    assert current.ours == {"b"}


def test_a_label_that_came_by_a_json_patch_is_the_remediators_own() -> None:
    """No label is ever given back, so whichever way it came, it was decided."""
    current = _managed(
        ("kube-sync-remediator", "Update", "labels", ["a", "b"]),
        ("kube-sync-remediator", "Apply", "labels", ["b", "c"]),
        ("kubectl", "Update", "labels", ["c"]),
    )
    assert current.our_labels == {"a", "b"}


@pytest.mark.parametrize("fields", [None, [], "kube-sync-remediator", ["kube-sync-remediator"]])
def test_owners_that_cannot_be_read_own_nothing(fields: object) -> None:
    current = _read({"annotations": {"a": "1"}, "managedFields": fields})
    assert current == Current("u", {"a": "1"}, version=VERSION)


@pytest.mark.parametrize(
    ("spec", "idle"),
    [
        ('{"replicas":0,"template":{}}', True),
        ('{"replicas": 0}', True),
        ('{"replicas":1}', False),
        ('{"replicas":"0"}', False),
        ('{"replicas":null}', False),
        ("{}", False),
        ("[]", False),
        ("null", False),
    ],
)
def test_object_is_idle_only_where_it_surely_wants_no_replicas(spec: str, idle: bool) -> None:  # noqa: FBT001 - drawn
    body = f'{{"metadata":{{}},"spec":{spec}}}'.encode()
    found = Store(Item(_key("a"), "u", VERSION, body)).get(_key("a"))
    assert found is not None
    assert found.idle is idle


def test_idle_objects_are_not_counted_while_they_are_idle() -> None:
    def event(kind: Literal["MODIFIED", "DELETED"], replicas: int) -> Event:
        body = json.dumps({"metadata": {}, "spec": {"replicas": replicas}}).encode()
        return Event(kind, VERSION, Item(_key("a"), "u", VERSION, body))

    store = Store(_item("b"))
    for kind, replicas, counted in (
        ("MODIFIED", 0, 1),
        ("MODIFIED", 3, 2),
        ("MODIFIED", 0, 1),
        ("DELETED", 0, 1),
    ):
        store.apply(event(kind, replicas))  # type: ignore[arg-type]
        assert store.namespaces == {"ns": counted}


def _of(spec: str, *, recorded: bool = True) -> Current:
    text = f'"annotations":{{"{ADDITION}":"{{}}"}}' if recorded else ""
    body = f'{{"metadata":{{{text}}},"spec":{spec}}}'.encode()
    found = Store(Item(_key("a"), "u", VERSION, body)).get(_key("a"))
    assert found is not None
    return found


def test_only_an_object_with_a_record_of_an_addition_has_a_digest_of_its_spec() -> None:
    assert _of('{"a":1}', recorded=False).spec == ""
    assert _of('{"a":1}').spec == _of('{ "a":1}').spec != ""


def test_where_records_are_not_on_the_objects_each_has_a_digest_of_its_spec() -> None:
    store = Targets(lambda _key: None, digests=True)
    listed(store, Listing([_item("a")], VERSION))
    found = store.get(_key("a"))
    assert found is not None
    assert found.spec


def test_the_digest_of_a_spec_differs_with_all_but_the_replicas() -> None:
    assert _of('{"a":1,"replicas":2}').spec == _of('{"replicas":3,"a":1}').spec
    assert len({_of(spec).spec for spec in ('{"a":1}', '{"a":2}', "{}", "7", "[]")}) == 5


def test_where_an_object_is_healthy_is_read_as_configured() -> None:
    store = Targets(
        lambda _key: None, read_health=lambda has, body: frozenset([f"{len(has)}/{len(body)}"])
    )
    item = _item("a")
    listed(store, Listing([item], VERSION))
    found = store.get(_key("a"))
    assert found is not None
    assert found.healthy == {f"{len(found.annotations)}/{len(item.body)}"}
