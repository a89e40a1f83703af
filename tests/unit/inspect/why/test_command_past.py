"""`kube-sync why --at` as it is typed: statuses, what goes where, and what is missing for rules."""

from __future__ import annotations

import json
import re
from pathlib import Path

import msgspec
import pytest

from kube_sync.config import CONFIG_ENV
from kube_sync.ledger.entries import Entry, text, text_of
from kube_sync.ledger.store import Store
from tests.fakes.ledgers import START, decided, filled, gone
from tests.unit.commandline import status

WHY = ("why", "replicaset/web", "-n", "shop")


@pytest.fixture(autouse=True)
def _no_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(CONFIG_ENV, raising=False)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.db"


def at(path: Path, time: str = "1970-01-12T13:46:41Z") -> tuple[str, ...]:
    return ("--at", time, "--ledger", str(path))


def test_what_stood_is_printed_and_nobody_is_asked(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    filled(path, 3)
    assert status(*WHY, *at(path)) == 0
    said = capsys.readouterr()
    assert said.err == ""
    assert said.out == (
        "replicasets.v1.apps shop/web at 1970-01-12T13:46:41.000Z\n"
        "  decided  clusters=c1\n"
        "  since    1970-01-12T13:46:41.000Z (row 2)\n"
        "  until    1970-01-12T13:46:42.000Z\n"
        "  before   clusters=c0\n"
        "  because  object\n"
        "  policy   p1\n"
        "  uid      uid-web\n"
        "\n"
        "nothing was written or held of it since then\n"
        "\n"
        "rules: not known: the ledger has no modules of policy p1\n"
    )


def test_ledger_of_the_configuration_is_read_where_none_is_named(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    filled(path, 1)
    config = tmp_path / "config.yaml"
    config.write_text(f"ledger:\n  path: {path}\n")
    assert status(*WHY, "--config", str(config), "--at", "2h", "-o", "json") == 0
    assert json.loads(capsys.readouterr().out)["status"] == "decided"


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ((*WHY, "--at", "2h"), "or name one by --ledger"),
        ((*WHY, "--ledger", "l.db"), "--ledger: goes with --at"),
        ((*WHY, *at(Path("/nowhere"))), "/nowhere: there is no ledger"),
        ((*WHY, *at(Path("/nowhere"), "today")), 'TIME: "today" is none, as 2026-11-17T10'),
        ((*WHY, *at(Path("/nowhere"), "9999-01-01")), "--at: 9999-01-01 is yet to come"),
        (
            (*WHY, *at(Path("/nowhere")), "-f", "a.rego", "--from", "x"),
            "--at: tells what was decided, not what would be: it goes without -f, --from",
        ),
        (("why", "web/", *at(Path("/nowhere"))), "web/: expected TYPE/NAME, NAMESPACE/NAME or"),
        (("why-not", "replicaset/web", "--cluster", "c", "--at", "2h"), "unrecognized arguments"),
    ],
)
def test_past_that_cannot_be_told_is_one_line_that_says_why(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], complaint: str
) -> None:
    assert status(*arguments) == (3 if "no ledger" in complaint else 64)
    said = capsys.readouterr()
    assert said.out == ""
    assert complaint in said.err.splitlines()[-1]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ((*WHY, "--at", "1970-01-12T13:46:39Z"), "the ledger begins at 1970-01-12T13:46:40.000Z"),
        (("why", "replicaset/nobody", "-n", "shop", "--at", "2h"), "nothing is recorded of repl"),
        (("why", "deployment/web", "-n", "shop", "--at", "2h"), "of that name there is replica"),
    ],
)
def test_ledger_that_does_not_know_says_what_it_knows(
    path: Path,
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
    complaint: str,
) -> None:
    filled(path, 1)
    assert status(*arguments, "--ledger", str(path)) == 3
    said = capsys.readouterr()
    assert said.out == ""
    assert complaint in said.err


def with_policy(path: Path, *, also_input: bool = False) -> None:
    store, source, body = Store(path), text(b"package a\n"), text(b'{"kind":"ReplicaSet"}')
    listed = text_of({"a.rego": source.digest})
    entry, texts = decided("c1")
    if also_input:
        entry = msgspec.structs.replace(entry, input=body.digest)
    policy = Entry(kind="policy", policy="p1", new=listed.digest)
    store.append([(policy, [listed, source]), (entry, [*texts, body])], START)


def rules(path: Path, capsys: pytest.CaptureFixture[str]) -> str:
    assert status(*WHY, *at(path)) == 0
    found = re.search(r"rules: (.*)", capsys.readouterr().out)
    return "" if found is None else found[1]


def test_rules_are_not_guessed_without_what_was_read(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with_policy(path)
    assert rules(path, capsys) == (
        "not known: what was read of the object is not recorded with row 2"
    )


def test_rules_are_not_known_without_an_opa_and_the_rest_is_told(
    path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with_policy(path, also_input=True)
    assert rules(path, capsys).startswith('not known: opa.binary: there is no program "opa"')


def test_what_no_rule_made_has_no_rules(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = filled(path, 1)
    entry, texts = decided("c0", status="failed", note="conflict")
    store.append([(entry, texts)], START + 1)
    assert rules(path, capsys) == "not known: none made it, it is what stood before"
    store.append([gone()], START + 2)
    assert status(*WHY, *at(path, "2h")) == 0
    assert "rules" not in capsys.readouterr().out
