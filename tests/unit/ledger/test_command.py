from __future__ import annotations

import json
import sqlite3
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest
import yaml

from kube_sync.cli.history import moment
from kube_sync.ledger.entries import Entry, Text, text_of
from kube_sync.ledger.store import Store
from tests.fakes.ledgers import START, WEB, decided, filled, gone, verified
from tests.unit.commandline import status


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBE_SYNC_CONFIG", "")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.db"


class Said:
    """One command in this process: its exit status and what it printed."""

    def __init__(self, capsys: pytest.CaptureFixture[str], *arguments: str) -> None:
        self.status = status(*arguments)
        self.out, self.err = capsys.readouterr()


def _placed(*clusters: str, **said: str) -> tuple[Entry, list[Text]]:
    value = json.dumps({"clusters": {name: {} for name in clusters}})
    body = text_of({"annotations": {"federation.kubernetes.io/replica-set-preferences": value}})
    entry, _ = decided("", **said)
    return msgspec.structs.replace(entry, new=body.digest), [body]


def _lived(path: Path) -> None:
    """Record the story of one object."""
    store = Store(path)
    source = text_of("x")
    modules = text_of({"a.rego": source.digest})
    policy = Entry(kind="policy", policy="p1", new=modules.digest, note="1 modules")
    store.append([(policy, [modules, source]), _placed("c1", cause="load")], START)
    store.append([_placed("c2", cause="data: clusters fleet/c1")], START + 60)
    outcome = Entry(
        kind="outcome",
        collection=WEB.collection,
        namespace="shop",
        name="web",
        status="applied",
        approved="moves-1",
        ref="r",
    )
    store.append([(outcome, [])], START + 61)
    store.append([gone()], START + 120)


_MOVED = (
    "1970-01-12T13:47:40.000Z  decision   shop/web  c1 -> c2  (data: clusters fleet/c1; policy p1)"
)


