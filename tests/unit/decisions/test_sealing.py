"""A note counts only where it is sealed, for its object and for what stands beside it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs

from kube_sync.decisions import sealing
from kube_sync.decisions.decision import PLACEMENT, REQUESTED
from kube_sync.decisions.sealing import Place, Seals
from kube_sync.errors import Misconfigured
from kube_sync.kube.collection import Item, ResourceVersion
from kube_sync.objects import GroupVersionResource, ObjectKey

GVR = GroupVersionResource("apps", "v1", "replicasets")
WEB = Place("apps", "replicasets", "shop", "web")
STORED = {PLACEMENT: "eu", "danger": "decided", "other": "1"}
REQUESTS = {PLACEMENT: None, "danger": "asked"}
FIRST, SECOND = "a" * 43, "b" * 43


def keyed(folder: Path, *keys: str) -> Seals:
    file = folder / "-".join(key[0] for key in keys)
    file.write_text("\n".join(keys), encoding="utf-8")
    return Seals(str(file))


def noted(seals: Seals, place: Place = WEB) -> dict[str, str]:
    return {**STORED, REQUESTED: seals.sealed_note(REQUESTS, STORED, place)}


def item(annotations: dict[str, str] | None, **metadata: Any) -> Item:
    found = {"name": "web", "namespace": "shop", "annotations": annotations, **metadata}
    body = msgspec.json.encode({"kind": "ReplicaSet", "metadata": found, "spec": {"replicas": 1}})
    return Item(ObjectKey("shop", "web"), "u", ResourceVersion("1"), body)


@pytest.fixture
def seals(tmp_path: Path) -> Seals:
    return keyed(tmp_path, FIRST)


def test_a_note_that_was_sealed_is_proven_and_says_what_was_asked_for(seals: Seals) -> None:
    sealed = noted(seals)
    assert seals.has_valid_seal(sealed, WEB)
    note = json.loads(sealed[REQUESTED])
    assert note.pop(REQUESTED)
    assert note == REQUESTS


@pytest.mark.parametrize(
    "place",
    [
        Place("apps", "replicasets", "shop", "other"),
        Place("apps", "replicasets", "depot", "web"),
        Place("apps", "deployments", "shop", "web"),
        Place("extensions", "replicasets", "shop", "web"),
    ],
)
def test_a_note_of_another_object_is_not_proven(seals: Seals, place: Place) -> None:
    assert not seals.has_valid_seal(noted(seals), place)


@pytest.mark.parametrize(
    "change", [{PLACEMENT: "moon"}, {"danger": "true"}, {PLACEMENT: None}, {"danger": None}]
)
def test_a_note_beside_other_values_than_it_was_written_with_is_not_proven(
    seals: Seals, change: dict[str, str | None]
) -> None:
    changed = {k: v for k, v in (noted(seals) | change).items() if v is not None}
    assert not seals.has_valid_seal(changed, WEB)
    assert seals.has_valid_seal(noted(seals) | {"other": "2"}, WEB)


def test_a_note_with_other_requests_is_not_proven(seals: Seals) -> None:
    note = json.loads(noted(seals)[REQUESTED])
    for change in ({"danger": None}, {PLACEMENT: "moon"}, {"more": "1"}):
        assert not seals.has_valid_seal({**STORED, REQUESTED: json.dumps(note | change)}, WEB)


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"a":1}', f'{{"{REQUESTED}":null}}', "ü"])
def test_what_is_no_sealed_note_is_not_proven(seals: Seals, text: str) -> None:
    assert not seals.has_valid_seal({**STORED, REQUESTED: text}, WEB)
    assert not seals.has_valid_seal(STORED, WEB)
    assert not seals.has_valid_seal({**STORED, REQUESTED: f'{{"{REQUESTED}":"ü"}}'}, WEB)


def test_with_several_keys_the_first_seals_and_each_proves(tmp_path: Path) -> None:
    old, both = keyed(tmp_path, FIRST), keyed(tmp_path, SECOND, FIRST)
    assert both.has_valid_seal(noted(old), WEB)
    assert not old.has_valid_seal(noted(both), WEB)
    assert not keyed(tmp_path, SECOND).has_valid_seal(noted(old), WEB)


def test_a_note_that_proves_the_same_is_kept_as_it_is(tmp_path: Path) -> None:
    """Or each new key would be a write of every object."""
    text = noted(keyed(tmp_path, FIRST))[REQUESTED]
    both = keyed(tmp_path, SECOND, FIRST)
    assert both.sealed_note(REQUESTS, STORED, WEB, text) == text
    assert both.sealed_note({"danger": None}, STORED, WEB, text) != text
    assert both.sealed_note(REQUESTS, {**STORED, PLACEMENT: "us"}, WEB, text) != text


def test_a_generated_name_is_proven_by_what_it_was_generated_from(seals: Seals) -> None:
    sealed = noted(seals, Place("apps", "replicasets", "shop", "", "web-"))
    assert seals.has_valid_seal(sealed, Place("apps", "replicasets", "shop", "web-x1", "web-"))
    assert not seals.has_valid_seal(sealed, Place("apps", "replicasets", "shop", "web-x1", "we"))
    assert not seals.has_valid_seal(sealed, Place("apps", "replicasets", "shop", "db", "web-"))
    assert not seals.has_valid_seal(sealed, Place("apps", "replicasets", "shop", "web-x1"))
    named = noted(seals, Place("apps", "replicasets", "shop", "web-x1", "web-"))
    assert seals.has_valid_seal(named, Place("apps", "replicasets", "shop", "web-x1"))


def test_without_a_key_notes_are_not_sealed_and_all_count() -> None:
    seals = Seals()
    assert json.loads(noted(seals)[REQUESTED]) == REQUESTS
    found = item({REQUESTED: '{"danger":null}'})
    assert seals.without_unsealed_note(GVR, found) is found.body


def test_an_object_is_read_without_a_note_that_is_not_proven(seals: Seals) -> None:
    for found in (item(None), item(STORED), item(noted(seals))):
        assert seals.without_unsealed_note(GVR, found) is found.body
    forged = item({**STORED, REQUESTED: '{"danger":null}'})
    with capture_logs() as logs:
        bodies = [seals.without_unsealed_note(GVR, forged) for _ in range(2)]
    whole = json.loads(forged.body)
    del whole["metadata"]["annotations"][REQUESTED]
    assert [json.loads(body) for body in bodies] == [whole, whole]
    assert logs == [
        {
            "event": "note_not_sealed",
            "log_level": "warning",
            "resource": "replicasets.v1.apps",
            "key": "shop/web",
        }
    ]


def test_an_object_with_a_generated_name_keeps_its_note(seals: Seals) -> None:
    sealed = noted(seals, Place("apps", "replicasets", "shop", "", "we"))
    found = item(sealed, generateName="we")
    assert seals.without_unsealed_note(GVR, found) is found.body


def test_what_is_no_object_is_left_to_whoever_reads_it(seals: Seals) -> None:
    body = REQUESTED.encode()
    assert (
        seals.without_unsealed_note(GVR, Item(ObjectKey("", ""), "u", ResourceVersion("1"), body))
        is body
    )


@pytest.mark.parametrize(("text", "said"), [("", "empty"), ("short", "less than 32 characters")])
def test_a_file_without_a_good_key_is_refused(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "key").write_text(text, encoding="utf-8")
    with pytest.raises(Misconfigured, match=said):
        Seals(str(tmp_path / "key"))
    with pytest.raises(Misconfigured, match="No such file"):
        Seals(str(tmp_path / "none"))


def test_new_keys_are_read_and_the_last_good_ones_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sealing, "_CHECK_SECONDS", 0.0)
    file = tmp_path / "key"
    file.write_text(FIRST, encoding="utf-8")
    seals = Seals(str(file))
    sealed = noted(seals)
    file.unlink()
    with capture_logs() as logs:
        assert seals.has_valid_seal(sealed, WEB)
    assert [found["event"] for found in logs] == ["keys_not_read"]
    assert FIRST not in str(logs)
    file.write_text(f"{SECOND}\n{FIRST}", encoding="utf-8")
    assert keyed(tmp_path, SECOND).has_valid_seal(noted(seals), WEB)
