from __future__ import annotations

from typing import Any

import msgspec
import pytest

from kube_sync.config import Policies
from kube_sync.kube.collection import Event, Item, ResourceVersion
from kube_sync.kube.placementpolicies import (
    PlacementPolicies,
    PlacementPolicy,
    placement_policies,
    read_policy,
)
from kube_sync.kube.policynames import called, object_key, policy_key
from kube_sync.objects import ObjectKey
from kube_sync.regoversion import version_of
from tests.fakes.listing import Listing, at_once, listed

VERSION = ResourceVersion("1")
WEB = ObjectKey("policies", "web")
MODULE = {"name": "a.rego", "rego": "package a"}


def item(spec: Any, name: str = "web", **more: Any) -> Item:
    metadata = {"name": name, "generation": 3, "creationTimestamp": "2026-11-22T00:00:00Z"}
    metadata |= more.pop("metadata", {})
    body = msgspec.json.encode({"metadata": metadata, "spec": spec} | more)
    return Item(ObjectKey("policies", name), "uid", VERSION, body)


def modules(*found: Any, stage: str | None = None) -> dict[str, Any]:
    return {"modules": list(found)} | ({"stage": stage} if stage is not None else {})


def event(kind: str, found: Item | None) -> Event:
    return Event(kind, VERSION, found)


def test_modules_are_named_by_an_id_of_three_parts_that_no_configmap_can_have() -> None:
    """OPA's authorization lets the replicator write three; names of ConfigMaps are lower case."""
    found = read_policy(item(modules(MODULE)))
    assert found.modules == {"policies/web.PlacementPolicy/a.rego": "package a"}
    assert (found.key, found.generation, found.unreadable) == (policy_key(WEB), 3, None)
    assert found.counts
    assert found.born == "2026-11-22T00:00:00Z"


def test_people_are_told_kind_and_name() -> None:
    assert called(policy_key(WEB)) == "PlacementPolicy policies/web"
    assert called(WEB) == "ConfigMap policies/web"
    assert object_key(policy_key(WEB)) == object_key(WEB) == WEB


def test_staged_policy_stands_for_one_of_its_kind() -> None:
    staged = modules(MODULE, stage="shadow")
    found = [
        item(staged, "web-candidate"),
        item(staged, "new", metadata={"annotations": {"kube-sync.io/stands-for": "web"}}),
        item(staged),
        item(modules(MODULE), "x", metadata={"labels": {"kube-sync.io/stage": "shadow"}}),
        item(modules(MODULE), "web-candidate"),
    ]
    x = policy_key(ObjectKey("policies", "x"))
    own = policy_key(WEB)
    assert [read_policy(one).stands_for for one in found] == [own, own, own, x, None]


def test_terms_of_a_staged_policy_are_its_annotations_that_are_ours() -> None:
    says = {"kube-sync.io/canary-share": "0.1", "other.io/x": "y"}
    canary = item(modules(MODULE, stage="canary"), metadata={"annotations": says})
    assert read_policy(canary).terms == {"kube-sync.io/canary-share": "0.1"}
    assert read_policy(item(modules(MODULE), metadata={"annotations": says})).terms == {}


def test_what_its_status_says_of_its_stage_is_read_whatever_it_is() -> None:
    for status, staged in (({"staged": {"objects": 1}}, {"objects": 1}), ({}, None), ([], None)):
        assert read_policy(item(modules(MODULE), status=status)).staged == staged


@pytest.mark.parametrize("stage", ["candidate", "shadow", "canary", "later"])
def test_what_is_not_active_does_not_count(stage: str) -> None:
    found = read_policy(item(modules(MODULE, stage=stage)))
    assert (found.counts, found.stage) == (False, stage)


@pytest.mark.parametrize(
    ("stage", "label", "counted"),
    [
        (None, "candidate", "candidate"),
        ("active", "canary", "canary"),
        ("candidate", "active", "candidate"),
        ("active", "active", "active"),
    ],
)
def test_label_of_staged_configmaps_takes_it_out_too(
    stage: str | None, label: str, counted: str
) -> None:
    labels = {"labels": {"kube-sync.io/stage": label}}
    assert read_policy(item(modules(MODULE, stage=stage), metadata=labels)).stage == counted


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        (None, "spec: "),
        ([], "spec: "),
        ({}, "modules"),
        (modules(), "it has no modules"),
        ({"modules": {"a.rego": "package a"}}, "Expected `array`"),
        (modules({"name": "a.rego"}), "rego"),
        (modules({"name": "a.rego", "rego": 7}), "Expected `str`"),
        (modules(MODULE, MODULE), "2 modules are called a.rego"),
        (modules(MODULE | {"name": "../a.rego"}), "no module can be called '../a.rego'"),
        (modules(MODULE | {"name": "a/b.rego"}), "no module can be called"),
        (modules(MODULE | {"name": "a.txt"}), "no module can be called"),
        (modules(MODULE | {"name": "a" * 124 + ".rego"}), "no module can be called"),
        ({"modules": [MODULE], "stage": 7}, "stage"),
    ],
)
def test_one_of_another_shape_counts_and_cannot_be_read(spec: Any, reason: str) -> None:
    """It may be policy: the door stays shut, and what it said before stands."""
    found = read_policy(item(spec))
    assert found.counts
    assert found.modules == {}
    assert reason in (found.unreadable or "")


