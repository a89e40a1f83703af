from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from kube_sync.decisions.input_reader import Basis
from kube_sync.ledger.bases import collection_of, state_of, text_of_basis
from kube_sync.ledger.entries import Entry, Text, text
from kube_sync.ledger.reading import reading
from kube_sync.ledger.store import Store
from tests.fakes.ledgers import START, decided, verified


def _basis(**collections: Any) -> Basis:
    bodies = {name: json.dumps(found).encode() for name, found in collections.items()}
    return Basis("kubernetes", "p/q", (("metadata", None),), {}, bodies, {}, {"x": "why"})


def _back(whole: Text) -> dict[str, Any]:
    bodies = {part.digest: part.body for part in whole.parts}
    named = state_of(whole.body).collections
    return {
        name: json.loads(collection_of(bodies[part] for part in parts))
        for name, parts in named.items()
    }


_names = st.text(min_size=1, max_size=4)
_objects = st.dictionaries(
    _names,
    st.fixed_dictionaries({"metadata": st.fixed_dictionaries({"name": _names})})
    | st.integers()
    | st.lists(st.integers())
    | st.dictionaries(_names, st.integers() | st.dictionaries(_names, st.none())),
)


@given(_objects, _objects)
def test_what_is_read_back_is_what_opa_held(clusters: Any, others: Any) -> None:
    assert _back(text_of_basis(_basis(clusters=clusters, others=others))) == {
        "clusters": clusters,
        "others": others,
    }


def _fleet(changed: str = "") -> dict[str, Any]:
    return {
        "fleet": {
            f"c{n}": {"metadata": {"name": f"c{n}"}, "spec": f"{changed}{n}" if n == 7 else n}
            for n in range(200)
        }
    }


def test_one_cluster_that_changes_costs_one_part() -> None:
    before, after = (text_of_basis(_basis(clusters=_fleet(was))) for was in ("", "x"))
    assert before.digest != after.digest
    assert len({part.digest for part in after.parts} - {part.digest for part in before.parts}) == 1
    assert len(after.parts) > 16


def test_digits_are_kept_as_they_are_spelt() -> None:
    basis = Basis("k", "p", (), {}, {"c": b'{"a":{"metadata":{"name":"a"},"n":1.10}}'}, {}, {})
    whole = text_of_basis(basis)
    assert b"1.10" in collection_of(part.body for part in whole.parts)


def _stood(on: str, whole: Text) -> tuple[Entry, list[Text]]:
    entry, texts = decided(on)
    body = text(b'{"kind":"ReplicaSet"}')
    found = msgspec.structs.replace(entry, data=whole.digest, input=body.digest)
    return found, [*texts, whole, body]


def test_data_lives_as_long_as_a_row_that_names_it(tmp_path: Path) -> None:
    path, whole = tmp_path / "ledger.db", text_of_basis(_basis(clusters=_fleet()))
    store = Store(path, chunk=4, window=2)
    store.append([_stood("c1", whole)], START)
    for number in range(40):  # what stands is said again when its row goes
        store.append([decided("c2", f"other-{number}")], START + 2 + number)
        store.prune(START + 2 + number, max_age=5, max_size=1 << 40)
    store.close()
    assert verified(path).faults == []
    with reading(path) as ledger:
        rows = [row.entry for row in ledger.history() if row.entry.data]
        assert [(row.name, row.cause[:8]) for row in rows] == [("web", "standing")]
        parts = [ledger.text(part.digest) for part in whole.parts]
        assert json.loads(collection_of(part or b"" for part in parts)) == _fleet()


def test_data_that_no_row_names_any_more_goes(tmp_path: Path) -> None:
    path, whole = tmp_path / "ledger.db", text_of_basis(_basis(clusters=_fleet()))
    store = Store(path, chunk=4, window=2)
    store.append([_stood("c1", whole), decided("c2")], START)
    for number in range(40):
        store.append([decided(f"c{number}")], START + 2 + number)
        store.prune(START + 2 + number, max_age=5, max_size=1 << 40)
    store.close()
    with reading(path) as ledger:
        assert [ledger.text(found.digest) for found in (whole, *whole.parts)] == [None] * (
            len(whole.parts) + 1
        )


def test_a_part_that_is_missing_is_found(tmp_path: Path) -> None:
    path, whole = tmp_path / "ledger.db", text_of_basis(_basis(clusters=_fleet()))
    store = Store(path)
    store.append([_stood("c1", whole)], START)
    store.close()
    with closing(sqlite3.connect(path)) as db:
        db.execute("DELETE FROM texts WHERE digest = ?", (whole.parts[0].digest,))
        db.commit()
    (fault,) = verified(path).faults
    assert fault.endswith(f"{whole.parts[0].digest} that it names is missing")
