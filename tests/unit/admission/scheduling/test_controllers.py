"""What the API server puts into pods before a webhook sees them."""

from __future__ import annotations

from typing import Any

import pytest

from kube_sync.admission.scheduling.controllers import filled_in, global_default

TAINTS = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"]


def spec(*, seconds: int = 300, name: str = "", **given: Any) -> Any:
    return filled_in({"spec": given}, seconds, name)["spec"]


def test_pod_that_says_nothing_gets_a_scheduler_and_two_tolerations() -> None:
    found = spec(seconds=60)
    assert found["schedulerName"] == "default-scheduler"
    assert [one["key"] for one in found["tolerations"]] == TAINTS
    assert {one["tolerationSeconds"] for one in found["tolerations"]} == {60}
    assert "priorityClassName" not in found


def test_what_a_pod_says_stays() -> None:
    found = spec(schedulerName="mine", priorityClassName="gold", name="common")
    assert (found["schedulerName"], found["priorityClassName"]) == ("mine", "gold")
    assert spec(name="common")["priorityClassName"] == "common"


@pytest.mark.parametrize(
    ("own", "added"),
    [
        ({"operator": "Exists"}, []),
        ({"key": TAINTS[0], "effect": "NoExecute"}, TAINTS[1:]),
        ({"key": TAINTS[1], "effect": ""}, TAINTS[:1]),
        ({"operator": "Exists", "effect": "NoSchedule"}, TAINTS),
        ("no toleration", TAINTS),
    ],
)
def test_toleration_is_added_only_where_none_is_for_its_taint(own: Any, added: list[str]) -> None:
    """As the plugin DefaultTolerationSeconds decides it."""
    assert [one["key"] for one in spec(tolerations=[own])["tolerations"][1:]] == added


@pytest.mark.parametrize("pod", [{"spec": "x"}, {}, {"spec": None}])
def test_pod_without_a_spec_stays_as_it_is(pod: Any) -> None:
    assert filled_in(pod, 300, "") == pod


def test_tolerations_that_are_no_list_stay_for_the_decision_to_refuse() -> None:
    assert spec(tolerations={"a": "b"})["tolerations"] == {"a": "b"}


def test_global_default_is_the_configured_class_or_the_one_that_says_so() -> None:
    classes = {"a": {"value": 1}, "b": {"globalDefault": True}}
    assert global_default(classes, "") == "b"
    assert global_default(classes, "c") == "c"
    assert global_default({}, "") == ""
