"""What is printed of a run, for people, for programs and for CI."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from dataclasses import replace
from typing import Any

import pytest

from kube_sync.decisions.decision import Decision
from kube_sync.decisions.evaluator import Outcome
from kube_sync.decisions.explaining import Rule
from kube_sync.inspect.scenarios.comparing import Difference
from kube_sync.inspect.scenarios.junit import as_junit
from kube_sync.inspect.scenarios.placement import Placed
from kube_sync.inspect.scenarios.report import Paint, as_json, as_text
from kube_sync.inspect.scenarios.results import (
    BROKEN,
    FAILED,
    PASSED,
    CaseResult,
    FileResult,
    Run,
)
from kube_sync.inspect.scenarios.sarif import findings
from kube_sync.inspect.scenarios.scenario import Case, Expectation
from kube_sync.inspect.scenarios.strict_yaml import Problem
from kube_sync.objects import ObjectKey

FILE = "policies/eu.scenario.yaml"
CASE = Case(
    "web runs in the EU",
    9,
    "replicasets",
    ObjectKey("shop", "web"),
    {},
    frozenset({"c1", "c2"}),
    Expectation({"c1": {}}),
)
DECIDED = Outcome("u", Decision({"p": "v"}))
PASS = CaseResult(CASE, "passed", 0.25, DECIDED, Placed({"c1": {"weight": 1}}))
FAIL = CaseResult(
    replace(CASE, name="bank runs in the EU", row=14),
    "failed",
    0.5,
    DECIDED,
    Placed({"c2": {"weight": 3}}),
    (
        Difference("cluster", "c1", "placed", "not placed", "it is full"),
        Difference("cluster", "c2", "not placed", "weight 3"),
    ),
    (
        Rule("policies/eu.rego", 6, "a.b", applied=True, text="annotations[key] := value if {"),
        Rule("policies/eu.rego", 12, "a.c", applied=False, text="errors contains message if {"),
    ),
)
TIMED_OUT = CaseResult(replace(CASE, name="x", row=20), "broken", 5.0, why="OPA: timed out")
SKIPPED = CaseResult(replace(CASE, name="y", row=24), "skipped", why="another did not pass")
PROBLEM = Problem("b.scenario.yaml", 3, "cases", "there is no case, so nothing is tested")
ALL = Run(
    (
        FileResult(FILE, (), (PASS, FAIL, TIMED_OUT, SKIPPED)),
        FileResult("b.scenario.yaml", (PROBLEM,)),
    ),
    6.04,
    left_out=2,
)


def test_text_tells_of_what_does_not_pass_and_why() -> None:
    assert as_text(ALL, Paint()).splitlines() == [
        f"FAIL  {FILE}:14: bank runs in the EU (shop/web)",
        "      cluster c1",
        "        - placed",
        "        + not placed    the policy says: it is full",
        "      cluster c2",
        "        - not placed",
        "        + weight 3",
        "      by policies/eu.rego:6  annotations[key] := value if {",
        "      does not apply: policies/eu.rego:12  errors contains message if {",
        f"ERROR {FILE}:20: x (shop/web)",
        "      OPA: timed out",
        "ERROR b.scenario.yaml:3: cases: there is no case, so nothing is tested",
        "",
        "- is what was expected, + what was got",
        "",
        (
            "1 passed, 1 failed, 1 broken, 1 skipped, 1 file not run, 2 left out by --run"
            " (4 cases in 2 files, 6.0 s)"
        ),
    ]


def test_text_of_a_run_that_passes_is_one_line_unless_more_is_wanted() -> None:
    run = Run([FileResult(FILE, (), (PASS,))], 0.3)
    assert as_text(run, Paint()) == "1 passed (1 case in 1 file, 0.3 s)"
    assert as_text(run, Paint(), verbose=True).splitlines()[:2] == [
        f"PASS  {FILE}:9: web runs in the EU (shop/web)",
        "      placed on c1 (weight 1)",
    ]


def test_colours_say_nothing_that_the_text_does_not() -> None:
    colored = as_text(ALL, Paint(on=True))
    assert "\x1b[31mFAIL " in colored
    plain = colored
    for code in ("\x1b[31m", "\x1b[32m", "\x1b[33m", "\x1b[2m", "\x1b[0m"):
        plain = plain.replace(code, "")
    assert plain == as_text(ALL, Paint())


def test_nothing_that_a_policy_says_moves_the_cursor() -> None:
    evil = "\x1b[2J\r\nPASS"
    tried = replace(FAIL, differences=(Difference("error", evil, evil, evil, evil),), rules=())
    named = replace(tried, case=replace(CASE, name=evil))
    problem = replace(PROBLEM, message=evil)
    text = as_text(Run([FileResult(FILE, (problem,), (named,))], 1.0), Paint())
    assert "\x1b" not in text
    assert not any(line.startswith("PASS") for line in text.splitlines())


@pytest.mark.parametrize(
    ("files", "status"),
    [
        ([FileResult(FILE, (), (PASS, SKIPPED))], PASSED),
        ([FileResult(FILE, (), (PASS, FAIL))], FAILED),
        ([FileResult(FILE, (), (FAIL, TIMED_OUT))], BROKEN),
        ([FileResult(FILE, (), (FAIL,)), FileResult("b", (PROBLEM,))], BROKEN),
    ],
)
def test_status_is_the_worst_of_all(files: list[FileResult], status: int) -> None:
    assert Run(files, 1.0).status == status


def test_json_has_everything_of_each_case() -> None:
    found = json.loads(as_json(ALL))
    assert found["summary"] == {
        "cases": 4,
        "passed": 1,
        "failed": 1,
        "broken": 1,
        "skipped": 1,
        "files": 2,
        "files_not_run": 1,
        "left_out": 2,
        "seconds": 6.04,
        "status": 3,
    }
    assert found["files"][1]["problems"] == [
        {"file": "b.scenario.yaml", "row": 3, "key": "cases", "message": PROBLEM.message}
    ]
    passed, failed, broken, _ = found["files"][0]["cases"]
    assert failed == {
        "name": "bank runs in the EU",
        "row": 14,
        "resource": "replicasets",
        "namespace": "shop",
        "object": "web",
        "result": "failed",
        "seconds": 0.5,
        "why": "",
        "differences": [
            {
                "what": "cluster",
                "name": "c1",
                "expected": "placed",
                "got": "not placed",
                "note": "it is full",
            },
            {
                "what": "cluster",
                "name": "c2",
                "expected": "not placed",
                "got": "weight 3",
                "note": "",
            },
        ],
        "rules": [
            {
                "file": "policies/eu.rego",
                "row": 6,
                "name": "a.b",
                "text": "annotations[key] := value if {",
                "applied": True,
            },
            {
                "file": "policies/eu.rego",
                "row": 12,
                "name": "a.c",
                "text": "errors contains message if {",
                "applied": False,
            },
        ],
        "got": {
            "decision": {"annotations": {"p": "v"}, "errors": []},
            "failure": None,
            "clusters": {"c2": {"weight": 3}},
        },
    }
    assert passed["got"]["clusters"] == {"c1": {"weight": 1}}
    assert (broken["why"], broken["got"]) == ("OPA: timed out", None)


def suites(run: Run) -> Any:
    return ET.fromstring(as_junit(run))  # noqa: S314 - our own


def test_junit_has_a_suite_for_each_file_and_counts_that_add_up() -> None:
    root = suites(ALL)
    assert root.attrib == {
        "name": "kube-sync test",
        "tests": "5",
        "failures": "1",
        "errors": "2",
        "skipped": "1",
        "time": "6.040000",
    }
    first, second = root
    assert first.attrib == {
        "name": FILE,
        "tests": "4",
        "failures": "1",
        "errors": "1",
        "skipped": "1",
        "time": "5.750000",
    }
    assert [test.get("line") for test in root.iter("testcase")] == ["9", "14", "20", "24", "3"]
    assert (second.get("name"), second.get("tests"), second.get("errors")) == (
        "b.scenario.yaml",
        "1",
        "1",
    )
    for suite in root:
        assert int(suite.get("tests")) == len(suite.findall("testcase"))
        for counted, element in (("failures", "failure"), ("errors", "error")):
            assert int(suite.get(counted)) == len(suite.findall(f"testcase/{element}"))


def test_junit_tells_each_test_by_file_and_name_with_the_time_that_it_took() -> None:
    tests = suites(ALL).findall("testsuite/testcase")
    assert [(t.get("classname"), t.get("name"), t.get("time")) for t in tests] == [
        (FILE, "web runs in the EU", "0.250000"),
        (FILE, "bank runs in the EU", "0.500000"),
        (FILE, "x", "5.000000"),
        (FILE, "y", "0.000000"),
        ("b.scenario.yaml", "the file can be run", "0.000000"),
    ]
    assert {t.get("file") for t in tests} == {FILE, "b.scenario.yaml"}
    assert [[child.tag for child in t] for t in tests] == [
        [],
        ["failure"],
        ["error"],
        ["skipped"],
        ["error"],
    ]


def test_junit_says_the_whole_difference_in_the_text_and_the_first_in_the_message() -> None:
    failure = suites(ALL).find("testsuite/testcase/failure")
    assert failure.get("message") == (
        "cluster c1: expected placed, got not placed (and 1 more); placed on c2 (weight 3)"
    )
    assert failure.text.splitlines() == [
        f"{FILE}:14: bank runs in the EU (shop/web)",
        *as_text(ALL, Paint()).splitlines()[1:9],
    ]
    error = suites(ALL).findall("testsuite/testcase/error")[1]
    assert error.text == f"b.scenario.yaml:3: cases: {PROBLEM.message}"


def test_junit_says_once_that_there_is_no_decision() -> None:
    silent = replace(
        FAIL,
        outcome=Outcome("u"),
        placed=None,
        differences=(Difference("decision", "", "placed on c1", "nothing is decided"),),
    )
    failure = suites(Run([FileResult(FILE, (), (silent,))], 1.0)).find(".//failure")
    assert failure.get("message") == "decision: expected placed on c1, got nothing is decided"


def test_junit_holds_whatever_a_policy_says() -> None:
    evil = "a<b>&\"'\x00\x1b[0m]]>\n\ud7ff\ufffe"
    case = replace(CASE, name=evil)
    tried = CaseResult(case, "failed", 0.1, DECIDED, None, (Difference("error", "", evil, evil),))
    (test,) = suites(Run([FileResult(evil, (), (tried,))], 0.1)).findall("testsuite/testcase")
    cleaned = "a<b>&\"'\ufffd\ufffd[0m]]>\n\ud7ff\ufffd"
    assert (test.get("name"), test.get("classname")) == (cleaned, cleaned)
    assert cleaned in test.find("failure").get("message")


def test_junit_of_a_run_that_passes_has_no_failure() -> None:
    text = as_junit(Run([FileResult(FILE, (), (PASS,))], 0.3))
    assert text.startswith('<?xml version="1.0" encoding="UTF-8"?>\n<testsuites ')
    assert "<failure" not in text
    assert "<error" not in text


def test_sarif_has_each_case_that_does_not_pass_at_its_row() -> None:
    run = Run(
        [FileResult(FILE, (), (PASS, FAIL, TIMED_OUT, SKIPPED)), FileResult("b", (PROBLEM,))], 1
    )
    assert [(one.rule, one.file, one.row) for one in findings(run)] == [
        ("test/failed", FILE, 14),
        ("test/broken", FILE, 20),
        ("test/invalid", "b.scenario.yaml", 3),
    ]
    failed, broken, invalid = (one.message for one in findings(run))
    assert failed == (
        "bank runs in the EU (shop/web): cluster c1: expected placed, got not placed;"
        " cluster c2: expected not placed, got weight 3 (by policies/eu.rego:6)"
    )
    assert broken == "x (shop/web): OPA: timed out"
    assert invalid == "cases: there is no case, so nothing is tested"
