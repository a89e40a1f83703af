from __future__ import annotations

from typing import Any

import msgspec
import pytest

from kube_sync.config import Labelled, Policies
from kube_sync.kube.collection import Event, Item, ResourceVersion
from kube_sync.kube.policymaps import STATUS, PolicyMaps, data_maps, parse, policy_maps
from kube_sync.objects import ObjectKey
from kube_sync.regoversion import version_of
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


@pytest.mark.parametrize("data", [None, {"b.rego": "package b"}])
def test_file_that_is_no_text_is_a_policy_that_cannot_be_read(data: dict[str, str] | None) -> None:
    content = {"metadata": {"name": "p"}, "data": data, "binaryData": {"a.rego": "/w=="}}
    found = parse(
        Item(ObjectKey("policies", "p"), "u", ResourceVersion("1"), msgspec.json.encode(content))
    )
    assert found is not None
    assert found.unreadable == "no text in UTF-8 (they are in binaryData): a.rego"
    content["binaryData"] = {"a.png": "/w=="}
    found = parse(
        Item(ObjectKey("policies", "p"), "u", ResourceVersion("1"), msgspec.json.encode(content))
    )
    assert (found is None) == (data is None)
    assert found is None or found.unreadable is None


def test_candidate_that_cannot_be_read_is_held_to_be_told_so() -> None:
    metadata = {"name": "p", "labels": {"kube-sync.io/stage": "candidate"}}
    body = msgspec.json.encode({"metadata": metadata, "binaryData": {"a.rego": "/w=="}})
    store = Store()
    binary = Item(ObjectKey("policies", "p"), "u", ResourceVersion("1"), body)
    store.maps.apply(event("ADDED", binary))
    assert [policy.unreadable is None for policy in store.maps.candidates] == [False]


def test_configmap_that_is_staged_as_a_candidate_is_no_policy() -> None:
    labels = {"kube-sync.io/stage": "candidate", "openpolicyagent.org/policy": "rego"}
    metadata = {"name": "p", "labels": labels}
    body = msgspec.json.encode({"metadata": metadata, "data": {"a.rego": "package a"}})
    staged = Item(ObjectKey("policies", "p"), "u", ResourceVersion("1"), body)
    for labelled in (None, Labelled(namespaces=("policies",))):
        found = parse(staged, labelled)
        assert found is not None
        assert found.stage == "candidate"
    store = Store()
    store.maps.apply(event("ADDED", staged))
    assert (store.names, len(store.maps), [*store.maps.staged]) == ([], 0, [])
    assert [policy.key.name for policy in store.maps.candidates] == ["p"]


def staged(stage: str, name: str = "p", **annotations: str) -> Item:
    metadata = {
        "name": name,
        "labels": {"kube-sync.io/stage": stage},
        "annotations": {f"kube-sync.io/{key}": value for key, value in annotations.items()},
    }
    body = msgspec.json.encode({"metadata": metadata, "data": {"a.rego": "package a"}})
    return Item(ObjectKey("policies", name), "u", ResourceVersion("1"), body)


@pytest.mark.parametrize("stage", ["shadow", "canary", "Active", ""])
def test_policy_of_another_stage_than_active_is_held_apart_and_does_not_count(stage: str) -> None:
    store = Store()
    store.maps.apply(event("ADDED", staged(stage)))
    assert (store.names, len(store.maps)) == ([], 0)
    (found,) = store.maps.staged
    assert (found.stage, found.stands_for) == (stage, found.key)
    store.maps.apply(event("MODIFIED", staged("active")))
    assert (store.names, len(store.maps), [*store.maps.staged]) == (["p"], 1, [])


def test_staged_policy_stands_for_what_it_names_else_for_its_own_name() -> None:
    for found, name in [
        (staged("shadow", "p-candidate"), "p"),
        (staged("shadow", "p"), "p"),
        (staged("shadow", "p-candidate", **{"stands-for": "other"}), "other"),
    ]:
        policy = parse(found)
        assert policy is not None
        assert policy.stands_for == ObjectKey("policies", name)


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


LABELLED = Labelled(namespaces=("apps",))
POLICY = {"openpolicyagent.org/policy": "rego"}
DATA = {"openpolicyagent.org/data": "opa"}


def labelled(name: str, namespace: str, labels: dict[str, str], **data: str) -> Item:
    body = msgspec.json.encode({"metadata": {"name": name, "labels": labels}, "data": data})
    return Item(ObjectKey(namespace, name), "uid", ResourceVersion("1"), body)


def test_every_key_of_a_labelled_configmap_is_a_module() -> None:
    found = parse(labelled("p", "apps", POLICY, main="package p", **{"a.rego": ""}), LABELLED)
    assert found is not None
    assert found.modules == {"apps/p/main": "package p", "apps/p/a.rego": ""}


def test_label_of_another_value_makes_no_policy() -> None:
    other = {"openpolicyagent.org/policy": "off"}
    assert parse(labelled("p", "apps", other, main="package p"), LABELLED) is None


