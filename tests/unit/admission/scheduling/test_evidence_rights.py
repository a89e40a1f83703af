"""Roles whose rule is for SchedulingPolicies of another API group."""

from __future__ import annotations

from typing import Any

import pytest

from kube_sync.admission.scheduling.evidence import rights_of_other_groups

RULE = {"apiGroups": ["extensions"], "resources": ["schedulingpolicies"], "verbs": ["use"]}


def found(*rules: Any) -> Any:
    return rights_of_other_groups({"roles": {"a": {"r": {"rules": [*rules]}}}})


def test_role_of_another_group_is_found_by_kind_and_name() -> None:
    cluster = {"clusterroles": {"c": {"rules": [{}, RULE]}, "none": {}}}
    (report,) = rights_of_other_groups(cluster).values()
    assert report.findings[0].startswith("rules[1]: grants the use of schedulingpolicies of the ")
    assert list(found(RULE)) == ["Role a/r"]


@pytest.mark.parametrize(
    "rule",
    [
        {**RULE, "apiGroups": ["policy.kube-sync.io", "extensions"]},
        {**RULE, "apiGroups": ["*"]},
        {**RULE, "resources": ["deployments"]},
        {**RULE, "verbs": ["get"]},
        {"nonResourceURLs": ["/"], "verbs": ["use"]},
        {**RULE, "apiGroups": None},
        "no rule",
    ],
    ids=str,
)
def test_rule_about_anything_else_is_not_found(rule: Any) -> None:
    assert found(rule) == {}
