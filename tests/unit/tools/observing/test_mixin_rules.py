"""The rules, their runbooks and their unit tests, which promtool runs."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.parts import quickly
from tools.observing import metricslist
from tools.observing.__main__ import ROOT, RULES
from tools.servers.prometheus import ensure_prometheus

TESTS = RULES.with_name("rules_test.yaml")
RUNBOOKS = ROOT / "docs/runbooks"
GROUPS: list[dict[str, Any]] = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
RULED = [rule for group in GROUPS for rule in group["rules"]]
ALERTS = {rule["alert"]: rule for rule in RULED if "alert" in rule}
RECORDS = {rule["record"] for rule in RULED if "record" in rule}
OURS = {name for metric in metricslist.declared() for name in metricslist.names(metric)}


def promtool(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    program = ensure_prometheus("promtool")  # where it is missing, nothing was checked: that fails
    return subprocess.run(
        [program, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@pytest.mark.parametrize("rule", RULED, ids=lambda rule: rule.get("alert") or rule["record"])
def test_rule_asks_for_metrics_that_there_are(rule: dict[str, Any]) -> None:
    asked = set(re.findall(r"\bkube_sync[\w:]+", rule["expr"]))
    assert asked <= OURS | RECORDS


@pytest.mark.parametrize("name", ALERTS)
def test_alert_says_how_bad_it_is_and_what_to_do(name: str) -> None:
    alert = ALERTS[name]
    assert alert["labels"]["severity"] in {"critical", "warning"}
    assert alert["annotations"].keys() == {"summary", "description", "runbook_url"}
    page = ROOT / alert["annotations"]["runbook_url"]
    assert page == RUNBOOKS / f"{name}.md"
    text = page.read_text(encoding="utf-8")
    assert text.startswith(f"# {name}\n## What it means\n")
    assert re.findall("^## (.+)$", text, re.MULTILINE)[1:] == ["How to see why", "What to do"]


def test_every_runbook_is_that_of_an_alert_and_leads_to_others_that_there_are() -> None:
    pages = {page.stem: page.read_text(encoding="utf-8") for page in RUNBOOKS.glob("*.md")}
    assert pages.keys() == ALERTS.keys()
    links = {link for text in pages.values() for link in re.findall(r"\((\w+)\.md\)", text)}
    assert links <= pages.keys()


def test_every_alert_has_a_unit_test_of_its_name() -> None:
    tests = yaml.safe_load(TESTS.read_text(encoding="utf-8"))["tests"]
    fired = {
        sample["labels"]
        for test in tests
        for asked in test["promql_expr_test"]
        for sample in asked["exp_samples"]
    }
    assert fired == {f'{{alertname="{name}"}}' for name in ALERTS}


def test_rules_are_what_prometheus_reads() -> None:
    checked = promtool("check", "rules", RULES)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert f"{len(RULED)} rules found" in checked.stdout


@pytest.mark.slow
def test_each_alert_fires_in_its_fault_and_only_then() -> None:
    """`make check` asks the same, with the same program."""
    tested = promtool("test", "rules", TESTS)
    assert tested.returncode == 0, tested.stdout + tested.stderr


@pytest.mark.parametrize("broken", ["vector(0) > 0", "vector(1)"], ids=["never", "always"])
@pytest.mark.parametrize(
    "name", quickly(1, ["KubeSyncDown", "KubeSyncRivals", "KubeSyncAdmissionOpen"])
)
def test_unit_tests_notice_an_alert_that_fires_never_or_always(
    tmp_path: Path, name: str, broken: str
) -> None:
    rules = yaml.safe_load(RULES.read_text(encoding="utf-8"))
    for rule in (rule for group in rules["groups"] for rule in group["rules"]):
        if rule.get("alert") == name:
            rule["expr"] = broken
    tests = yaml.safe_load(TESTS.read_text(encoding="utf-8"))
    tests["tests"] = [test for test in tests["tests"] if test["name"] == name]
    for file, content in ((RULES.name, rules), (TESTS.name, tests)):
        (tmp_path / file).write_text(yaml.safe_dump(content), encoding="utf-8")
    tested = promtool("test", "rules", tmp_path / TESTS.name)
    assert tested.returncode == 1
    assert f'alertname="{name}"' in tested.stdout + tested.stderr
