"""What the linter warns of, and what it must not, by trees that OPA compiled."""

from __future__ import annotations

import pytest

from kube_sync.kube.staging import Mark
from kube_sync.policies.linter import marked
from tests.component.test_policy_slips import told

DECISION = "package io.k8s.federation.admission\n\n"
RIGHT = [
    pytest.param(DECISION + '_fit := {1}\n\nlabels.a := "b" if count(_fit) > 0\n', id="private"),
    pytest.param(DECISION + 'fit(x) := x\n\nlabels.a := fit("b")\n', id="function"),
    pytest.param(DECISION + 'errors := ["a"]\n\nevict := true\n', id="complete rules"),
    pytest.param(DECISION + 'reasons[c] contains "a" if some c in input.spec.cs\n', id="reasons"),
    pytest.param(DECISION + "labels := input.metadata.labels\n", id="input's labels"),
    pytest.param(DECISION + 'labels.a := "b" if input.kind == "Rollout"\n', id="other kind"),
    pytest.param(DECISION + 'labels.a := "b" if input.data.key\n', id="fields of other kinds"),
    pytest.param(DECISION + "labels.a := data.shops.a\n", id="data from elsewhere"),
    pytest.param(
        DECISION + "labels.a := data.kubernetes[input.kind].a.b\n", id="computed resource"
    ),
    pytest.param("package lib.helpers\n\nanotations := 1\n", id="another package"),
    pytest.param("package io.k8s.federation.admission_test\n\ntest_a if true\n", id="tests"),
    pytest.param("package io.k8s.federation.admission.lib\n\nx := 1\n", id="below the decision"),
    pytest.param(
        DECISION
        + 'annotations["federation.kubernetes.io/replica-set-preferences"] := {\n'
        + '\t"clusters": {"cluster1": {"weight": 1}, "weights": {}},\n\t"rebalance": true,\n}\n',
        id="clusters with odd names",
    ),
    pytest.param("package kube_sync_budget\n\nmoves_per_minute := 3\n", id="limits"),
]
WRONG = [
    (DECISION + 'fit := {1}\n\nlabels.a := "b" if count(fit) > 0\n', "helper_in_decision", 3),
    (DECISION + "allow if true\n", "unknown_rule", 3),
    (DECISION + 'annotations contains "a"\n', "wrong_type", 3),
    (DECISION + 'errors := "a"\n', "wrong_type", 3),
    (DECISION + 'evict := "yes"\n', "wrong_type", 3),
    (DECISION + 'labels.a := "b" if {\n\tinput.labels.a\n}\n', "unknown_field", 4),
    (DECISION + 'labels.a := "b" if input.request.userInfo.usernam\n', "unknown_field", 3),
    (DECISION + 'labels.a := "b" if input.object.metdata.labels.a\n', "unknown_field", 3),
    (DECISION + 'labels.a := "b" if data.kubernetes.pods.a.b\n', "unknown_resource", 3),
    (
        DECISION + "import data.kubernetes.clutsers\n\nlabels.a := clutsers.a.b\n",
        "unknown_resource",
        5,
    ),
    (DECISION + '_x := 1\n\n_fits if true\n\nlabels.a := "b" if _x == 1\n', "unused_helper", 5),
]


@pytest.mark.parametrize("source", RIGHT)
async def test_policy_that_does_what_it_says_is_not_warned_of(source: str) -> None:
    assert await told("ns/p/m.rego", source) == []


@pytest.mark.parametrize(("source", "code", "row"), WRONG)
async def test_slip_is_named_with_its_row(source: str, code: str, row: int) -> None:
    assert [(one.code, one.row) for one in await told("ns/p/m.rego", source)] == [(code, row)]


def test_annotations_and_labels_of_policies_are_known() -> None:
    right: list[Mark] = [("label", "kube-sync.io/stage"), ("annotation", "kube-sync.io/stands-for")]
    assert [*marked(right)] == []
    wrong: list[Mark] = [
        ("annotation", "kube-sync.io/stand-for"),
        ("label", "kube-sync.io/stands-for"),
        ("annotation", "kube-sync.io/stage"),
        ("label", "kube-sync.io/colour"),
    ]
    assert [(one.code, one.suggestion) for one in marked(wrong)] == [
        ("unknown_annotation", "kube-sync.io/stands-for"),
        ("unknown_label", "annotation kube-sync.io/stands-for"),
        ("unknown_annotation", "label kube-sync.io/stage"),
        ("unknown_label", ""),
    ]
