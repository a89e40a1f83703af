"""Exit statuses, which are what CI goes by: 2 says that something moves, and nothing else does."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import structlog

from kube_sync.config import CONFIG_ENV
from kube_sync.errors import Broken, Retriable
from kube_sync.inspect.plan import command
from kube_sync.policykinds.printing import Answer
from tests.unit.commandline import status

PLAN = ("plan", "--remove-cluster", "c2")


@pytest.fixture(autouse=True)
def _no_configuration(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv(CONFIG_ENV, raising=False)
    yield
    structlog.reset_defaults()  # logs go to what standard error was while a test ran


@pytest.mark.parametrize(
    "arguments",
    [
        ("plan",),
        ("plan", "--bogus"),
        (*PLAN, "-o", "poem"),
        (*PLAN, "--config", "/gone"),
        (*PLAN, "--from", "/gone"),
    ],
)
def test_plan_that_was_asked_for_wrongly_is_none(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...]
) -> None:
    assert status(*arguments) == 64
    said = capsys.readouterr()
    assert (said.out, bool(said.err)) == ("", True)


@pytest.mark.parametrize("number", [0, 2, 3])
def test_plan_is_printed_and_its_status_is_that_of_the_command(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    async def run(*_: object) -> Answer:
        return Answer("a plan", number)

    monkeypatch.setattr(command, "run", run)
    assert status(*PLAN) == number
    assert capsys.readouterr().out == "a plan\n"


@pytest.mark.parametrize("waits", [True, False])
def test_progress_is_for_who_waits_at_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *, waits: bool
) -> None:
    """A job keeps what is printed, and shows it in the comment on a pull request."""

    async def run(_: object, __: object, report: Callable[[str], None]) -> Answer:
        report("now: 200 of 300 classes …")
        return Answer("a plan", 0)

    monkeypatch.setattr(command, "run", run)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: waits)
    assert status(*PLAN) == 0
    assert capsys.readouterr().err == "kube-sync: now: 200 of 300 classes …\n" * waits


def test_everything_that_is_wrong_is_a_line_of_its_own(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run(*_: object) -> Answer:
        raise Broken(["a.rego:3: no", "b.rego:4: no"])

    monkeypatch.setattr(command, "run", run)
    assert status(*PLAN) == 3
    assert capsys.readouterr() == ("", "kube-sync: a.rego:3: no\nkube-sync: b.rego:4: no\n")


def test_plan_that_is_interrupted_says_nothing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run(*_: object) -> Answer:
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "run", run)
    assert status(*PLAN) == 130
    assert capsys.readouterr() == ("", "")


def test_export_that_fails_prints_nothing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def export(*_: object) -> None:
        reason = "the API server does not answer"
        raise Retriable(reason)

    monkeypatch.setattr(command, "export", export)
    assert status("export") == 1
    assert capsys.readouterr() == ("", "kube-sync: the API server does not answer\n")
    assert status("export", "--config", "/gone") == 64


def test_help_teaches_with_examples_and_says_what_each_status_means(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert (status("plan", "--help"), status("export", "--help")) == (0, 0)
    said = capsys.readouterr().out
    assert "kube-sync plan --from fleet.jsonl" in said
    assert "exit status: 0 if nothing changes; 2 if" in said


def test_documented_statuses_are_those_of_the_program() -> None:
    page = Path(__file__).parents[4].joinpath("docs", "plan.md").read_text(encoding="utf-8")
    assert [
        line[2] for line in page.splitlines() if line.startswith(("| 0 |", "| 2 |", "| 3 |"))
    ] == [
        "0",
        "2",
        "3",
    ]
