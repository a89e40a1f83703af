from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from kube_sync.inspect.plan.offline_decisions import Group, Grouping, needed
from kube_sync.inspect.plan.snapshot import Bodies
from kube_sync.objects import ObjectKey
from kube_sync.opa.analysis.paths import Path
from kube_sync.opa.analysis.result import Ask, Collection, Document, FieldRead, Reads
from kube_sync.policies.required_fields import Need
from tests.unit.inspect.plan.fleets import FLEET, WORKLOADS, ZONE, item, replicaset

PLACES = {
    "clusters": Collection(("kubernetes", "clusters")),
    "replicasets": Collection(("kubernetes", "replicasets")),
}
ZONES: Path = ("metadata", "annotations", ZONE)
LABELS: Path = ("metadata", "labels")
NAMING = {"apiVersion", "kind", "metadata"}


def document(*paths: Path) -> Document:
    return Document(tuple(FieldRead(path, whole=True, asked=()) for path in paths), used=True)


# Decides by a workload's zone, over the labels of clusters.
READS = Reads(document(ZONES), {"clusters": document(LABELS), "replicasets": Document()}, (), {})


def bodies(*workloads: dict[str, Any]) -> Bodies:
    objects = {"clusters": FLEET, "replicasets": workloads or WORKLOADS}
    items = {
        name: [item({**one, "spec": {"replicas": 3}}) for one in objects[name]] for name in objects
    }
    return {name: {one.key: one.body for one in found} for name, found in items.items()}


def held(reads: Reads, chosen: tuple[str, ...] = ()) -> dict[str, dict[str, set[str]]]:
    """Return which fields are held of which objects, by collection."""
    need, all_of_them = Need(reads, PLACES), bodies()
    groups = Grouping(["replicasets"]).groups(all_of_them, need)
    return {
        name: {key.name: {*json.loads(body)} for key, body in objects.items()}
        for name, objects in needed(all_of_them, need, groups, chosen).items()
    }


def groups(reads: Reads, *workloads: dict[str, Any]) -> list[list[str]]:
    found = Grouping(["replicasets"]).groups(bodies(*workloads), Need(reads, PLACES))
    return [[key.name for key in group] for group in found["replicasets"]]


def test_workloads_that_agree_in_what_is_read_are_one_group() -> None:
    assert groups(READS) == [["web", "shop"], ["ads"]]


def test_workloads_are_alone_where_an_answer_changes_by_itself() -> None:
    impure = replace(READS, impure={"time.now_ns": (Ask("", "", None, ""),)})
    assert groups(impure) == [["web"], ["shop"], ["ads"]]
    assert groups(replace(READS, input=document(()))) == [["web"], ["shop"], ["ads"]]


def test_groups_are_found_once_for_worlds_that_read_the_same_of_the_same() -> None:
    sharing, all_of_them = Grouping(["replicasets"]), bodies()
    found = [
        sharing.groups(one, Need(reads, PLACES))["replicasets"]
        for one, reads in (
            (all_of_them, READS),
            ({**all_of_them, "clusters": {}}, READS),
            (all_of_them, replace(READS, input=document(("kind",)))),
            (bodies(replicaset("new", "eu")), READS),
        )
    ]
    assert found[1] is found[0]
    assert [list(map(len, one)) for one in found] == [[2, 1], [2, 1], [3], [1]]


def test_one_workload_of_each_group_is_held_with_what_is_read() -> None:
    assert held(READS) == {
        "clusters": dict.fromkeys(("c1", "c2", "c3"), NAMING),
        "replicasets": dict.fromkeys(("web", "ads"), NAMING),
    }


def test_workloads_that_policies_read_as_data_are_all_held() -> None:
    spread = replace(READS, resources={**READS.resources, "replicasets": document(("spec",))})
    assert held(spread)["replicasets"] == {
        name: NAMING | {"spec"} for name in ("web", "shop", "ads")
    }


def test_workloads_that_limits_alone_read_are_all_held() -> None:
    limits = replace(
        READS, input=Document(), resources={**READS.resources, "replicasets": document(("spec",))}
    )
    assert held(replace(READS, beside=limits))["replicasets"].keys() == {"web", "shop", "ads"}


def test_everything_is_held_where_nobody_knows_what_is_read() -> None:
    everything = document(())
    blind = Reads(everything, dict.fromkeys(PLACES, everything), (), {}, gave_up="it is too deep")
    whole = NAMING | {"spec"}
    assert held(blind) == {
        "clusters": dict.fromkeys(("c1", "c2", "c3"), whole),
        "replicasets": dict.fromkeys(("web", "shop", "ads"), whole),
    }


def test_fields_that_somebody_chose_are_left_as_they_are() -> None:
    assert held(READS, chosen=("clusters",))["clusters"]["c1"] == NAMING | {"spec"}


def test_object_that_lies_where_none_should_is_held_whole() -> None:
    astray = {"clusters": {ObjectKey("", "c1"): b'{"metadata":{"name":"c1"},"spec":1}'}}
    nothing: dict[str, list[Group]] = {}
    assert needed(astray, Need(READS, PLACES), nothing) == astray
