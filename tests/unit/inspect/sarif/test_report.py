from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest

from kube_sync.config import WarningCode
from kube_sync.errors import Broken, Terminal
from kube_sync.inspect.plan.effects import KINDS
from kube_sync.inspect.sarif.report import (
    Finding,
    as_sarif,
    of_error,
    of_warnings,
    write_report,
    write_sarif,
)
from kube_sync.inspect.sarif.rules import RULES, rule_of, warning_rule
from kube_sync.policies.policywarning import PolicyWarning
from tests.sarif import placed, valid_sarif

ROOT = Path(__file__).resolve().parents[4]


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.rego").write_text("package a\nx := 1\n")


def test_findings_are_valid_with_file_and_row() -> None:
    found = [Finding("plan/moves", "2 to move", "a.rego", 2), Finding("plan/note", "a note")]
    run = valid_sarif(as_sarif("plan", found))
    assert placed(run) == [("plan/moves", "a.rego", 2)]
    assert run["results"][0]["locations"][0]["physicalLocation"]["region"]["endColumn"] == 7
    (invocation,) = run["invocations"]
    assert invocation["executionSuccessful"] is True
    assert [one["message"]["text"] for one in invocation["toolExecutionNotifications"]] == [
        "a note"
    ]
    assert run["automationDetails"]["id"] == "kube-sync/plan/"


def test_report_without_findings_is_valid() -> None:
    assert valid_sarif(as_sarif("test", []))["results"] == []


def test_every_rule_can_be_reported() -> None:
    rules = [*RULES, *map(warning_rule, get_args(WarningCode))]
    run = valid_sarif(as_sarif("plan", [Finding(rule, "x", "a.rego", 1) for rule in rules]))
    assert [one["ruleId"] for one in run["results"]] == rules
    assert {f"plan/{kind}" for kind in KINDS} <= RULES.keys()


def test_pages_of_rules_are_there() -> None:
    rules = [*RULES, *map(warning_rule, get_args(WarningCode))]
    assert [r for r in rules if not (ROOT / "docs" / rule_of(r).page).exists()] == []


def test_error_is_at_the_file_and_row_that_it_names() -> None:
    error = Broken(["a.rego:2: rego_parse_error: no", "the API server does not answer: 503"])
    run = valid_sarif(as_sarif("plan", of_error(error)))
    assert placed(run) == [("not-run", "a.rego", 2)]
    assert run["results"][0]["message"]["text"] == "rego_parse_error: no"
    assert run["invocations"][0]["executionSuccessful"] is False


def test_finding_on_what_is_no_file_keeps_its_place_in_the_text() -> None:
    found = [Finding("plan/moves", "1 to move", "policies/placement/policy.rego", 7)]
    run = valid_sarif(as_sarif("plan", found))
    (note,) = run["invocations"][0]["toolExecutionNotifications"]
    assert note["message"]["text"] == "policies/placement/policy.rego:7: 1 to move"
    assert note["associatedRule"]["id"] == "plan/moves"


def test_warnings_are_reported_once_with_what_was_meant() -> None:
    warning = PolicyWarning("unknown_rule", "a.rego", 2, "no 'eror'", "errors")
    (found,) = of_warnings([warning, warning])
    assert found == Finding("policy/unknown_rule", "no 'eror' (meant: errors?)", "a.rego", 2)


def test_text_of_others_is_plain() -> None:
    said = "\x1b[2Jgone, see [why](https://example.com)"
    found = [Finding("plan/moves", said, "a.rego", 1), Finding("plan/note", said)]
    run = valid_sarif(as_sarif("plan", found))
    (note,) = run["invocations"][0]["toolExecutionNotifications"]
    for one in (run["results"][0], note):
        assert (
            one["message"]["text"]
            == "\N{REPLACEMENT CHARACTER}[2Jgone, see [why] (https://example.com)"
        )


def test_report_is_written_where_it_is_asked_for_alone() -> None:
    write_sarif(None, "plan", [])
    write_sarif("build/plan.sarif", "plan", [])
    valid_sarif(Path("build/plan.sarif").read_text(encoding="utf-8"))


def test_report_that_cannot_be_written_names_option_and_file() -> None:
    with pytest.raises(Terminal, match=r"^--sarif: a\.rego/x: File exists$"):
        write_report("--sarif", "a.rego/x", "")
