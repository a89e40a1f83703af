from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kube_sync.inspect.plan.causes import group_of
from kube_sync.inspect.plan.forecast import Forecast
from kube_sync.inspect.plan.plan import identity
from kube_sync.inspect.plan.sarif import findings
from kube_sync.inspect.sarif.report import Finding, as_sarif
from kube_sync.policies.policywarning import PolicyWarning
from tests.sarif import placed, valid_sarif
from tests.unit.inspect.plan.plans import MASS, WAY, effect, plan

EDIT = replace(WAY, file="edit.rego", row=2)
FILES = {WAY.file: "edit.rego"}


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("edit.rego").write_text("package a\nx := 1\n")


def test_workloads_that_one_rule_moves_are_one_finding_at_it() -> None:
    effects = [effect(f"w{n}") for n in range(7)]
    whole = plan(*effects, causes={group_of(one): (WAY, EDIT) for one in effects}, files=FILES)
    (found,) = findings(whole)
    names = "shop/w0, shop/w1, shop/w2, shop/w3, shop/w4"
    assert found == Finding("plan/moves", f"7 to move: {names} and 2 more", "edit.rego", 2)


def test_loss_says_why() -> None:
    lost = effect("web", "refused", reason="no cluster is gold", change=None)
    (found,) = findings(plan(lost, causes={group_of(lost): (EDIT,)}, files=FILES))
    assert found.message == "1 refused: shop/web: no cluster is gold"
    assert found.level == "error"


def test_effect_of_a_rule_that_is_gone_is_at_the_file_that_took_it_away() -> None:
    web = effect("web")
    files = {"policies/placement/other.rego": "other.rego", WAY.file: "edit.rego"}
    gone = {group_of(web): (replace(WAY, when="now"),)}
    run = valid_sarif(as_sarif("plan", findings(plan(web, causes=gone, files=files))))
    assert placed(run) == [("plan/moves", "edit.rego", 1)]


def test_effect_that_no_rule_of_the_edit_has_is_at_its_first_file() -> None:
    files = {"policies/limits": "edit.rego"}
    run = valid_sarif(as_sarif("plan", findings(plan(effect("web"), files=files), ["c.yaml"])))
    assert placed(run) == [("plan/moves", "edit.rego", 1)]
    (found,) = findings(plan(effect("web")), ["c.yaml"])
    assert (found.file, found.row) == ("c.yaml", 0)


def test_effect_of_a_rule_of_the_cluster_is_a_notification() -> None:
    run = valid_sarif(as_sarif("plan", findings(plan(effect("web")))))
    assert placed(run) == []
    (note,) = run["invocations"][0]["toolExecutionNotifications"]
    assert note["message"]["text"].startswith("policies/placement/policy.rego:12: 1 to move")


def test_pending_effects_are_no_findings_but_brakes_notes_and_warnings_are() -> None:
    web = effect("web")
    forecast = Forecast({identity(web): 12.4}, {}, (MASS,))
    warning = PolicyWarning("unknown_rule", "edit.rego", 2, "no")
    whole = plan(
        effect("b", pending=True), forecast=forecast, notes=("a note",), warnings=(warning,)
    )
    assert [(one.rule, one.message) for one in findings(whole)] == [
        ("plan/brakes", "mass: 9 of 10 would move: waits for an approval"),
        ("plan/brakes", "the last one goes 12 s after an approval"),
        ("plan/note", "a note"),
        ("policy/unknown_rule", "no"),
    ]
