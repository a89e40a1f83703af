"""Exit statuses, which are what CI goes by: 1 says that a case fails, and nothing else does."""

from __future__ import annotations

from pathlib import Path

import pytest

from kube_sync.config import CONFIG_ENV
from kube_sync.errors import Broken
from kube_sync.inspect.scenarios import command
from kube_sync.observability import logs
from kube_sync.policykinds.printing import Answer
from tests.unit.commandline import status


@pytest.fixture(autouse=True)
def _no_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(CONFIG_ENV, raising=False)
    monkeypatch.setattr(logs, "configure_logs", lambda _: None)  # of the process, for good


@pytest.mark.parametrize(
    "arguments",
    [
        ("test",),
        ("test", ".", "--bogus"),
        ("test", ".", "-o", "poem"),
        ("test", ".", "--run", "("),
        ("test", ".", "--config", "/gone"),
        ("test", "/gone"),
    ],
)
def test_run_that_was_asked_for_wrongly_is_none(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...]
) -> None:
    assert status(*arguments) == 64
    said = capsys.readouterr()
    assert (said.out, bool(said.err)) == ("", True)


@pytest.mark.parametrize("number", [0, 1, 3])
def test_report_is_printed_and_its_status_is_that_of_the_command(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    async def run(*_: object, color: bool) -> Answer:
        return Answer(f"a report, colours: {color}", number)

    monkeypatch.setattr(command, "run", run)
    assert status("test", ".") == number
    assert capsys.readouterr().out == "a report, colours: False\n"


def test_everything_that_is_wrong_is_a_line_of_its_own(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run(*_: object, color: bool) -> Answer:
        raise Broken(["a.rego:3: no", f"b.rego:4: no {color}"])

    monkeypatch.setattr(command, "run", run)
    assert status("test", ".") == 3
    assert capsys.readouterr() == ("", "kube-sync: a.rego:3: no\nkube-sync: b.rego:4: no False\n")


def test_run_that_is_interrupted_says_nothing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run(*_: object, color: bool) -> Answer:
        raise KeyboardInterrupt(color)

    monkeypatch.setattr(command, "run", run)
    assert status("test", ".") == 130
    assert capsys.readouterr() == ("", "")


def test_help_and_page_say_what_each_status_means(capsys: pytest.CaptureFixture[str]) -> None:
    assert status("test", "--help") == 0
    assert "exit status: 0 if every case passes; 1 if one fails; 3 if" in capsys.readouterr().out
    page = Path(__file__).parents[4].joinpath("docs", "testing-policies.md")
    rows = page.read_text(encoding="utf-8").splitlines()
    assert [
        row[2] for row in rows if row[:2] == "| " and row[3:5] == " |" and row[2].isdigit()
    ] == [
        "0",
        "1",
        "3",
    ]