def test_history_tells_the_story_of_an_object(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _lived(path)
    said = Said(capsys, "history", "replicaset/web", "-n", "shop", "--file", str(path))
    assert (said.status, said.err) == (0, "")
    assert said.out.splitlines() == [
        "1970-01-12T13:46:40.000Z  decision   shop/web  - -> c1  (load; policy p1)",
        _MOVED,
        "1970-01-12T13:47:41.000Z  outcome    shop/web  applied; approved: moves-1",
        "1970-01-12T13:48:40.000Z  gone       shop/web  c2 -> gone",
    ]


def test_history_of_all_is_cut_to_the_newest_and_says_so(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _lived(path)
    said = Said(capsys, "history", "--limit", "2", "-o", "json", "--file", str(path))
    lines = [json.loads(line) for line in said.out.splitlines()]
    assert [line["kind"] for line in lines] == ["outcome", "gone"]
    assert "federation.kubernetes.io/replica-set-preferences" in lines[1]["old"]["annotations"]
    assert said.err == "kube-sync: the newest 2 only: --limit for more\n"


def test_history_prints_names_that_other_commands_take(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _lived(path)
    names = ["history", "-o", "name", "--file", str(path)]
    assert Said(capsys, *names).out == "replicasets.v1.apps/shop/web\n"
    assert Said(capsys, *names, "-n", "shop").out == "replicasets.v1.apps/web\n"
    at = ["replicaset/web", "-n", "shop", "--at", "1970-01-12T13:48:00Z"]
    (named,) = Said(capsys, *names, *at).out.split()
    of_it = Said(capsys, "history", named, "-n", "shop", "--file", str(path))
    assert len(of_it.out.splitlines()) == 4


def test_history_is_yaml_or_wide_too(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _lived(path)
    history = ["history", "rs/web", "-n", "shop", "--file", str(path), "-o"]
    documents = [*yaml.safe_load_all(Said(capsys, *history, "yaml").out)]
    lines = Said(capsys, *history, "json").out.splitlines()
    assert documents == [json.loads(line) for line in lines]
    moved = Said(capsys, *history, "wide").out.splitlines()[1]
    assert moved == f"{_MOVED}  [row 3; replicasets.v1.apps; uid uid-web; policy p1]"
    at = ["--at", "1970-01-12T13:48:00Z"]
    assert yaml.safe_load(Said(capsys, *history, "yaml", *at).out)["row"]["uid"] == "uid-web"
    assert Said(capsys, *history, "wide", *at).out == Said(capsys, *history, "text", *at).out


def test_history_at_a_time_tells_what_stood_and_why(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _lived(path)
    at = ["history", "replicaset/web", "-n", "shop", "--file", str(path), "--at"]
    said = Said(capsys, *at, "1970-01-12T13:48:00Z")
    assert said.out.splitlines() == [
        "replicasets.v1.apps shop/web at 1970-01-12T13:48:00.000Z",
        "  decided   c2, since 1970-01-12T13:47:40.000Z (row 3)",
        "  policy    p1",
        "  because   data: clusters fleet/c1",
        "  before    c1",
        "  uid       uid-web",
        "  written   shop/web  applied; approved: moves-1 at 1970-01-12T13:47:41.000Z",
    ]
    said = Said(capsys, *at, "1970-01-12T13:47:00", "-o", "json")
    found = json.loads(said.out)
    assert found["row"]["cause"] == "load"
    assert found["modules"] == {"a.rego": '"x"'}
    assert "gone" in Said(capsys, *at, "2026-01-01").out
    said = Said(capsys, *at, "1970-01-01")
    assert (said.status, said.out) == (1, "")
    assert "the ledger begins at 1970-01-12T13:46:4" in said.err


def test_what_stands_since_before_the_oldest_row_says_since_when(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = Store(path, chunk=3, window=10)
    store.append([_placed("c9", name="old")], START)
    for number in range(6):
        store.append([decided(f"c{number}")], START + number + 1)
    assert store.prune(START + 100, 98, 1 << 40)
    at = ["history", "replicaset/old", "-n", "shop", "--file", str(path), "--at", "2026-01-01"]
    assert "decided   c9, since 1970-01-12T13:46:40.000Z" in Said(capsys, *at).out
    at[-1] = "1970-01-12T13:47:00Z"
    said = Said(capsys, *at)
    assert "decided   c9, since 1970-01-12T13:46:40.000Z" in said.out
    assert "before" not in said.out
    document = json.loads(Said(capsys, *at, "-o", "json").out)
    assert (document["row"]["old"], document["after"]) == (document["row"]["new"], None)
    at[-1] = "1970-01-12T13:46:00Z"
    assert "the ledger begins at" in Said(capsys, *at).err, "it was not decided yet"


def test_what_an_annotation_or_a_policy_says_steers_no_terminal(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    evil = "\x1b]0;owned\x07\x9b2J"
    store = Store(path)
    store.append([decided(evil), decided("c1", status="failed", note=f"eval: {evil}")], START)
    history = ("history", "--file", str(path))
    assert not {"\x1b", "\x9b", "\x07"} & set(Said(capsys, *history).out)
    out = Said(capsys, *history, "-o", "json").out
    assert not {"\x1b", "\x9b", "\x07"} & set(out)
    rows = [json.loads(line) for line in out.splitlines()]
    assert rows[0]["new"]["annotations"]["clusters"] == evil, "JSON says the same"
    assert rows[1]["note"] == f"eval: {evil}"


def test_verify_tells_the_head_and_then_the_row_that_was_tampered_with(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    filled(path, 10)
    verify = ("verify", "--offline", "--file", str(path))
    said = Said(capsys, *verify)
    head = verified(path).head
    assert said.out == f"10 rows, 1 to 10: each is what was written\nhead {head}\n"
    said = Said(capsys, *verify, "--require-head", "--head", head)
    assert (said.status, "row 10 is the one that was noted" in said.out) == (0, True)
    said = Said(capsys, *verify, "--require-head")
    complaint = "kube-sync: --require-head: there was no head to compare with\n"
    assert (said.status, said.err) == (1, complaint)
    with sqlite3.connect(path) as db:
        db.execute("UPDATE records SET approved = 'nobody' WHERE seq = 4")
    said = Said(capsys, *verify)
    assert (said.status, said.out) == (1, "")
    assert said.err == "kube-sync: row 4: it is not what was written\n"


def test_verify_says_that_no_api_server_could_be_asked_and_is_no_failure(
    path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(path, 3)
    monkeypatch.setenv("KUBE_SYNC_KUBERNETES_KUBECONFIG", str(path.with_name("nowhere")))
    said = Said(capsys, "verify", "--file", str(path))
    assert said.status == 0
    assert "not compared with what may be noted elsewhere: kubernetes.kubeconfig: " in said.err


@pytest.mark.parametrize(
    ("arguments", "status", "complaint"),
    [
        (
            ["history"],
            64,
            "ledger.path: not set, so no ledger is kept (docs/ledger.md); or name one by --file",
        ),
        (
            ["verify"],
            64,
            "ledger.path: not set, so no ledger is kept (docs/ledger.md); or name one by --file",
        ),
        (["history", "--file", "/nowhere"], 1, "/nowhere: there is no ledger"),
        (["verify", "--file", "/nowhere"], 1, "/nowhere: there is no ledger"),
        (
            ["history", "a//b", "--file", "/a"],
            64,
            "a//b: expected TYPE/NAME, NAMESPACE/NAME or NAME, as in replicaset/web",
        ),
        (["history", "--at", "2h", "--file", "/a"], 64, "--at: name an object, as replicaset/web"),
        (
            ["history", "--since", "today", "--file", "/a"],
            64,
            'TIME: "today" is none, as 2026-11-17T10:00:00Z or 2h is',
        ),
        (["history", "--limit", "0", "--file", "/a"], 64, "--limit: 0 is less than 1"),
        (
            ["verify", "--head", "4", "--file", "/a"],
            64,
            '--head: "4" is not ROW:HASH as `kube-sync verify` prints it',
        ),
    ],
)
def test_what_cannot_be_asked_is_one_line(
    arguments: list[str], status: int, complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    said = Said(capsys, *arguments)
    assert (said.status, said.out, said.err) == (status, "", f"kube-sync: {complaint}\n")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30s", 999_970.0),
        ("2h", 992_800.0),
        ("1970-01-02", 86_400.0),
        ("1970-01-02T00:00:00Z", 86_400.0),
        ("1970-01-02T01:00:00+01:00", 86_400.0),
    ],
)
def test_a_time_is_what_it_says_in_utc(text: str, seconds: float) -> None:
    assert moment(text, START) == seconds
    assert datetime.fromtimestamp(START, UTC).year == 1970
