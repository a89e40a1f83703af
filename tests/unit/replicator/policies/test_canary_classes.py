"""Objects are told apart by what a canary reads of them, whatever that is."""

from __future__ import annotations

import json
from typing import Any, cast

import pytest

from kube_sync.analysis.reads import Document, FieldRead, Reads
from kube_sync.observability.readiness import Readiness
from kube_sync.replicator.resources import Resources
from kube_sync.settings import Settings


def reads(*path: str) -> Reads:
    return Reads(Document((FieldRead(path, whole=False, asked=()),), used=True), {}, (), {})


def body(**labels: str) -> bytes:
    return json.dumps({"metadata": {"name": "x", "labels": labels}}).encode()


@pytest.fixture
def resources() -> Resources:
    found = Resources(Settings(), cast("Any", None), Readiness(), lambda: None)
    found.policies_changed(reads("metadata", "labels", "zone"))
    return found


def kinds(resources: Resources, *bodies: bytes) -> list[bytes | None]:
    (members,) = [m.members for m in resources.mirrors if m.name == "replicasets"]
    found = [members.read(one, "u") for one in bodies]
    return [None if member is None else member.kind for member in found]


def test_what_a_canary_alone_reads_makes_classes_as_long_as_there_is_one(
    resources: Resources,
) -> None:
    one, other = body(zone="eu", tier="a"), body(zone="eu", tier="b")
    assert len(set(kinds(resources, one, other))) == 1
    resources.canary_changed(reads("metadata", "labels", "tier"))
    assert len(set(kinds(resources, one, other))) == 2
    resources.staged_changed("counted", reads("metadata", "labels", "tier"))
    resources.canary_changed(None)
    assert len(set(kinds(resources, one, other))) == 2
    resources.staged_changed("counted", None)
    assert len(set(kinds(resources, one, other))) == 1


def test_where_a_canary_reads_all_of_an_object_no_two_are_of_one_class(
    resources: Resources,
) -> None:
    """One that is only counted leaves them as they are: who counts asks about each."""
    resources.staged_changed("counted", reads())
    assert None not in kinds(resources, body(zone="eu"))
    resources.canary_changed(reads())
    assert kinds(resources, body(zone="eu")) == [None]


def test_other_lanes_count_beside_a_canary(resources: Resources) -> None:
    resources.staged_changed("shadow", reads("metadata", "labels", "team"))
    resources.canary_changed(reads("metadata", "labels", "tier"))
    bodies = body(tier="a", team="x"), body(tier="b", team="x"), body(tier="a", team="y")
    assert len(set(kinds(resources, *bodies))) == 3
