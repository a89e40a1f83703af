from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from kube_sync.admission.policygate import PolicyGate, canary_may_exist
from kube_sync.config import Labelled, Policies
from kube_sync.kube.collection import Event, Item, ResourceVersion
from kube_sync.kube.placementpolicies import PlacementPolicies
from kube_sync.kube.policymaps import PolicyMap, PolicyMaps, policy_maps
from kube_sync.objects import ObjectKey
from tests.fakes.listing import Listing, listed

VERSION = ResourceVersion("1")


def _configmap(name: str, *keys: str) -> Item:
    body = {"metadata": {"name": name}, "data": dict.fromkeys(keys, "package x")}
    return Item(ObjectKey("policies", name), "u", VERSION, json.dumps(body).encode())


def _maps(*items: Item, known: bool = True) -> PolicyMaps:
    maps = PolicyMaps("policies", lambda: None)
    listed(maps, Listing(list(items), VERSION), known=known)
    return maps


def _objects(*specs: object) -> PlacementPolicies:
    policies = PlacementPolicies("policies", lambda: None)
    listed(policies, Listing([_object(str(n), spec) for n, spec in enumerate(specs)], VERSION))
    return policies


def _object(name: str, spec: object) -> Item:
    body = {"metadata": {"name": name}, "spec": spec}
    return Item(ObjectKey("policies", name), "u", VERSION, json.dumps(body).encode())


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Endless:
    """A Store of policies without an end."""

    listed = True

    def __iter__(self) -> Iterator[PolicyMap]:
        while True:
            yield PolicyMap(ObjectKey("policies", "p"), "1", {"p": ""}, None)


def test_one_policy_is_enough_to_know_that_there_may_be_one() -> None:
    """It is asked for each review, however many policies there are."""
    assert PolicyGate([Endless()]).policy_may_exist


def test_before_the_first_list_a_policy_may_exist() -> None:
    maps = PolicyMaps("policies", lambda: None)
    assert PolicyGate([maps], static=False).policy_may_exist


def test_an_empty_policy_namespace_holds_no_policy() -> None:
    assert not PolicyGate([_maps()], static=False).policy_may_exist


def test_a_policy_configmap_is_a_policy() -> None:
    assert PolicyGate([_maps(_configmap("p", "policy.rego"))], static=False).policy_may_exist


def test_a_configmap_without_rego_does_not_count() -> None:
    """kube-root-ca.crt is in every namespace."""
    maps = _maps(_configmap("kube-root-ca.crt", "ca.crt"))
    assert not PolicyGate([maps], static=False).policy_may_exist


def test_the_first_policy_shuts_the_door_and_the_last_one_opens_it() -> None:
    maps = _maps()
    gate = PolicyGate([maps], static=False)
    maps.apply(Event("ADDED", VERSION, _configmap("p", "policy.rego")))
    assert gate.policy_may_exist
    maps.apply(Event("DELETED", VERSION, _configmap("p", "policy.rego")))
    assert not gate.policy_may_exist


MODULES = {"modules": [{"name": "a.rego", "rego": "package x"}]}


def test_a_placementpolicy_is_a_policy_as_a_configmap_is() -> None:
    gate = PolicyGate([_maps(), objects := _objects()])
    assert not gate.policy_may_exist
    objects.apply(Event("ADDED", VERSION, _object("web", MODULES)))
    assert gate.policy_may_exist
    assert gate.modules() == {"policies/web.PlacementPolicy/a.rego": "package x"}
    objects.apply(Event("DELETED", VERSION, _object("web", MODULES)))
    assert not gate.policy_may_exist


@pytest.mark.parametrize("stage", ["candidate", "shadow", "canary", "later"])
def test_a_placementpolicy_that_is_not_active_does_not_count(stage: str) -> None:
    assert not PolicyGate([_objects(MODULES | {"stage": stage})]).policy_may_exist


def test_a_placementpolicy_that_cannot_be_read_may_decide() -> None:
    assert PolicyGate([_objects({"modules": 7})]).policy_may_exist


def test_placementpolicies_that_are_not_listed_may_exist() -> None:
    assert PolicyGate([_maps(), PlacementPolicies("policies", lambda: None)]).policy_may_exist


def test_one_of_several_namespaces_is_enough() -> None:
    maps = [_maps(), _maps(_configmap("p", "policy.rego"))]
    assert PolicyGate(maps, static=False).policy_may_exist
    assert PolicyGate([_maps(), PolicyMaps("other", lambda: None)], static=False).policy_may_exist


def test_policies_that_opa_was_started_with_always_exist() -> None:
    assert PolicyGate([_maps()], static=True).policy_may_exist


def test_an_api_server_that_does_not_know_configmaps_proves_nothing() -> None:
    assert PolicyGate([_maps(known=False)], static=False).policy_may_exist


def test_a_watch_lost_for_a_short_while_still_counts() -> None:
    clock, maps = Clock(), _maps()
    gate = PolicyGate([maps], static=False, clock=clock)
    gate.lost(maps)
    clock.now += 29.0
    assert not gate.policy_may_exist