def test_label_does_not_count_where_labels_are_off() -> None:
    found = parse(labelled("p", "policies", POLICY, main="x", **{"a.rego": ""}))
    assert found is not None
    assert set(found.modules) == {"policies/p/a.rego"}


def test_data_configmap_is_no_policy_whatever_its_keys() -> None:
    both = labelled("p", "apps", {**POLICY, **DATA}, **{"a.rego": "package p"})
    assert parse(both, LABELLED) is None
    assert parse(labelled("p", "apps", DATA, **{"a.rego": "package p"}), LABELLED) is None


def test_certificate_of_every_namespace_is_no_policy() -> None:
    assert parse(labelled("kube-root-ca.crt", "apps", {}, **{"ca.crt": "-----"}), LABELLED) is None


def places(*namespaces: str, own: tuple[str, ...] = ("policies",)) -> list[PolicyMaps]:
    policies = Policies(namespaces=own, labelled=Labelled(namespaces=namespaces))
    return policy_maps(policies, lambda: None)


def held(maps: list[PolicyMaps], *items: Item) -> list[list[str]]:
    """Return the ids that each Store holds, when all of them are listed."""
    for found in maps:
        inside = [i for i in items if found.scope in (None, i.key.namespace)]
        listed(found, Listing(inside, ResourceVersion("1")))
    return [sorted(i for policy in found for i in policy.modules) for found in maps]


def test_no_labels_count_while_no_namespace_is_named() -> None:
    (found,) = places()
    assert (found.scope, found.selector, found.where) == ("policies", None, "policies")
    item = labelled("p", "policies", POLICY, main="package p")
    assert held([found], item) == [[]]


def test_labels_are_selected_in_each_namespace_that_is_named() -> None:
    maps = places("apps", "shop", "apps")
    assert [(found.scope, found.selector) for found in maps] == [
        ("policies", None),
        ("apps", "openpolicyagent.org/policy=rego"),
        ("shop", "openpolicyagent.org/policy=rego"),
    ]


@pytest.mark.parametrize("namespaces", [("*",), ("policies", "apps"), ("*", "apps")])
def test_policy_by_namespace_and_by_label_is_held_once(namespaces: tuple[str, ...]) -> None:
    maps = places(*namespaces)
    both = labelled("both", "policies", POLICY, main="package p", **{"a.rego": ""})
    data = labelled("data", "policies", DATA, **{"a.rego": "{}"})
    plain = labelled("plain", "policies", {}, **{"a.rego": "", "readme": ""})
    other = labelled("other", "apps", POLICY, main="package o")
    assert held(maps, both, data, plain, other) == [
        ["policies/both/a.rego", "policies/both/main", "policies/plain/a.rego"],
        ["apps/other/main"],
    ]


def test_all_namespaces_are_one_store() -> None:
    maps = places("apps", "*", own=())
    assert [(found.scope, found.where) for found in maps] == [(None, "all namespaces")]
    (data,) = data_maps(Policies(labelled=Labelled(namespaces=("apps", "*"))), lambda: None)
    assert (data.scope, data.selector) == (None, "openpolicyagent.org/data=opa")


LABEL = "kube-sync.io/rego-version"


def labelled_item(version: str | None, **data: str) -> Item:
    labels = {} if version is None else {LABEL: version}
    body = msgspec.json.encode({"metadata": {"name": "p", "labels": labels}, "data": data})
    return Item(ObjectKey("policies", "p"), "uid-p", ResourceVersion("1"), body)


@pytest.mark.parametrize(
    ("label", "line", "default", "version"),
    [
        (None, None, 1, 1),
        (None, None, 0, 0),
        ("0", None, 1, 0),
        ("1", None, 0, 1),
        (None, 0, 1, 0),
        (None, 1, 0, 1),
        ("1", 0, 0, 1),
    ],
)
def test_version_of_rego_is_that_of_label_then_line_then_configuration(
    label: str | None, line: int | None, default: int, version: int
) -> None:
    stated = "" if line is None else f"# {LABEL}: {line}\n"
    found = parse(labelled_item(label, **{"a.rego": f"{stated}package a\n"}), rego_version=default)
    assert found is not None
    (source,) = found.modules.values()
    assert (version_of(source), found.unreadable) == (version, None)


def test_label_that_names_no_version_of_rego_is_told_and_the_policy_counts() -> None:
    found = parse(labelled_item("v0", **{"a.rego": "package a"}))
    assert found is not None
    assert found.unreadable == f'label {LABEL}: \'v0\' is no version of Rego ("0" or "1")'


def test_default_of_the_configuration_reaches_every_place_of_policies() -> None:
    labelled = Labelled(namespaces=("*",))
    stores = policy_maps(
        Policies(namespaces=("a",), labelled=labelled, rego_version=0), lambda: None
    )
    for store in stores:
        listed(store, Listing([item("p", **{"a.rego": "package a"})], ResourceVersion("1")))
    versions = [version_of(s) for store in stores for p in store for s in p.modules.values()]
    assert versions == [0, 0]
