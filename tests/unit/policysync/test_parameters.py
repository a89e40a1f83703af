"""Which kinds a class wants synced; what is wrong hinders nothing else."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kube_sync.objects import GroupVersionResource, ObjectKey
from kube_sync.policysync.copies import FeedbackField
from kube_sync.policysync.parameters import (
    Invalid,
    Parameters,
    SyncedKind,
    merge_parameters,
    parse_parameters,
    reference,
)
from tests.fakes.syncing import AUTH

RATE = GroupVersionResource("kuadrant.io", "v1", "ratelimitpolicies")
NONE: dict[ObjectKey, dict[str, Any]] = {}
WHERE = ObjectKey("infra", "mgc")
REF = {"group": "", "kind": "ConfigMap", "namespace": "infra", "name": "mgc"}


def entry(gvr: GroupVersionResource = AUTH, *fields: Any) -> dict[str, Any]:
    named = {"group": gvr.group, "version": gvr.version, "resource": gvr.resource}
    return named | ({"statusFields": list(fields)} if fields else {})


def of_class(ref: Any = REF) -> dict[str, Any]:
    return {"spec": {"parametersRef": ref}}


def read(params: Any, ref: Any = REF) -> Parameters | Invalid:
    text = params if isinstance(params, str) else json.dumps(params)
    return parse_parameters(of_class(ref), {WHERE: {"data": {"params": text}}}.get)


def test_a_class_names_the_kinds_that_it_wants_synced() -> None:
    field = {"name": "ready", "path": ".status.ready"}
    found = read({"policiesToSync": [entry(AUTH, field), entry(RATE)], "downstreamClass": "istio"})
    ready = FeedbackField("ready", ".status.ready")
    assert found == Parameters((SyncedKind(AUTH, (ready,)), SyncedKind(RATE)))


def test_a_document_without_either_list_is_no_empty_list_and_its_keys_are_told() -> None:
    found = read({"policyToSync": [entry()], "x" * 70: 1})
    keys = f'"policyToSync", "{"x" * 64}…"'
    where = "ConfigMap infra/mgc, key params"
    assert found == Invalid(f"{where}: it has no policiesToSync; its keys are {keys}", foreign=True)
    many = read({f"k{n:02d}": 1 for n in range(12)})
    assert isinstance(many, Invalid)
    assert many.problem.endswith('"k09", 2 more')
    assert read({}) == Parameters()


def test_the_earlier_name_of_the_list_is_read_where_the_other_is_missing() -> None:
    assert read({"experimentalPolicySync": [entry()]}) == Parameters((SyncedKind(AUTH),))
    both = {"experimentalPolicySync": [entry()], "policiesToSync": [entry(RATE)]}
    assert read(both) == Parameters((SyncedKind(RATE),))
    assert read({"policiesToSync": []}) == Parameters()


@pytest.mark.parametrize("made", [{}, {"spec": {}}, {"spec": {"parametersRef": None}}])
def test_a_class_without_parameters_wants_nothing(made: dict[str, Any]) -> None:
    assert parse_parameters(made, NONE.get) == Parameters()
    assert reference(made) is None


@pytest.mark.parametrize(
    ("ref", "told", "foreign"),
    [
        ({**REF, "kind": "Secret"}, "spec.parametersRef: /Secret is no ConfigMap", True),
        ({**REF, "group": "x"}, "spec.parametersRef: x/ConfigMap is no ConfigMap", True),
        ({**REF, "namespace": None}, "spec.parametersRef: a ConfigMap needs a namespace", False),
        ({**REF, "name": ""}, "spec.parametersRef: a ConfigMap needs a name", False),
        ({**REF, "name": 1}, "spec.parametersRef: name: expected text, found a number", False),
        ({**REF, "name": "other"}, "ConfigMap infra/other was not found", False),
        ("x", "spec.parametersRef: spec.parametersRef: expected a mapping, found text", False),
    ],
)
def test_a_reference_that_leads_to_no_parameters_is_told(
    ref: Any, told: str, *, foreign: bool
) -> None:
    assert read({}, ref) == Invalid(told, foreign)


@pytest.mark.parametrize(
    ("body", "told", "foreign"),
    [
        ({}, " has no key params", True),
        ({"data": {"other": "{}"}}, " has no key params", True),
        ({"data": {"params": ""}}, ", key params: no JSON: ", False),
        ({"data": {"params": "a: b"}}, ", key params: no JSON: ", False),
        ({"data": {"params": "[" * 100_000}}, ", key params: no JSON: ", False),
        ({"data": {"params": "[]"}}, ", key params: expected a JSON object", False),
        ({"data": {"params": 1}}, ", key params: params: expected text, found a number", False),
        ({"data": []}, ", key params: data: expected a mapping, found a list", False),
        (
            {"data": {"params": '{"policiesToSync": {}}'}},
            ", key params: policiesToSync: expected a list",
            False,
        ),
    ],
)
def test_parameters_that_cannot_be_read_are_told(
    body: dict[str, Any], told: str, *, foreign: bool
) -> None:
    found = parse_parameters(of_class(), {WHERE: body}.get)
    assert isinstance(found, Invalid)
    assert found.problem.startswith(f"ConfigMap infra/mgc{told}")
    assert found.foreign is foreign


@pytest.mark.parametrize(
    ("broken", "told"),
    [
        (1, "expected a mapping, found a number"),
        ({}, 'group "", version "", resource "" name no resource'),
        (entry(GroupVersionResource("", "v1", "pods")), 'group "", version "v1", resource "pods"'),
        ({**entry(), "resource": "../x"}, 'resource "../x" name no resource'),
        ({**entry(), "version": 1}, "version: expected text, found a number"),
        ({**entry(), "statusFields": 1}, f"{AUTH}: statusFields: expected a list, found a number"),
        (
            entry(AUTH, {"name": "x", "path": ".status[*]"}),
            f'{AUTH}: statusFields: x: ".status[*]": a path is made of',
        ),
        (entry(AUTH, {"path": ".a"}), f'{AUTH}: statusFields: "" is missing, too long or taken'),
        (
            entry(AUTH, {"name": "x" * 65, "path": ".a"}),
            f'{AUTH}: statusFields: "{"x" * 65}" is missing, too long or taken',
        ),
        (
            entry(AUTH, {"name": "acceptedStatus", "path": ".a"}),
            f'{AUTH}: statusFields: "acceptedStatus" is missing, too long or taken',
        ),
        (
            entry(AUTH, *[{"name": "x", "path": ".a"}] * 2),
            f'{AUTH}: statusFields: "x" is missing, too long or taken',
        ),
        (
            entry(AUTH, *({"name": f"x{n}", "path": ".a"} for n in range(21))),
            f"{AUTH}: statusFields: at most 20",
        ),
        (entry(RATE), f"{RATE} is there already, as {RATE}"),
        (
            {**entry(RATE), "version": "v2"},
            f"ratelimitpolicies.v2.kuadrant.io is there already, as {RATE}",
        ),
    ],
)
def test_an_entry_that_is_wrong_is_told_and_hinders_no_other(broken: Any, told: str) -> None:
    found = read({"policiesToSync": [entry(RATE), broken]})
    assert isinstance(found, Parameters)
    assert found.kinds == (SyncedKind(RATE),)
    (problem,) = found.problems
    assert problem.startswith("policiesToSync[1]: ")
    assert problem.removeprefix("policiesToSync[1]: ").startswith(told) or told in problem
    assert problem.count("policiesToSync[1]") == 1


A, B = FeedbackField("a", ".status.a"), FeedbackField("b", ".status.b")


def test_the_lists_of_several_classes_live_together() -> None:
    found = merge_parameters(
        {
            "two": Parameters((SyncedKind(AUTH, (B, A._replace(path=".other"))),)),
            "one": Parameters((SyncedKind(AUTH, (A,)), SyncedKind(RATE))),
            "bad": Invalid("x"),
        }
    )
    assert found.kinds.keys() == {AUTH, RATE}
    assert found.kinds[AUTH].keys() == {"one", "two"}
    assert not found.refused
    assert found.fields(AUTH, frozenset(["one", "two"])) == (A, B)
    assert found.fields(AUTH, frozenset(["two"])) == (A._replace(path=".other"), B)
    assert found.fields(RATE, frozenset(["two"])) == ()
    assert found.fields(GroupVersionResource("", "v1", "x"), frozenset(["two"])) == ()


def test_a_kind_is_synced_in_one_version_and_the_class_that_differs_is_told() -> None:
    """The same policy would have two copies of one name."""
    later = GroupVersionResource("kuadrant.io", "v2", "authpolicies")
    lists = {"b": Parameters((SyncedKind(later),)), "a": Parameters((SyncedKind(AUTH),))}
    found = merge_parameters(lists)
    assert found.kinds.keys() == {AUTH}
    assert found.refused == {"b": {later: "GatewayClass a has it synced in version v1"}}
