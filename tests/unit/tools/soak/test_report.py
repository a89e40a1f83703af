"""A report says which promise was broken, and by what."""

from __future__ import annotations

import json
from dataclasses import asdict

import pytest

from tools.soak.memory import Sample
from tools.soak.report import FaultDone, Report
from tools.soak.run import Options
from tools.soak.tally import Tally
from tools.soak.windows import Denial, Window

OPTIONS = Options(1800, 300, 5, 10, 100.0, 7)
DENIAL = Denial("create shop/web", 30.0, 30.5, "403 admission webhook")


@pytest.fixture
def report() -> Report:
    """Half an hour in which all was well."""
    found = Report(asdict(OPTIONS), Tally(), begun=10.0, ended=1810.0, complete=True)
    found.tally.note("create", "x", found.tally.now, 201, "", possible=True)
    found.samples["opa"] = [Sample(at, 0, 50_000.0) for at in range(10, 1810, 5)]
    return found


def broken(report: Report) -> set[str]:
    return {name for name, kept in report.promises().items() if kept == "broken"}


def test_run_in_which_all_was_well_keeps_every_promise(report: Report) -> None:
    assert set(report.promises().values()) == {"kept"}
    assert not report.broken


def test_denial_in_a_window_breaks_nothing(report: Report) -> None:
    report.tally.windows.append(Window("OPA killed", 29.0, 31.0))
    report.tally.denials.append(DENIAL)
    assert not report.broken
    assert report.document()["denials"]["inside"] == [
        {"window": "OPA killed", "at": 29.0, "denials": 1}
    ]


def test_denial_outside_of_windows_is_broken_and_shown(report: Report) -> None:
    report.tally.denials.append(DENIAL)
    assert broken(report) == {"no denial without a cause"}
    assert "OUTSIDE 20.0 s: create shop/web" in report.text()


def test_divergence_is_broken_and_shown(report: Report) -> None:
    report.divergences.append("at the end: OPA holds the clusters: not so of 1")
    assert broken(report) == {"no divergence"}
    assert "DIVERGED at the end" in report.text()


def test_decision_that_was_not_made_is_a_missed_one(report: Report) -> None:
    report.divergences.append("at the end: decisions are in force: not so of 1")
    assert broken(report) == {"no divergence", "no missed decision"}


def test_request_that_should_have_been_denied_is_a_missed_decision(report: Report) -> None:
    report.tally.note("create", "x", 30.0, 201, "", possible=False)
    assert broken(report) == {"no missed decision"}


def test_object_that_vanished_is_broken(report: Report) -> None:
    report.tally.note("mark", "x", 30.0, 404, "not found", possible=True)
    assert broken(report) == {"nothing vanished"}


def test_memory_that_grows_is_broken(report: Report) -> None:
    report.samples["opa"] = [Sample(at, 0, 50_000.0 + 100 * at) for at in range(10, 1810, 5)]
    assert broken(report) == {"memory bounded"}


def test_memory_of_what_is_not_ours_is_told_and_not_judged(report: Report) -> None:
    report.samples["etcd"] = [Sample(at, 0, 50_000.0 + 100 * at) for at in range(10, 1810, 5)]
    assert not report.broken
    assert "etcd: " in report.text()


def test_interrupted_run_judges_only_what_it_saw_broken(report: Report) -> None:
    report.complete = False
    assert not report.broken
    assert report.promises()["no divergence"] == "not judged"
    report.tally.denials.append(DENIAL)
    assert broken(report) == {"no denial without a cause"}
    assert "INTERRUPTED" in report.text()


def test_fault_is_told_with_what_it_took_to_recover(report: Report) -> None:
    report.faults.append(FaultDone("OPA killed", 70.0, 72.0, 1.5, 4.0))
    report.faults.append(FaultDone("connections cut", 130.0, 130.0))
    assert "60 s: OPA killed, 2.0 s: 1.5 s, 4.0 s" in report.text()
    assert "120 s: connections cut, 0.0 s: NOT AGAIN" in report.text()


def test_document_is_json(report: Report) -> None:
    report.tally.windows.append(Window("OPA killed", 29.0, 31.0))
    document = json.loads(json.dumps(report.document()))
    assert document["changes"] == {"create": {"made": 1}}
    assert document["memory"]["opa"]["kb_per_minute"] == 0
