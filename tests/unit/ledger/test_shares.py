"""A namespace that produces more than its share of a ledger: it is summarised, and no other one."""

from __future__ import annotations

import json
import random
import sqlite3
from pathlib import Path

import pytest

from kube_sync.ledger.entries import Entry, GapNote, Text, text_of
from kube_sync.ledger.printing import state_lines
from kube_sync.ledger.reading import Object, reading
from kube_sync.ledger.shares import EVERY_SECONDS, Shares
from kube_sync.ledger.store import Store
from tests.fakes.ledgers import START, WEB, decided, verified

_AGE = 90 * 86_400.0
_Said = tuple[Entry, list[Text]]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.db"


def _in(namespace: str, on: str, name: str = "web", **said: str) -> tuple[Entry, list[Text]]:
    return decided(on, name, namespace=namespace, **said)


def _names(path: Path, namespace: str) -> list[str]:
    """Return where each object of a namespace was decided to be, in order."""
    with reading(path) as ledger:
        rows = [r for r in ledger.history(limit=1_000_000) if r.entry.namespace == namespace]
        bodies = [ledger.text(r.entry.new) or b"{}" for r in rows if r.entry.kind == "decision"]
        return [json.loads(body)["annotations"]["clusters"] for body in bodies]


def _summaries(path: Path, namespace: str) -> list[GapNote]:
    with reading(path) as ledger:
        rows = ledger.history(limit=1_000_000)
    found = [r.entry for r in rows if r.entry.kind == "summary"]
    assert {entry.namespace for entry in found} <= {namespace}
    return [GapNote(**json.loads(entry.note)) for entry in found]


def test_a_namespace_that_churns_a_hundred_times_more_leaves_the_history_of_others_whole(
    path: Path,
) -> None:
    """A ledger that takes the oldest away first would have lost most of it."""
    size, others = 3 << 20, [f"team-{n}" for n in range(9)]
    store = Store(path, Shares(size, _AGE), chunk=500, window=100)
    chance, quiet = random.Random(3), 0  # noqa: S311 - a test
    for turn in range(60):
        now = START + turn * 60.0
        group = [_in("noisy", f"{turn}-{n}", f"web-{chance.randrange(500)}") for n in range(450)]
        group += [_in(name, f"c{turn}") for name in others[: 1 + turn % 9]]
        quiet += 1 + turn % 9
        store.append(group, now)
        while store.prune(now, _AGE, size):
            pass
    recorded = [_names(path, name) for name in others]
    assert sum(map(len, recorded)) == quiet
    assert recorded[0] == [f"c{turn}" for turn in range(60)], "each of them, in order"
    assert store.used() <= size
    assert verified(path).faults == []
    notes = _summaries(path, "noisy")
    assert len(_names(path, "noisy")) + sum(note.entries for note in notes) > 60 * 400


def _over(path: Path) -> Store:
    """Return a ledger in which one of two namespaces has more than its share."""
    store = Store(path, Shares(100_000, 10_000.0))
    store.append([_in("quiet", "c0")], START)
    store.append([_in("noisy", "c0", f"old-{n}") for n in range(84)], START)
    return store


def test_what_stands_at_the_end_of_a_summary_is_recorded(path: Path) -> None:
    store = _over(path)
    for number in range(50):
        added = store.append(
            [_in("noisy", f"c{number}"), _in("quiet", f"c{number}")], START + number
        )
        assert [e.namespace for e in added if e.kind == "decision"] == ["quiet"] * (number > 0)
    assert store.summarise(START + 100) == []
    summary, stands = store.summarise(START + EVERY_SECONDS)
    assert (summary.kind, stands.name, stands.namespace) == ("summary", "web", "noisy")
    assert _names(path, "noisy")[-1] == "c49"
    begun, note = _summaries(path, "noisy")
    assert (begun.entries, begun.begin) == (0, START)
    assert (note.entries, note.begin, note.end) == (50, START, START + EVERY_SECONDS)
    assert note.reason.endswith("summarised are 50 decision")
    assert verified(path).faults == []
    assert store.mend().differences == ()


