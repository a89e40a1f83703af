from __future__ import annotations

import msgspec

from kube_sync.config import Labelled, Policies, Settings
from kube_sync.inspect.plan.extra_documents import extra_documents, last_good
from kube_sync.inspect.plan.snapshot import document
from kube_sync.objects import ObjectKey
from tests.unit.inspect.plan.fleets import data_map, item, policy, record

LABELLED = Settings(policies=Policies(labelled=Labelled(namespaces=("*",))))
GOOD = {"p/one": {"p/one/a.rego": "package a"}}


async def test_data_lies_by_namespace_and_name_beside_the_objects() -> None:
    maps = [item(data_map("limits", zones='["eu"]', most="3")), item(policy())]
    found = await extra_documents(maps, LABELLED)
    assert found.places == [("teams", "limits")]
    assert found.notes == ()
    whole = msgspec.json.decode(document("kubernetes", {}, found.documents))
    assert whole["teams"] == {"limits": {"zones": ["eu"], "most": 3}}
    assert whole["kubernetes"] == {}


async def test_data_counts_only_where_labels_do() -> None:
    maps = [item(data_map("limits", most="3"))]
    elsewhere = Settings(policies=Policies(labelled=Labelled(namespaces=("others",))))
    for settings in (Settings(), elsewhere):
        assert not (await extra_documents(maps, settings)).documents


async def test_value_that_is_no_json_is_left_out_and_noted() -> None:
    maps = [item(data_map("limits", most="3", least="{")), item(data_map("none", least="{"))]
    found = await extra_documents(maps, LABELLED)
    assert {str(key): text for key, text in found.documents.items()} == {
        "teams/limits": b'{"most":3}'
    }
    assert [note.partition(" is left out: not JSON: ")[0] for note in found.notes] == [
        "data ConfigMap teams/limits: least",
        "data ConfigMap teams/none: least",
    ]


async def test_place_that_is_taken_is_not_taken_by_data() -> None:
    maps = [item(data_map("limits", namespace=name, most="3")) for name in ("system", "kubernetes")]
    found = await extra_documents(maps, LABELLED)
    assert not found.documents
    assert [note.partition(": ")[2] for note in found.notes] == [
        "data.kubernetes is reserved",
        "data.system is reserved",
    ]


def test_last_good_versions_are_those_on_record() -> None:
    maps = [item(policy()), item(record(GOOD))]
    assert last_good(maps, Settings()) == {ObjectKey("p", "one"): GOOD["p/one"]}
    assert last_good(maps[:1], Settings()) == {}


def test_record_that_cannot_be_read_is_none() -> None:
    broken = record(GOOD)
    for packed in ("no base64", "bm8gZ3ppcA=="):
        broken["binaryData"]["modules.json.gz"] = packed
        assert last_good([item(broken)], Settings()) == {}
