from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from kube_sync.decisions.input_reader import Basis
from kube_sync.ledger import texts as texts_module
from kube_sync.ledger.bases import text_of_basis
from kube_sync.ledger.database import opened
from kube_sync.ledger.entries import Entry, Text, text, text_of
from kube_sync.ledger.store import Store
from kube_sync.ledger.texts import Texts
from tests.fakes.ledgers import START


@pytest.fixture
def db(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    with closing(opened(tmp_path / "ledger.db")) as found:
        yield found


def _keeps(db: sqlite3.Connection) -> dict[str, int]:
    return dict(db.execute("SELECT digest, keep FROM texts").fetchall())


def _decided(body: Text) -> Entry:
    return Entry(kind="decision", new=body.digest)


def _state() -> Text:
    clusters = {"clusters": msgspec.json.encode({"fleet": {"c1": {"on": True}}})}
    return text_of_basis(Basis("kubernetes", "p", (), {}, clusters, {"clusters": None}, {}))


def test_text_is_needed_up_to_the_boundary_after_the_next(db: sqlite3.Connection) -> None:
    body, texts = text(b"a"), Texts(db, window=10)
    texts.keep(1, _decided(body), [body])
    assert _keeps(db) == {}
    texts.flush()
    assert _keeps(db) == {body.digest: 20}
    texts.keep(9, _decided(body), [body])
    texts.keep(10, _decided(body), [])
    texts.flush()
    assert _keeps(db) == {body.digest: 30}
    texts.prune(29)
    assert _keeps(db) == {body.digest: 30}
    texts.prune(30)
    assert _keeps(db) == {}


def test_text_of_an_older_row_is_not_needed_for_less(db: sqlite3.Connection) -> None:
    body = text(b"a")
    for seq in (15, 1):
        texts = Texts(db, window=10)
        texts.keep(seq, _decided(body), [body])
        texts.flush()
    assert _keeps(db) == {body.digest: 30}


def test_parts_of_a_state_are_needed_with_it(db: sqlite3.Connection) -> None:
    state, texts = _state(), Texts(db, window=10)
    texts.keep(1, Entry(kind="decision", data=state.digest), [state])
    texts.keep(12, Entry(kind="decision", data=state.digest), [])
    texts.keep(13, Entry(kind="decision", data="not there"), [])
    texts.flush()
    assert _keeps(db) == dict.fromkeys([state.digest, *(part.digest for part in state.parts)], 30)
    assert state.parts


def test_what_is_forgotten_is_written_again(db: sqlite3.Connection) -> None:
    body, texts = text(b"a"), Texts(db, window=10)
    texts.keep(1, _decided(body), [body])
    texts.forget()  # its transaction was undone
    texts.flush()
    assert _keeps(db) == {}
    texts.keep(1, _decided(body), [body])
    texts.flush()
    assert _keeps(db) == {body.digest: 20}


def test_no_more_is_remembered_than_makes_sense(
    db: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(texts_module, "_NOTED", 1)
    texts = Texts(db, window=10)
    bodies = [text(name) for name in (b"a", b"b", b"c", b"a")]
    for body in bodies:
        texts.keep(1, _decided(body), [body])
    texts.flush()
    assert _keeps(db) == {body.digest: 20 for body in bodies}


def test_only_texts_that_rows_name_are_left(tmp_path: Path) -> None:
    source, state, unused = text(b"package a"), _state(), text(b"unused")
    listed = text_of({"a": source.digest})
    policy = Entry(kind="policy", policy="p1", new=listed.digest)
    store = Store(tmp_path / "ledger.db")
    store.append(
        [
            (policy, [listed, source]),
            (Entry(kind="held", data=state.digest), [state, unused]),
        ],
        START,
    )
    store.close()
    needed = {one.digest for one in (listed, source, state, *state.parts)}
    with closing(opened(tmp_path / "ledger.db")) as db:
        texts = Texts(db, window=10)
        assert texts.drop_unneeded() == 1
        assert _keeps(db).keys() == needed
        texts.keep_policies(20_000)
        texts.flush()
        kept = {digest for digest, keep in _keeps(db).items() if keep > 20_000}
        assert kept == {listed.digest, source.digest}