def test_at_a_time_that_is_summarised_it_is_said_that_details_are_not_known(path: Path) -> None:
    store = _over(path)
    store.append([_in("noisy", "c1", "old-1")], START + 10)
    store.append([_in("noisy", "c2", "old-1"), _in("quiet", "c2")], START + 20)
    store.summarise(START + 2 * EVERY_SECONDS)
    with reading(path) as ledger:
        noisy = Object(WEB.collection, "noisy", "old-1")
        told = [*state_lines(noisy, START + 15, ledger.at(noisy, START + 15), ledger.text)]
        assert any("more than its share" in line and "unknown" in line for line in told)
        later = ledger.at(noisy, START + 2 * EVERY_SECONDS)
        assert (later.row and later.row.entry.new) == _in("", "c2")[0].new
        assert later.gaps == ()
        quiet = ledger.at(Object(WEB.collection, "quiet", "web"), START + 25)
        assert quiet.gaps == (), "what is summarised is of another namespace"


def test_what_is_decided_again_as_it_was_recorded_is_not_written_later(path: Path) -> None:
    store = _over(path)
    store.append([_in("noisy", "c1", "old-1"), _in("noisy", "c0", "old-1")], START + 10)
    assert [entry.kind for entry in store.summarise(START + 2 * EVERY_SECONDS)] == ["summary"]


def _write(ref: str, name: str = "web", status: str = "applied", **said: str) -> list[_Said]:
    """Return what is reported of one write in namespace noisy: its intent and its outcome."""
    about = {"collection": WEB.collection, "namespace": "noisy", "name": name, "ref": ref}
    values = text_of({"label": ref})
    intent = Entry(kind="intent", new=values.digest, **about, **said)
    return [(intent, [values]), (Entry(kind="outcome", status=status, **about), [])]


def _writing(path: Path) -> Store:
    """Return a ledger in which a namespace has more than twice the share of each of five."""
    store = Store(path, Shares(100_000, 10_000.0))
    store.append([_in(f"quiet-{n}", "c0") for n in range(4)], START)
    store.append([one for n in range(35) for one in _write(f"old-{n}")], START)
    assert not _summaries(path, "noisy")
    return store


def _kinds(added: list[Entry]) -> list[tuple[str, str, str]]:
    return [(entry.kind, entry.name, entry.status) for entry in added]


def test_a_namespace_that_writes_a_hundred_times_more_leaves_the_history_of_others_whole(
    path: Path,
) -> None:
    size = 3 << 20
    store = Store(path, Shares(size, _AGE), chunk=500, window=100)
    others = [f"team-{n}" for n in range(9)]
    for turn in range(60):
        now = START + turn * 60.0
        group = [one for n in range(225) for one in _write(f"{turn}-{n}", f"web-{n}")]
        store.append([*group, *(_in(name, f"c{turn}") for name in others)], now)
        while store.prune(now, _AGE, size):
            pass
    store.summarise(START + 3_600.0, every=0.0)
    assert all(_names(path, name) == [f"c{turn}" for turn in range(60)] for name in others)
    found = verified(path)
    assert found.faults == []
    with reading(path) as ledger:
        rows = [row.entry.kind for row in ledger.history(limit=1_000_000)]
    assert found.summarised + rows.count("intent") + rows.count("outcome") >= 60 * 450


def test_writes_beyond_twice_the_share_are_summarised_with_the_last_outcome_of_each(
    path: Path,
) -> None:
    store = _writing(path)
    said = [one for n in range(20) for one in _write(f"r{n}", f"web-{n % 2}")]
    assert _kinds(store.append(said, START + 10)) == [("summary", "", "")]
    summary, *outcomes = store.summarise(START + 10 + EVERY_SECONDS)
    assert "summarised are 20 intent, 20 outcome" in summary.note
    assert _kinds(outcomes) == [("outcome", f"web-{n}", "applied") for n in range(2)]
    assert [entry.ref for entry in outcomes] == ["r18", "r19"]
    assert verified(path).faults == []
    assert verified(path).summarised == 40
    with reading(path) as ledger:
        rows = ledger.history(Object(WEB.collection, "noisy", "web-1"))
    assert [row.entry.kind for row in rows] == ["summary", "summary", "outcome"], "history says so"


def test_a_write_that_failed_or_was_approved_stays_whole(path: Path) -> None:
    store = _writing(path)
    failed = [one for n in range(5) for one in _write(f"f{n}", status="forbidden")]
    begun, *added = store.append(failed, START + 10)
    assert (begun.kind, [entry.ref for entry in added[::2]]) == (
        "summary",
        [f"f{n}" for n in range(5)],
    )
    assert [entry.kind for entry in added] == ["intent", "outcome"] * 5
    approved = _write("a", approved="moves-0")
    assert [entry.kind for entry in store.append(approved, START + 11)] == ["intent", "outcome"]
    assert store.append(_write("f0", status="forbidden"), START + 12) == [], "reported once more"


