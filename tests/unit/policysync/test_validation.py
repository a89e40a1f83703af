"""A kind is synced if it is served, has targets, and may be read; the class says which is not."""

from __future__ import annotations

from typing import Any

import pytest

from kube_sync.kube.conditions import Condition, message
from kube_sync.objects import GroupVersionResource
from kube_sync.policysync.gateway_class_status import class_conditions
from kube_sync.policysync.hub_status_writer import TYPE
from kube_sync.policysync.parameters import Invalid, Parameters, SyncedKind
from kube_sync.policysync.validation import VERBS, Faulty, Undetermined, Valid, validate
from tests.fakes.syncing import AUTH

OBJECT = {"type": "object"}
STATUS = {"properties": {"conditions": {"type": "array"}}}
Crd = dict[str, Any]


def crd(spec: Any = None, status: Any = STATUS, **more: Any) -> Crd:
    """Return a definition whose objects have a targetRef."""
    fields = {"targetRef": OBJECT} if spec is None else spec
    properties = {"spec": {"properties": fields}, "status": status}
    version = {
        "name": "v1",
        "served": True,
        "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": {"properties": properties}},
        **more,
    }
    old = {"name": "v1beta1", "served": False}
    return {
        "spec": {
            "group": "kuadrant.io",
            "names": {"plural": "authpolicies", "kind": "AuthPolicy"},
            "scope": "Namespaced",
            "versions": [old, version],
        }
    }


def test_a_kind_with_targets_that_may_be_read_is_valid() -> None:
    assert validate(AUTH, crd(), VERBS) == Valid("AuthPolicy")


@pytest.mark.parametrize(
    "spec",
    [
        {"targetRefs": {"type": "array", "items": OBJECT}},
        {"targetRef": {**OBJECT, "x-kubernetes-preserve-unknown-fields": True}},
    ],
)
def test_either_field_of_targets_is_enough(spec: Crd) -> None:
    assert validate(AUTH, crd(spec), VERBS) == Valid("AuthPolicy")


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"other": OBJECT},
        {"targetRef": {"type": "string"}},
        {"targetRefs": OBJECT},
        {"targetRefs": {"type": "array", "items": {"type": "string"}}},
        {"targetRefs": {"type": "array"}},
    ],
)
def test_a_kind_without_targets_is_not_synced(spec: Crd) -> None:
    why = "its schema has neither .spec.targetRef nor .spec.targetRefs"
    assert validate(AUTH, crd(spec), VERBS) == Faulty(why)


def test_a_schema_that_leaves_everything_open_says_not_that_it_has_targets() -> None:
    made = crd({})
    schema = made["spec"]["versions"][1]["schema"]["openAPIV3Schema"]
    schema["properties"]["spec"]["x-kubernetes-preserve-unknown-fields"] = True
    assert isinstance(validate(AUTH, made, VERBS), Faulty)


@pytest.mark.parametrize(
    ("change", "conditions"),
    [
        ({}, True),
        ({"status": {"x-kubernetes-preserve-unknown-fields": True}}, True),
        ({"status": {}}, False),
        ({"status": None}, False),
        ({"subresources": None}, False),
        ({"subresources": {"scale": {}}}, False),
    ],
)
def test_whether_its_status_can_be_told_is_known(change: Crd, *, conditions: bool) -> None:
    assert validate(AUTH, crd(**change), VERBS) == Valid("AuthPolicy", conditions=conditions)


def test_a_kind_of_no_namespace_is_known() -> None:
    made = crd()
    made["spec"]["scope"] = "Cluster"
    assert validate(AUTH, made, VERBS) == Valid("AuthPolicy", namespaced=False)


def test_a_kind_that_is_not_there_is_told_only_where_all_are_known() -> None:
    assert validate(AUTH, None, VERBS) == Faulty("no such resource")
    assert isinstance(validate(AUTH, None, VERBS, listed=False), Undetermined)
    other = GroupVersionResource("kuadrant.io", "v1", "others")
    assert validate(other, crd(), VERBS) == Faulty("no such resource")


def test_a_version_that_is_not_served_is_told() -> None:
    old = GroupVersionResource("kuadrant.io", "v1beta1", "authpolicies")
    assert validate(old, crd(), VERBS) == Faulty("version v1beta1 is not served, but v1")


@pytest.mark.parametrize(("status", "valid"), [("True", True), ("False", False)])
def test_a_kind_is_synced_once_it_is_established(status: str, *, valid: bool) -> None:
    made = {**crd(), "status": {"conditions": [{"type": "Established", "status": status}]}}
    assert isinstance(validate(AUTH, made, VERBS), Valid) is valid


def test_a_missing_permission_is_told_and_an_unknown_one_is_awaited() -> None:
    reading = ["patch", "patch status", "get"]
    assert validate(AUTH, crd(), reading) == Faulty("no permission to list, watch it")
    assert isinstance(validate(AUTH, crd(), None), Undetermined)


