from __future__ import annotations

from typing import Any

import msgspec
import pytest

from kube_sync.errors import Broken
from kube_sync.inspect.plan.cluster_changes import Facts, applied
from kube_sync.objects import ObjectKey
from tests.unit.inspect.plan.fleets import cluster, item

C1, C2 = ObjectKey("fleet", "c1"), ObjectKey("fleet", "c2")
CLUSTERS = {C1: item(cluster("c1", zone="eu")), C2: item(cluster("c2", zone="us"))}


def after(*fields: str) -> dict[str, Any]:
    found = applied(Facts((), fields), CLUSTERS)
    assert found.keys() == CLUSTERS.keys()
    whole: dict[str, Any] = msgspec.json.decode(found[C1].body)
    return whole


def test_label_is_text_whatever_it_looks_like_and_its_key_may_have_dots() -> None:
    labels = after("c1.labels.pci-certified=false", "c1.labels.topology.kubernetes.io/zone=b=1")
    assert labels["metadata"]["labels"] == {
        "zone": "eu",
        "pci-certified": "false",
        "topology.kubernetes.io/zone": "b=1",
    }
    assert after("c1.metadata.annotations.a=1")["metadata"]["annotations"] == {"a": "1"}


def test_other_fields_are_json_where_they_are_json() -> None:
    spec = after("c1.spec.nodes=3", "c1.spec.region.name=eu west")["spec"]
    assert spec == {"nodes": 3, "region": {"name": "eu west"}}


def test_field_without_a_value_is_taken_away_and_one_that_is_not_there_is_no_error() -> None:
    assert after("fleet/c1.labels.zone-", "c1.labels.gone-")["metadata"]["labels"] == {}


def test_nothing_that_was_given_is_changed_in_place() -> None:
    applied(Facts((), ("c1.labels.zone=mars",), ("c2",)), CLUSTERS)
    assert msgspec.json.decode(CLUSTERS[C1].body)["metadata"]["labels"] == {"zone": "eu"}
    assert C2 in CLUSTERS


def test_clusters_join_and_are_replaced_before_fields_are_set_and_others_leave() -> None:
    brought = (("f.yaml", cluster("c3", zone="eu")), ("f.yaml", cluster("c1")))
    found = applied(Facts(brought, ("c3.labels.zone=us",), ("fleet/c2",)), CLUSTERS)
    labels = {k.name: msgspec.json.decode(i.body)["metadata"]["labels"] for k, i in found.items()}
    assert labels == {"c1": {}, "c3": {"zone": "us"}}


@pytest.mark.parametrize(
    ("fields", "removed", "said"),
    [
        ((), ("c9",), "--remove-cluster: there is no cluster c9"),
        (("c9.labels.a=b",), (), "--set-cluster c9.labels.a=b: there is no cluster c9"),
        (("c1.labels.a",), (), "expected NAME.PATH=VALUE, or NAME.PATH- to take it away"),
        (("c1.=b",), (), "nothing is no field"),
        (("c1.a..b=c",), (), "a..b is no field"),
        (("c1.metadata.name=c7",), (), "a cluster of another name is another cluster"),
        (("c1.kind.a=b",), (), "fleet/c1 has no such field: it lies in no object"),
    ],
)
def test_what_cannot_be_is_said_by_name(
    fields: tuple[str, ...], removed: tuple[str, ...], said: str
) -> None:
    with pytest.raises(Broken) as raised:
        applied(Facts((), fields, removed), CLUSTERS)
    assert said in str(raised.value)


def test_everything_that_is_wrong_is_said_at_once() -> None:
    facts = Facts((("f.yaml", {"metadata": {}}),), ("c8.labels.a=b",), ("c9",))
    with pytest.raises(Broken) as raised:
        applied(facts, CLUSTERS)
    lines = str(raised.value).splitlines()
    assert [line.partition(":")[0] for line in lines] == [
        "f.yaml",
        "--set-cluster c8.labels.a=b",
        "--remove-cluster",
    ]


def test_name_that_several_clusters_have_is_none() -> None:
    both = {**CLUSTERS, ObjectKey("other", "c1"): item(cluster("c1", "other"))}
    with pytest.raises(Broken, match="c1 may be fleet/c1 or other/c1: say which"):
        applied(Facts((), (), ("c1",)), both)
    assert ObjectKey("other", "c1") not in applied(Facts((), (), ("other/c1",)), both)


def test_longest_name_counts_where_one_begins_another() -> None:
    dotted = ObjectKey("fleet", "c1.labels")
    both = {**CLUSTERS, dotted: item(cluster("c1.labels"))}
    found = applied(Facts((), ("c1.labels.spec.a=1",)), both)
    assert msgspec.json.decode(found[dotted].body)["spec"] == {"a": 1}