def test_failures_beyond_three_shares_are_counted_and_the_last_of_each_is_told(path: Path) -> None:
    store = _writing(path)
    for n in range(100):
        store.append(_write(f"f{n}", status="refused"), START + 10)
    summary, last = store.summarise(START + 10 + EVERY_SECONDS)
    assert "intent" in summary.note
    assert (last.ref, last.status) == ("f99", "refused")
    with reading(path) as ledger:
        refused = [row for row in ledger.history() if row.entry.status == "refused"]
    assert 10 < len(refused) < 20


def test_a_write_that_nobody_answered_is_recorded_whole(path: Path) -> None:
    """Such a one was sent by a remediator that ended: that is what is asked for afterwards."""
    store = _writing(path)
    store.append(_write("unknown")[:1], START + 10)
    store.append(_write("known"), START + 11)
    store.append(_write("known"), START + 12)
    added = store.summarise(START + 10 + EVERY_SECONDS)
    assert [(entry.kind, entry.ref) for entry in added[1:]] == [
        ("outcome", "known"),
        ("intent", "unknown"),
    ]
    assert "summarised are 1 intent, 1 outcome" in added[0].note, (
        "what is reported twice counts once"
    )


def test_a_write_whose_intent_is_recorded_has_its_outcome_recorded(path: Path) -> None:
    _writing(path)
    intent, outcome = _write("before")
    assert len(Store(path).append([intent], START + 10)) == 1
    store = Store(path, Shares(100_000, 10_000.0))
    store.mend()
    assert [entry.kind for entry in store.append([*_write("r"), outcome], START + 11)] == [
        "summary",
        "outcome",
    ]


def test_a_namespace_that_is_alone_has_all_of_the_ledger(path: Path) -> None:
    store = Store(path, Shares(5_000, 100.0))
    store.append([(Entry(kind="start"), [])], START)
    said = [_in("shop", f"c{n}") for n in range(100)]
    assert len(store.append(said, START)) == 100


def test_a_batch_that_fails_is_counted_once(path: Path) -> None:
    store = _over(path)
    bad: tuple[Entry, list[Text]] = Entry(kind="start", name=b"bytes"), []  # type: ignore[arg-type]
    for _ in range(5):
        with pytest.raises(sqlite3.Error):
            store.append([_in("noisy", "c1", "old-1"), bad], START + 10)
    store.append([_in("noisy", "c1", "old-1")], START + 10)
    assert store.summarise(START + 2 * EVERY_SECONDS)[0].kind == "summary"
    assert [note.entries for note in _summaries(path, "noisy")] == [0, 1]


def test_a_start_knows_what_each_namespace_holds(path: Path) -> None:
    """Or whoever has its share could have it again by every restart."""
    _over(path).close()
    store = Store(path, Shares(100_000, 10_000.0))
    store.mend()
    (begun,) = store.append([_in("noisy", "c1")], START + 10)
    assert begun.kind == "summary"


def test_a_large_object_counts_with_its_input(path: Path) -> None:
    store = Store(path, Shares(1 << 20, 10_000.0))
    store.append([_in("quiet", "c0")], START)
    for number in range(20):
        asked = text_of("x" * 40_000 + str(number))
        entry, texts = _in("noisy", f"c{number}", input=asked.digest)
        store.append([(entry, [*texts, asked])], START)
    assert len(_names(path, "noisy")) == 13, "half of it"
    store.summarise(START + 2 * EVERY_SECONDS)
    with reading(path) as ledger:
        assert ledger.history()[-1].entry.input == "", "what stands comes without it"


def test_who_has_more_than_its_share_gets_room_again_as_its_rows_go(path: Path) -> None:
    store = _over(path)
    store.append([_in("noisy", "c1")], START + 10)
    while store.prune(START + 1_000, 100, 1 << 40):
        pass
    store.append([_in("quiet", "c9")], START + 1_000)
    store.summarise(START + 1_000)
    with sqlite3.connect(path) as db:
        rows = "SELECT count(*) FROM records WHERE namespace = 'noisy' AND kind = 'decision'"
        assert db.execute(rows).fetchone() == (85,), "what stands, said again and anew"
