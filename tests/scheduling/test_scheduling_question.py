"""What the webhook takes for one question is one to the rules."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from kube_sync.admission.pod_digest import READ
from tests.scheduling.engine import SchedulingOpa, kubernetes_of, request_for
from tests.scheduling.test_scheduling_cases import CASES


def test_the_rules_read_the_fields_that_the_webhook_compares(scheduling_opa: SchedulingOpa) -> None:
    assert sorted(scheduling_opa.asked("kube_sync/scheduling/pods/_scheduling")) == sorted(READ)


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=case["id"])
        for case in CASES
        if case["operation"] == "CREATE" and case["object"]["kind"] == "Pod"
    ],
)
def test_pods_that_differ_elsewhere_are_decided_alike(
    scheduling_opa: SchedulingOpa, case: Any
) -> None:
    scheduling_opa.load(
        kubernetes_of(case["policies"] or (), case["rbac"] or {}),
        {"merge_option": case["merge_option"]},
    )
    other = copy.deepcopy(case["object"])
    other["metadata"] |= {"name": "x", "uid": "u", "annotations": {"a": "b"}, "finalizers": ["f"]}
    other["spec"] |= {"volumes": [{"name": "v"}], "hostNetwork": True, "containers": []}
    answers = [
        scheduling_opa.decision(request_for(pod, "CREATE", case["user"]) | {"uid": uid})
        for pod, uid in ((case["object"], "1"), (other, "2"))
    ]
    assert answers[0] == answers[1]