@pytest.mark.parametrize(
    ("allowed", "why"),
    [
        (["patch"], "patch its status"),
        (["patch status"], "patch it"),
        ([], "patch it and to patch its status"),
    ],
)
def test_what_may_not_be_told_of_a_policy_is_missing_as_well(allowed: list[str], why: str) -> None:
    found = validate(AUTH, crd(), ["get", "list", "watch", *allowed])
    assert found == Faulty(f"no permission to {why}")


def test_of_a_kind_without_a_status_no_permission_to_patch_one_is_needed() -> None:
    found = validate(AUTH, crd(status=None), ["get", "list", "watch", "patch"])
    assert found == Valid("AuthPolicy", conditions=False)


@pytest.mark.parametrize("spec", [1, {"names": 1}, {"versions": 1}])
def test_a_definition_that_cannot_be_read_is_told(spec: Any) -> None:
    found = validate(AUTH, {"spec": spec}, VERBS)
    assert isinstance(found, Faulty)


def test_a_schema_of_another_shape_is_told() -> None:
    found = validate(AUTH, crd({"targetRef": 1}), VERBS)
    assert isinstance(found, Faulty)
    assert found.reason.startswith("its definition cannot be read: ")


RATE = GroupVersionResource("kuadrant.io", "v1", "ratelimitpolicies")
BOTH = Parameters((SyncedKind(AUTH), SyncedKind(RATE)))
GOOD = {AUTH: Valid("AuthPolicy"), RATE: Valid("RateLimitPolicy")}


def test_a_class_whose_kinds_are_all_synced_says_so() -> None:
    (found,) = class_conditions(BOTH, GOOD, ours=False)
    assert found == Condition(TYPE, "True", "Valid", f"policies are synced: {AUTH}; {RATE}")
    both = class_conditions(BOTH, GOOD, ours=True)
    assert both == (found, found._replace(type="Accepted", reason="Accepted"))


def test_each_kind_that_cannot_be_synced_is_named_with_its_reason() -> None:
    verdicts = {AUTH: Faulty("no such resource"), RATE: Faulty("no permission to watch it")}
    found = class_conditions(BOTH, verdicts, ours=True)
    told = f"Invalid Parameters - {AUTH}: no such resource; {RATE}: no permission to watch it"
    assert found == (
        Condition(TYPE, "False", "InvalidParameters", told),
        Condition("Accepted", "False", "InvalidParameters", told),
    )


def test_one_kind_that_cannot_be_synced_is_the_only_one_named() -> None:
    (found,) = class_conditions(BOTH, {**GOOD, RATE: Faulty("x")}, ours=False)
    assert found.message == f"Invalid Parameters - {RATE}: x"


def test_an_entry_that_means_nothing_is_told_beside() -> None:
    made = Parameters(BOTH.kinds, ("policiesToSync[2]: x",))
    (found,) = class_conditions(made, GOOD, ours=False, refused={RATE: "y"})
    assert found.message == f"Invalid Parameters - policiesToSync[2]: x; {RATE}: y"
    (alone,) = class_conditions(Parameters((), made.problems), {}, ours=False)
    assert alone.status == "False"


def test_what_is_not_known_yet_is_no_failure() -> None:
    (found,) = class_conditions(BOTH, {AUTH: Undetermined("x")}, ours=False)
    assert (found.status, found.reason) == ("Unknown", "Pending")
    assert found.message == f"{AUTH}: x; {RATE}: it has not been looked at yet"


def test_parameters_that_cannot_be_read_are_told_by_the_class() -> None:
    found = class_conditions(Invalid("no JSON"), {}, ours=False)
    told = "Invalid Parameters - no JSON"
    assert found == (Condition(TYPE, "False", "InvalidParameters", told),)


def test_parameters_that_are_another_controllers_are_none_of_our_business() -> None:
    foreign = Invalid("x", foreign=True)
    assert class_conditions(foreign, {}, ours=False) == ()
    assert len(class_conditions(foreign, {}, ours=True)) == 2
    assert class_conditions(Parameters(), {}, ours=False) == ()
    assert class_conditions(Parameters(), {}, ours=True)[1].status == "True"


def test_a_message_is_cut_between_entries_and_says_how_many_are_left_out() -> None:
    assert message([]) == ""
    assert message(["a", "b"]) == "a; b"
    long = message([f"entry {n}" for n in range(1000)], 100)
    assert long == "entry 0; entry 1; entry 2; entry 3; entry 4; entry 5; entry 6; and 993 more"
    assert message(["x" * 200], 100) == "x" * 66 + " …"
    assert message(["x" * 200, "b"], 100) == "x" * 66 + " …; and 1 more"
    assert len(message(["x" * 200, "b"], 100)) <= 100


def test_a_kind_that_tells_by_ancestors_is_known() -> None:
    status = {"properties": {"ancestors": {"type": "array"}}}
    found = Valid("AuthPolicy", conditions=False, ancestors=True)
    assert validate(AUTH, crd(status=status), VERBS) == found
    without = validate(AUTH, crd(status=status, subresources={}), VERBS)
    assert without == Valid("AuthPolicy", conditions=False)


def test_a_kind_that_is_being_deleted_cannot_be_synced() -> None:
    leaving = {**crd(), "metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}
    assert validate(AUTH, leaving, VERBS) == Faulty("its definition is being deleted")
