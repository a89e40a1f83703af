from __future__ import annotations

from typing import Any

import pytest

from kube_sync.topology import NAMESPACE, GroupKind, Kind
from kube_sync.topology.gateway import GATEWAY, LISTENER, RULES
from kube_sync.topology.hints import COLOR_POLICY
from kube_sync.topology.policy_definitions import (
    declared,
    declares_policies,
    is_cluster_scoped,
    rules_of,
)
from kube_sync.topology.raw_json import Malformed
from tests.fakes.definitions import ANYTHING, POLICY, definition
from tests.fakes.topologies import API

GROUP = "example.com"
KINDS = (Kind(NAMESPACE, namespaced=False), *API.kinds)
DIRECT = {"gateway.networking.k8s.io/policy": "Direct"}


def shade(level: str = "", labels: dict[str, str] = POLICY, **more: Any) -> dict[str, Any]:
    annotations = {"kube-sync.io/takes-effect-at": level} if level else {}
    return definition("Shade", GROUP, "v1", labels=labels, annotations=annotations, **more)


def schema(**spec: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"spec": {"type": "object", "properties": spec}}}


def test_the_label_declares_a_kind_of_policies() -> None:
    assert declares_policies(shade())
    assert not declares_policies(shade(labels={}))
    assert not declares_policies({**shade(), "kind": "Shade"})


def test_what_is_not_said_is_inherited_and_at_the_rules_of_routes() -> None:
    kind = declared(shade(), KINDS)
    assert (kind.id, kind.merges) == (GroupKind(GROUP, "Shade"), True)
    assert (kind.level, kind.origins) == (frozenset(RULES), COLOR_POLICY.origins)


def test_a_direct_kind_merges_nothing() -> None:
    kind = declared(shade(labels=DIRECT), KINDS)
    assert (kind.merges, kind.level) == (False, frozenset())


def test_a_level_below_gateways_keeps_the_origins() -> None:
    kind = declared(shade("Gateway, Listener"), KINDS)
    assert kind.level == {GATEWAY, LISTENER}
    assert kind.origins == COLOR_POLICY.origins


def test_a_level_beside_gateways_has_any_origin() -> None:
    kind = declared(shade("Namespace"), KINDS)
    assert kind.level == {NAMESPACE}
    assert not kind.origins


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (shade("Listener,Wall"), "metadata.annotations: .*takes-effect-at: Wall is no targetable"),
        ({**shade(), "metadata": {"labels": 3}}, "metadata.labels: expected a mapping"),
        ({**shade(), "spec": []}, "spec: expected a mapping"),
        ({**shade(), "spec": {"versions": [3]}}, r"spec.versions\[0\]"),
    ],
)
def test_what_means_nothing_is_said_by_its_field(body: dict[str, Any], said: str) -> None:
    with pytest.raises(Malformed, match=said):
        declared(body, KINDS)


def test_the_scope_is_that_of_the_definition() -> None:
    assert is_cluster_scoped(shade(namespaced=False))
    assert not is_cluster_scoped(shade())


@pytest.mark.parametrize(
    ("spec", "rules"),
    [
        ({"rules": {"type": "object"}}, ("rules",)),
        ({"defaults": {"properties": {"rules": {"type": "object"}}}}, ("rules",)),
        ({"overrides": {"properties": {"rules": {"type": "object"}}}}, ("rules",)),
        ({"rules": {"type": "array"}}, ()),
        ({"limits": {"type": "object"}}, ()),
    ],
)
def test_named_rules_are_what_the_schema_says(spec: dict[str, Any], rules: tuple[str, ...]) -> None:
    body = shade(schema=schema(**spec))
    assert (rules_of(body), declared(body, KINDS).rules) == (rules, rules)


def test_a_silent_schema_says_nothing_of_rules() -> None:
    assert rules_of(shade(schema=ANYTHING)) is None
    assert rules_of({**shade(), "spec": {}}) is None
    assert declared(shade(schema=ANYTHING), KINDS).rules == ()


def test_the_rules_of_color_policies_are_known() -> None:
    color = definition(COLOR_POLICY.id.kind, COLOR_POLICY.id.group, "v1", labels=POLICY)
    assert declared(color, KINDS) == COLOR_POLICY


def test_a_definition_may_let_policies_target_what_lies_in_no_namespace() -> None:
    def wide(**said: str) -> bool:
        notes = {f"kube-sync.io/{name.replace('_', '-')}": value for name, value in said.items()}
        body = definition("Shade", GROUP, "v1", labels=POLICY, annotations=notes)
        return declared(body, KINDS).cluster_scoped_targets

    assert not wide()
    assert not wide(targets_cluster_scoped="false")
    assert wide(targets_cluster_scoped="true")
    with pytest.raises(Malformed, match='targets-cluster-scoped: "yes" is not true or false'):
        wide(targets_cluster_scoped="yes")


def hinted(*, label: str = "Inherited", schema: dict[str, Any] = ANYTHING, **hints: str) -> Any:
    notes = {f"kube-sync.io/{name.replace('_', '-')}": value for name, value in hints.items()}
    labels = {"gateway.networking.k8s.io/policy": label}
    body = definition("Shade", GROUP, "v1", labels=labels, annotations=notes, schema=schema)
    return declared(body, KINDS)


@pytest.mark.parametrize("label", ["direct", "Direct", "DIRECT"])
def test_a_kind_is_direct_in_any_case_of_letters(label: str) -> None:
    assert not hinted(label=label).merges


def test_a_definition_names_the_maps_of_its_rules() -> None:
    assert hinted(rules="limits, rules.auth").rules == ("limits", "rules.auth")
    assert hinted(rules="", schema=schema(rules={"type": "object"})).rules == ()


@pytest.mark.parametrize(
    ("rules", "said"),
    [
        ("limts", r"kube-sync\.io/rules: the schema has no spec\.limts"),
        ("limits.deep", r"the schema has no spec\.limits\.deep"),
        ("a..b", r'"a\.\.b" is no path of fields'),
        ("limits,limits.deep", "limits has another of the maps in it"),
    ],
)
def test_maps_that_no_policy_can_have_are_said_by_name(rules: str, said: str) -> None:
    with pytest.raises(Malformed, match=said):
        hinted(rules=rules, schema=schema(limits={"type": "object"}))


def test_maps_are_looked_for_in_defaults_and_overrides_too() -> None:
    block = {"type": "object", "properties": {"limits": {"type": "object"}}}
    assert hinted(rules="limits", schema=schema(defaults=block)).rules == ("limits",)


def test_what_a_definition_says_comes_before_what_is_known_of_its_kind() -> None:
    notes = {"kube-sync.io/takes-effect-at": "Gateway", "kube-sync.io/rules": "limits"}
    body = definition("DNSPolicy", "kuadrant.io", "v1", labels=DIRECT, annotations=notes)
    kind = declared(body, KINDS)
    assert (kind.level, kind.rules) == (frozenset({GATEWAY}), ("limits",))


def test_a_kind_whose_policies_all_apply_is_not_merged_away() -> None:
    assert hinted(label="direct", in_effect="All").all_apply
    assert not hinted(label="direct", in_effect="nearest").all_apply
    with pytest.raises(Malformed, match='in-effect: "some" is not nearest or all'):
        hinted(in_effect="some")