def test_one_that_is_no_active_one_need_not_be_readable() -> None:
    assert not read_policy(item({"modules": 7, "stage": "candidate"})).counts


def test_one_without_metadata_counts_and_cannot_be_read() -> None:
    for body in (b"{}", b"[", b'{"metadata": 7}', b'{"metadata": {"labels": 7}}'):
        found = read_policy(Item(WEB, "uid", VERSION, body))
        assert found.counts
        assert found.unreadable
        assert found.uid == "uid"


def test_name_that_is_too_long_for_a_file_cannot_be_read() -> None:
    assert "200 characters" in (read_policy(item(modules(MODULE), "a" * 201)).unreadable or "")
    assert read_policy(item(modules(MODULE), "a" * 200)).unreadable is None


def test_conditions_that_are_none_are_left_out() -> None:
    held = [{"type": "Active", "status": "True"}]
    assert read_policy(item(None, status={"conditions": held})).conditions == tuple(held)
    for wrong in (7, {"conditions": 7}, {"conditions": [7]}, {}):
        assert read_policy(item(None, status=wrong)).conditions == ()


class Store:
    def __init__(self) -> None:
        self.told = 0
        self.policies = PlacementPolicies("policies", self.tell)

    def tell(self) -> None:
        self.told += 1

    @property
    def names(self) -> list[str]:
        return [object_key(found.key).name for found in self.policies]

    @property
    def staged(self) -> list[PlacementPolicy]:
        return list(self.policies.staged)


def test_a_listing_replaces_what_was_held() -> None:
    store = Store()
    assert not store.policies.listed
    a, b = item(modules(MODULE), "a"), item(modules(MODULE, stage="shadow"), "b")
    listed(store.policies, Listing([a, b], VERSION))
    assert (store.names, len(store.policies), store.policies.listed) == (["a"], 1, True)
    assert [found.stage for found in store.staged] == ["shadow"]
    listed(store.policies, Listing([b], VERSION))
    assert (store.names, store.told) == ([], 2)


def test_what_is_said_to_be_of_no_kind_stays() -> None:
    store = Store()
    listed(store.policies, Listing([item(modules(MODULE), "a")], VERSION))
    at_once(store.policies.page([item(modules(MODULE), "torn")]))
    listed(store.policies, Listing([], VERSION), known=False)
    listed(new := PlacementPolicies("policies", lambda: None), Listing([], VERSION), known=False)
    assert (store.names, new.listed) == (["a"], False)


def test_list_that_breaks_off_is_forgotten() -> None:
    store = Store()
    at_once(store.policies.page([item(modules(MODULE), "torn")]))
    store.policies.abandon()
    listed(store.policies, Listing([item(modules(MODULE), "a")], VERSION))
    assert store.names == ["a"]


def test_events_bring_change_and_take_away() -> None:
    store = Store()
    store.policies.apply(event("ADDED", item(modules(MODULE))))
    assert store.names == ["web"]
    store.policies.apply(event("MODIFIED", item(modules(MODULE, stage="candidate"))))
    assert (store.names, len(store.staged)) == ([], 1)
    store.policies.apply(event("DELETED", item(modules(MODULE))))
    store.policies.apply(event("DELETED", item(modules(MODULE))))
    store.policies.apply(event("BOOKMARK", None))
    assert (store.staged, store.told) == ([], 3)


def test_there_is_one_store_for_each_policy_namespace() -> None:
    found = placement_policies(Policies(namespaces=("a", "b", "a")), lambda: None)
    assert [store.namespace for store in found] == ["a", "b"]


LABEL = "kube-sync.io/rego-version"


@pytest.mark.parametrize(
    ("stated", "labels", "default", "version"),
    [
        ({}, {}, 1, 1),
        ({}, {}, 0, 0),
        ({}, {LABEL: "0"}, 1, 0),
        ({"regoVersion": "0"}, {}, 1, 0),
        ({"regoVersion": "1"}, {LABEL: "0"}, 0, 1),
    ],
)
def test_version_of_rego_is_that_of_field_then_label_then_configuration(
    stated: dict[str, str], labels: dict[str, str], default: int, version: int
) -> None:
    found = read_policy(item({**modules(MODULE), **stated}, metadata={"labels": labels}), default)
    (source,) = found.modules.values()
    assert (version_of(source), found.unreadable) == (version, None)


@pytest.mark.parametrize("stated", ["v0", "2", "", 0, [1]])
def test_version_of_rego_that_is_none_is_named_and_the_policy_counts(stated: Any) -> None:
    found = read_policy(item({**modules(MODULE), "regoVersion": stated}))
    assert found.counts
    assert "regoVersion" in str(found.unreadable)
    assert '("0" or "1")' in str(found.unreadable)
