"""Exit statuses of `why`, `why-not` and `what-if`, and what goes where."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from kube_sync.cli.names import kinds_of
from kube_sync.config import CONFIG_ENV, Decisions, Settings
from kube_sync.errors import Broken, Retriable
from kube_sync.inspect.plan import command as planning
from kube_sync.inspect.plan.request import Request
from kube_sync.inspect.why import command
from kube_sync.inspect.why.command import Question
from kube_sync.kube.naming import reference
from kube_sync.policykinds.printing import Answer
from tests.unit.commandline import status

WHY = ("why", "replicaset/web", "-n", "shop")
WHY_NOT = ("why-not", "replicaset/web", "c2")

WEB, KINDS = reference("replicaset/web"), kinds_of(Settings())


@pytest.fixture(autouse=True)
def _no_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(CONFIG_ENV, raising=False)


@pytest.mark.parametrize(
    "arguments",
    [
        ("why",),
        ("why-not", "replicaset/web"),
        (*WHY, "--bogus"),
        (*WHY, "--cluster", "c2"),
        ("why", "rs"),
        ("why", "pods", "web"),
        (*WHY, "-o", "poem"),
        (*WHY, "--config", "/gone"),
        (*WHY, "--from", "/gone"),
        (*WHY, "--cluster-scoped", "nodes"),
        (*WHY_NOT, "--tries", "-1"),
        (*WHY_NOT, "--tries", "many"),
        ("what-if",),
        ("what-if", "c1.labels.a=b", "--from", "/gone"),
    ],
)
def test_question_that_cannot_be_answered_prints_nothing_but_why(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...]
) -> None:
    assert status(*arguments) == 64
    said = capsys.readouterr()
    assert (said.out, bool(said.err)) == ("", True)


def test_each_question_is_asked_as_it_was_put(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Question] = []

    async def run(question: Question, *_: object) -> Answer:
        asked.append(question)
        return Answer("because", 0)

    monkeypatch.setattr(command, "run", run)
    assert (status(*WHY, "-f", "a.rego"), status(*WHY_NOT, "--tries", "9", "-o", "json")) == (0, 0)
    assert asked == [
        Question(WEB[:1], "shop", world=Request(files=("a.rego",)), kinds=KINDS),
        Question(WEB, cluster="c2", tries=9, form="json", kinds=KINDS),
    ]
    assert capsys.readouterr().out == "because\n" * 2


def test_stream_is_read_for_traces_only_where_they_are_on_and_nothing_is_edited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    streams: list[Decisions | None] = []

    async def run(question: Question, *_: object) -> Answer:
        streams.append(question.stream)
        return Answer("because", 0)

    monkeypatch.setattr(command, "run", run)
    file = tmp_path / "kube-sync.yaml"
    file.write_text("observe: {tracing: {enabled: true}}", encoding="utf-8")
    assert status(*WHY) == status(*WHY, "--config", str(file)) == 0
    assert status(*WHY, "--config", str(file), "-f", "a.rego") == 0
    assert streams == [None, Decisions(), None]


def test_stream_that_cannot_be_reached_takes_nothing_else_from_the_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def reached(*_: object) -> AbstractContextManager[Settings]:
        reason = "no pod"
        raise Retriable(reason)

    async def run(question: Question, *_: object) -> Answer:
        assert question.stream is None
        return Answer("because", 0)

    monkeypatch.setattr(command, "run", run)
    monkeypatch.setattr("kube_sync.cli.why.reached", reached)
    file = tmp_path / "kube-sync.yaml"
    file.write_text("observe: {tracing: {enabled: true}}", encoding="utf-8")
    assert status(*WHY, "--config", str(file)) == 0
    assert capsys.readouterr() == ("because\n", "kube-sync: the trace is not known: no pod\n")


def test_what_is_wrong_is_said_line_by_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run(*_: object) -> Answer:
        raise Broken(["a.rego:3: no", "b.rego:4: no"])

    monkeypatch.setattr(command, "run", run)
    assert status(*WHY) == 3
    assert capsys.readouterr() == ("", "kube-sync: a.rego:3: no\nkube-sync: b.rego:4: no\n")


def test_what_if_is_a_plan_of_nothing_but_attributes_of_clusters(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Request] = []

    async def run(request: Request, _settings: Settings, _say: object) -> Answer:
        asked.append(request)
        return Answer("two move", 2)

    monkeypatch.setattr(planning, "run", run)
    fields = ("c1.labels.a=b", "c2.labels.a-")
    assert status("what-if", *fields, "--from", "fleet", "-o", "json", "--all") == 2
    assert asked == [Request(fields=fields, exported="fleet", form="json", every=True)]
    assert capsys.readouterr().out == "two move\n"


def test_help_teaches_with_examples_and_says_what_each_status_means(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name in ("why", "why-not", "what-if"):
        assert status(name, "--help") == 0
        said = capsys.readouterr().out
        assert f"kube-sync {name} " in said.partition("examples:")[2]
        assert "exit status: 0 if " in said
