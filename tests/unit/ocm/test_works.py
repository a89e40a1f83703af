"""What OCM's webhook takes, and what a work's status says, as the stand-in has them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.ocm.statuses import (
    NOT_THERE,
    THERE,
    UNKNOWN,
    applied_entry,
    applied_status,
    available_status,
    with_available,
    with_condition,
    with_feedback,
)
from tests.ocm.works import LIMIT, owns, refusal

CONFIGMAP = {"apiVersion": "v1", "kind": "ConfigMap"}
META = {"group": "", "version": "v1", "resource": "configmaps", "namespace": "a", "name": "b"}


def manifest(name: str = "b", namespace: str = "a", **fields: Any) -> dict[str, Any]:
    return CONFIGMAP | {"metadata": {"name": name, "namespace": namespace}} | fields


def work(*manifests: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return {
        "metadata": {"generation": 2},
        "spec": {"workload": {"manifests": list(manifests)}} | spec,
    }


@pytest.mark.parametrize(
    ("manifests", "said"),
    [
        ([], "should not be empty"),
        ([CONFIGMAP], "name must be set"),
        ([CONFIGMAP | {"metadata": {"name": "a", "generateName": "a-"}}], "generateName must not"),
        ([manifest(), manifest(data={"other": "x"})], "duplicate manifest found: v1 ConfigMap a b"),
        ([manifest(data={"x": "x" * LIMIT})], "exceeds the 512000 limit"),
        ([manifest(n, data={"x": "x" * (LIMIT // 2)}) for n in "ab"], "exceeds the 512000 limit"),
    ],
)
def test_what_the_webhook_refuses(manifests: list[dict[str, Any]], said: str) -> None:
    assert said in (refusal(work(*manifests)) or "")


def test_other_names_namespaces_and_kinds_are_no_duplicates() -> None:
    others = [manifest("c"), manifest(namespace="d"), manifest() | {"kind": "Secret"}]
    assert refusal(work(manifest(), *others)) is None


def test_up_to_the_limit_a_work_is_taken() -> None:
    assert refusal(work(manifest(data={"x": "x" * (LIMIT - 200)}))) is None


def config(**strategy: Any) -> dict[str, Any]:
    identifier = {k: v for k, v in META.items() if k != "version"}
    return {"manifestConfigs": [{"resourceIdentifier": identifier, "updateStrategy": strategy}]}


RULE = {"resource": "configmaps", "namespace": "a"}


@pytest.mark.parametrize(
    ("spec", "owned"),
    [
        ({}, True),
        ({"deleteOption": {"propagationPolicy": "Foreground"}}, True),
        ({"deleteOption": {"propagationPolicy": "Orphan"}}, False),
        (config(type="ReadOnly"), False),
        (config(type="ServerSideApply"), True),
    ],
)
def test_what_goes_with_a_work(spec: dict[str, Any], owned: bool) -> None:  # noqa: FBT001 - a parameter of the test
    assert owns(work(manifest(), **spec), META) is owned


@pytest.mark.parametrize(("name", "owned"), [("b", False), ("c", True)])
def test_a_selective_orphan_is_the_one_that_is_named(name: str, owned: bool) -> None:  # noqa: FBT001 - a parameter of the test
    option = {
        "propagationPolicy": "SelectivelyOrphan",
        "selectivelyOrphans": {"orphaningRules": [RULE | {"name": name}]},
    }
    assert owns(work(manifest(), deleteOption=option), META) is owned


def test_a_condition_keeps_its_time_until_its_status_changes() -> None:
    first = with_condition([], {"type": "A", "status": "True", "reason": "x"}, "1")
    again = with_condition(first, {"type": "A", "status": "True", "reason": "y"}, "2")
    other = with_condition(again, {"type": "A", "status": "False", "reason": "y"}, "3")
    assert [c[0]["lastTransitionTime"] for c in (first, again, other)] == ["1", "1", "3"]
    assert again[0]["reason"] == "y"


def test_new_values_are_a_new_time_of_the_feedback() -> None:
    entry = applied_entry(work(), META, None, "1")
    synced = {"type": "StatusFeedbackSynced", "status": "True", "reason": "StatusFeedbackSynced"}
    value = {"name": "x", "fieldValue": {"type": "Integer", "integer": 1}}
    one = with_feedback(entry, [value], synced, "2")
    same = with_feedback(one, [value], synced, "3")
    other = with_feedback(same, [], synced, "4")
    times = [found["conditions"][-1]["lastTransitionTime"] for found in (one, same, other)]
    assert times == ["2", "2", "4"]
    assert other["statusFeedback"] == {}


def test_what_was_read_of_an_object_outlives_its_next_apply() -> None:
    value = {"name": "x", "fieldValue": {"type": "Integer", "integer": 1}}
    synced = {"type": "StatusFeedbackSynced", "status": "True", "reason": "StatusFeedbackSynced"}
    before = work()
    entry = with_feedback(applied_entry(before, META, None, "1"), [value], synced, "2")
    before["status"] = applied_status(before, [entry], "2")
    again = applied_entry(before, META, ValueError("409 no"), "3")
    assert again["statusFeedback"] == {"values": [value]}
    applied, feedback = again["conditions"]
    assert applied["message"] == "Failed to apply manifest: no"
    assert feedback["lastTransitionTime"] == "2"


@pytest.mark.parametrize(
    ("conditions", "status", "reason", "message"),
    [
        ([THERE, THERE], "True", "ResourcesAvailable", "All resources are available"),
        ([THERE, UNKNOWN], "Unknown", "ResourcesStatusUnknown", "1 of 2 resources have unknown"),
        ([NOT_THERE, UNKNOWN], "False", "ResourcesNotAvailable", "1 of 2 resources are not avail"),
    ],
)
def test_a_work_is_as_available_as_its_objects(
    conditions: list[dict[str, str]], status: str, reason: str, message: str
) -> None:
    entries = [with_available(applied_entry(work(), META, None, "1"), c, "1") for c in conditions]
    (said,) = available_status(work(), entries, "1")["conditions"]
    assert (said["status"], said["reason"]) == (status, reason)
    assert said["message"].startswith(message)
    assert said["observedGeneration"] == 2


def test_one_failure_fails_the_work() -> None:
    entries = [applied_entry(work(), META | {"name": n}, e, "1")
               for n, e in (("a", None), ("b", ValueError("x")))]  # fmt: skip
    (said,) = applied_status(work(), entries, "1")["conditions"]
    assert (said["status"], said["reason"]) == ("False", "AppliedManifestWorkFailed")
