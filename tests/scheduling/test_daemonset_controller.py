"""DaemonSets: their templates by the proposal's cases, their controller by its own source.

It is the source of which the pinned kube-apiserver is built.
"""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.scheduling.engine import SchedulingOpa, kubernetes_of, request_for
from tests.scheduling.test_scheduling_cases import CASES
from tests.scheduling.test_scheduling_fuzz import RBAC, pod, policy
from tools.servers.modules import in_module

_CONTROLLER = "system:serviceaccount:kube-system:daemon-set-controller"
_TOLERATION = re.compile(
    r"Key:\s+v1\.(\w+),\s+Operator:\s+v1\.TolerationOp(\w+),\s+Effect:\s+v1\.TaintEffect(\w+)"
)
_TAINT = re.compile(r'(Taint\w+)\s+= "([^"]+)"')


def _tolerations() -> list[dict[str, Any]]:
    taints = dict(
        _TAINT.findall(in_module("k8s.io/api", "core/v1/well_known_taints.go").read_text("utf-8"))
    )
    written = in_module("k8s.io/kubernetes", "pkg/controller/daemon/util/daemonset_util.go")
    found = _TOLERATION.findall(written.read_text("utf-8"))
    return [{"key": taints[k], "operator": o, "effect": e} for k, o, e in found]


@pytest.mark.parametrize(("user", "allowed"), [(_CONTROLLER, True), ("alice", False)])
def test_tolerations_that_the_controller_adds_need_no_permission_on_its_pods(
    scheduling_opa: SchedulingOpa, user: str, *, allowed: bool
) -> None:
    tolerations = _tolerations()
    assert len(tolerations) >= 7
    restricted = policy("restricted", {"allowed": {"schedulerNames": []}})
    scheduling_opa.load(kubernetes_of([restricted], RBAC), {})
    request = request_for(pod({"tolerations": tolerations}), "CREATE", {"username": user})
    assert scheduling_opa.decision(request)["allowed"] == allowed


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=case["id"])
        for case in CASES
        if case["operation"] == "CREATE" and case["object"]["kind"] == "Pod"
    ],
)
def test_template_of_a_daemonset_is_decided_as_the_pod_would_be(
    scheduling_opa: SchedulingOpa, case: Any
) -> None:
    scheduling_opa.load(
        kubernetes_of(case["policies"] or (), case["rbac"] or {}),
        {"merge_option": case["merge_option"]},
    )
    made = case["object"]
    metadata = {"name": "agent", "namespace": made["metadata"]["namespace"]}
    template = {"metadata": {"labels": made["metadata"].get("labels")}, "spec": made["spec"]}
    daemonset = {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": metadata}
    written = request_for(daemonset | {"spec": {"template": template}}, "CREATE", case["user"])
    expected = scheduling_opa.decision(request_for(made, "CREATE", case["user"]))
    answer = scheduling_opa.decision(written)
    assert answer["allowed"] == expected["allowed"] == case["expected"]["allowed"]
    assert answer["patch"] == [
        operation | {"path": f"/spec/template{operation['path']}"}
        for operation in expected["patch"]
    ]
    assert scheduling_opa.merged(written) == scheduling_opa.merged(
        request_for(made, "CREATE", case["user"])
    )
