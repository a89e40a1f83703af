"""A policy is made active by who has agreed to what it moves."""

from __future__ import annotations

import io
import sys
from dataclasses import dataclass, field

import pytest

from kube_sync.config import CONFIG_ENV, Settings
from kube_sync.inspect.plan import promotion_preview as promotion
from kube_sync.objects import ObjectKey
from kube_sync.policies.staging.promotion import Considered, Request
from kube_sync.processes import staging
from tests.unit.commandline import status


class Typed(io.StringIO):
    """What a person types at a terminal."""

    def isatty(self) -> bool:
        return True


@dataclass
class Bench:
    """What was asked of the processes."""

    ran: list[Request] = field(default_factory=list)
    considered: Considered | None = field(
        default_factory=lambda: Considered(
            ObjectKey("p", "web"), ("p/web would be in force",), "m1"
        )
    )
    previewed: list[str] = field(default_factory=list)


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    bench = Bench()
    monkeypatch.delenv(CONFIG_ENV, raising=False)

    async def run_stage(_settings: Settings, request: Request) -> str:
        bench.ran.append(request)
        return "done"

    async def consider(_settings: Settings, _request: Request) -> Considered | None:
        return bench.considered

    async def preview(_settings: Settings, policy: ObjectKey, _complain: object) -> list[str]:
        bench.previewed.append(str(policy))
        return ["1 to move (of 3 workloads)"]

    monkeypatch.setattr(staging, "run_stage", run_stage)
    monkeypatch.setattr(staging, "consider", consider)
    monkeypatch.setattr(promotion, "preview", preview)
    return bench


def _types(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr(sys, "stdin", Typed(text))


@pytest.mark.parametrize("answer", ["y\n", "YES\n"])
def test_what_would_move_is_printed_and_then_asked_about(
    bench: Bench,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    answer: str,
) -> None:
    _types(monkeypatch, answer)
    assert status("stage", "web", "active") == 0
    shown = capsys.readouterr()
    assert shown.out.splitlines() == [
        "p/web would be in force",
        "1 to move (of 3 workloads)",
        "done",
    ]
    assert shown.err == "Make it active? [y/N] "
    assert [(request.step, request.seen) for request in bench.ran] == [("active", "m1")]


@pytest.mark.parametrize("answer", ["n\n", "\n", "", "yeah\n"])
def test_anything_but_yes_promotes_nothing(
    bench: Bench,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    answer: str,
) -> None:
    _types(monkeypatch, answer)
    assert status("stage", "web", "active") == 1
    assert "not promoted: nothing was written" in capsys.readouterr().err
    assert bench.ran == []


def test_where_nobody_can_be_asked_the_hint_is_yes(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    assert status("stage", "web", "active") == 64
    assert "there is no terminal: say --yes" in capsys.readouterr().err
    assert (bench.ran, bench.previewed) == ([], [])


@pytest.mark.parametrize("words", [("active", "--yes"), ("shadow",), ("revert",), ("candidate",)])
def test_yes_and_other_stages_ask_nothing(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    assert status("stage", "web", *words) == 0
    assert [request.seen for request in bench.ran] == [None]
    assert bench.previewed == []


def test_policy_that_is_in_force_already_is_not_asked_about(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.considered = None
    _types(monkeypatch, "")
    assert status("stage", "web", "active") == 0
    assert (bench.previewed, len(bench.ran)) == ([], 1)
