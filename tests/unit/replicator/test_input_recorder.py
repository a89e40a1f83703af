from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, cast

import msgspec
import pytest

from kube_sync.config import Settings
from kube_sync.decisions.input_reader import Basis, InputReader
from kube_sync.objects import ObjectKey
from kube_sync.opa.analysis.result import Document, FieldRead, Reads
from kube_sync.replicator.input_recorder import input_reader
from kube_sync.replicator.mirror import Mirror


@dataclass
class Held:
    name: str
    object_count: int = 1


def _held(name: str, number: int = 1) -> Mirror:
    return cast("Mirror", Held(name, number))


def _field(*path: str) -> FieldRead:
    return FieldRead(path, whole=True, asked=())


READS = Reads(
    Document((_field("spec", "tier"),), used=True),
    {
        "clusters": Document((_field("metadata", "labels"),), used=True),
        "replicasets": Document(),
    },
    (),
    {},
)
READS_SECRETS = replace(READS, resources={**READS.resources, "hidden": Document(used=True)})
KEY = ObjectKey("shop", "web")
SECRETS = {"group": "", "version": "v1", "resource": "secrets", "as": "hidden"}


def _settings(**more: Any) -> Settings:
    whole: dict[str, Any] = {"ledger": {"path": "/l.db"}, **more}
    return msgspec.convert(whole, Settings)


def _basis(input_reader: InputReader | None, reads: Reads = READS) -> Basis:
    assert input_reader is not None
    input_reader.policies_changed(reads)
    asked = input_reader.new_request("replicasets", [KEY])
    assert asked is not None
    data = dict.fromkeys(asked.names, msgspec.Raw(b"{}"))
    return input_reader.read_answer(asked, ["1"], data, {0: msgspec.Raw(b"{}")})[0].basis


@pytest.mark.parametrize("ledger", [{}, {"path": "/l.db", "inputs": False}])
def test_where_nothing_is_recorded_nothing_is_asked_for(ledger: dict[str, Any]) -> None:
    settings = _settings(ledger=ledger)
    assert input_reader(lambda: settings, []) is None


def test_whole_objects_are_said_to_be_whole() -> None:
    settings = _settings()
    found = _basis(input_reader(lambda: settings, [_held("clusters")]))
    assert (found.kept, found.inputs) == ({"clusters": None}, {"replicasets.v1.apps": None})
    assert found.reads == (("spec", "tier"),)


def test_of_what_policies_choose_no_more_is_said_to_be_there_than_they_read() -> None:
    settings = _settings(replicate={"fields": "auto"})
    found = _basis(input_reader(lambda: settings, [_held("clusters")]))
    assert found.kept == {"clusters": (("metadata", "labels"),)}
    assert found.inputs == {"replicasets.v1.apps": (("spec", "tier"),)}
    gave_up = replace(READS, gave_up="too deep", resources={})
    assert _basis(input_reader(lambda: settings, []), gave_up).inputs == {
        "replicasets.v1.apps": None
    }


def test_secrets_are_none_of_what_is_asked_for_whatever_they_are_called() -> None:
    defaults = msgspec.to_builtins(Settings().replicate.resources)
    settings = _settings(replicate={"resources": [*defaults, SECRETS]})
    reader = input_reader(lambda: settings, [_held("clusters"), _held("hidden")])
    assert _basis(reader, READS_SECRETS).lacks == {"hidden": "it holds Secrets"}
    assert reader is not None
    assert reader.new_request("hidden", [KEY]) is None


def test_policies_that_nobody_tells_of_are_named() -> None:
    settings = _settings(policies={"static": True})
    found = _basis(input_reader(lambda: settings, [_held("clusters", 1_001)]))
    assert found.lacks["policies"] == "OPA has some from elsewhere"
    assert found.lacks["clusters"].startswith("it has more than 1,000 objects")