def test_a_watch_lost_for_long_proves_nothing_any_more() -> None:
    clock, maps = Clock(), _maps()
    gate = PolicyGate([maps], static=False, clock=clock)
    gate.lost(maps)
    clock.now += 29.0
    gate.lost(maps)  # told again at each failed attempt: the first one counts
    clock.now += 2.0
    assert gate.policy_may_exist


def test_a_watch_that_is_back_counts_again() -> None:
    clock, maps = Clock(), _maps()
    gate = PolicyGate([maps], static=False, clock=clock)
    gate.lost(maps)
    clock.now += 60.0
    gate.found(maps)
    gate.found(_maps())  # never lost
    assert not gate.policy_may_exist
    gate.lost(maps)
    assert not gate.policy_may_exist


def test_one_lost_watch_of_several_proves_nothing_whatever_the_others_are() -> None:
    """Two Stores may even watch one namespace: one of them found says nothing of the other."""
    clock, one, other = Clock(), _maps(), _maps()
    gate = PolicyGate([one, other], static=False, clock=clock)
    gate.lost(one)
    gate.found(other)
    clock.now += 31.0
    assert gate.policy_may_exist


def test_a_configmap_with_the_label_of_data_does_not_count_in_a_policy_namespace() -> None:
    policies = Policies(labelled=Labelled(namespaces=("*",)))
    own, everywhere = policy_maps(policies, lambda: None)
    gate = PolicyGate([own, everywhere], static=False)
    labels = {"openpolicyagent.org/data": "opa"}
    body = {"metadata": {"name": "d", "labels": labels}, "data": {"a.rego": "{}", "b.json": "{}"}}
    item = Item(ObjectKey("policies", "d"), "u", VERSION, json.dumps(body).encode())
    listed(own, Listing([item], VERSION))
    listed(everywhere, Listing([], VERSION))
    assert not gate.policy_may_exist


def test_the_modules_of_all_policy_configmaps_are_known_by_id() -> None:
    gate = PolicyGate([_maps(_configmap("p", "a.rego", "b.rego")), _maps()], static=False)
    assert gate.modules() == dict.fromkeys(("policies/p/a.rego", "policies/p/b.rego"), "package x")


def _labelled(name: str, label: str, **data: str) -> Item:
    key, _, value = label.partition("=")
    body = {"metadata": {"name": name, "labels": {key: value}}, "data": data}
    return Item(ObjectKey("apps", name), "u", VERSION, json.dumps(body).encode())


def test_labelled_policy_anywhere_counts_and_other_configmaps_do_not() -> None:
    """Every namespace of a real cluster has kube-root-ca.crt: it must not close the door."""
    policies = Policies(labelled=Labelled(namespaces=("*",)))
    own, everywhere = policy_maps(policies, lambda: None)
    gate = PolicyGate([own, everywhere], static=False)
    listed(own, Listing([_configmap("kube-root-ca.crt", "ca.crt")], VERSION))
    assert gate.policy_may_exist  # the labelled ones are not listed yet
    data = _labelled("limits", "openpolicyagent.org/data=opa", **{"a.rego": "{}"})
    listed(everywhere, Listing([data], VERSION))
    assert not gate.policy_may_exist
    policy = _labelled("rules", "openpolicyagent.org/policy=rego", main="package x")
    everywhere.apply(Event("ADDED", VERSION, policy))
    assert gate.policy_may_exist


def test_whoever_has_not_listed_or_lost_sight_is_blind() -> None:
    clock = Clock()
    maps = _maps(_configmap("p", "policy.rego"))
    gate = PolicyGate([maps], clock=clock)
    assert not gate.is_blind
    gate.lost(maps)
    assert not gate.is_blind  # for a while what was seen is true
    clock.now += 31.0
    assert gate.is_blind
    gate.found(maps)
    assert not gate.is_blind
    assert PolicyGate([PolicyMaps("policies", lambda: None)]).is_blind


def test_canary_may_be_a_placementpolicy() -> None:
    objects = _objects(MODULES, MODULES | {"stage": "shadow"})
    assert not canary_may_exist([_maps(), objects])
    objects.apply(Event("MODIFIED", VERSION, _object("1", MODULES | {"stage": "canary"})))
    assert canary_may_exist([_maps(), objects])


def test_canary_may_exist_while_one_is_staged() -> None:
    item = _configmap("p", "policy.rego")
    body = json.loads(item.body)
    body["metadata"]["labels"] = {"kube-sync.io/stage": "canary"}
    staged = Item(item.key, "u", VERSION, json.dumps(body).encode())
    maps = _maps(item)
    assert not canary_may_exist([maps])
    maps.apply(Event("MODIFIED", VERSION, staged))
    assert canary_may_exist([maps])
    assert not PolicyGate(
        [maps]
    ).policy_may_exist  # it decides on nothing where nothing is in force
    maps.apply(Event("DELETED", VERSION, staged))
    assert not canary_may_exist([maps])
