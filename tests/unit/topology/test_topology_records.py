"""A topology as records: what each holds, and that only what differs is given again."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import kube_sync.topology as package
from kube_sync.topology import Locator, Topology
from kube_sync.topology.gateway import GATEWAY as GATEWAY_KIND
from kube_sync.topology.hints import COLOR_POLICY
from kube_sync.topology.nodes import node_of
from kube_sync.topology.records import (
    EFFECTIVE,
    MERGED,
    NODES,
    TARGETABLES,
    Changes,
    Data,
    Key,
    Records,
    encoded,
    schema,
)
from tests.fakes.topologies import (
    CLASS,
    GATEWAY,
    GROUP,
    NS,
    Object,
    allowing,
    color,
    defaults,
    gateway,
    gateway_class,
    listener,
    listener_set,
    overrides,
    route,
    rules,
    service,
    target,
    topology,
    valid,
    world,
)
from tests.unit.topology.test_topology_properties import OBJECTS, OTHERS, key, policies, routes

SCHEMA = Path(package.__file__).with_name("records.schema.json")
COLOR = "ColorPolicy.examples.kube-sync.io"
ROUTE = Locator(f"httproute.{GROUP}:{NS}/route")
RULE = Locator(f"{ROUTE}#rule-1")
BASE: list[Object] = [gateway_class(), gateway()]


def policy(name: str) -> Locator:
    return Locator(f"colorpolicy.examples.kube-sync.io:{NS}/{name}")


def data(records: Records) -> dict[str, dict[str, Any]]:
    """Return all records, as whoever reads their JSON has them."""
    found: dict[str, dict[str, Any]] = {NODES: {}, EFFECTIVE: {}, MERGED: {}, TARGETABLES: {}}
    for where, record in records.all():
        found[where.section][where.name] = json.loads(encoded(record))
    return found


def data_of(found: Topology) -> dict[str, dict[str, Any]]:
    records = Records()
    replaced(records, found)
    return data(records)


def locator_of(found: Topology, one: Object) -> Locator:
    kinds = found.kinds
    kind = next(kind for id_, kind in kinds.items() if id_.kind == one["kind"])
    return node_of(kind, one).locator


def follow(records: Records, found: Topology, *objects: Object) -> Changes:
    affected = found.update(objects)
    return follow_up(records, found, [*affected, *(locator_of(found, one) for one in objects)])


def together(parts: Iterable[Changes]) -> Changes:
    """Return slices as one, in which nothing is named twice."""
    found = Changes()
    for part in parts:
        assert not found.records.keys() & part.records.keys()
        assert not found.removed & (part.removed | part.records.keys())
        found.records |= part.records
        found.removed |= part.removed
    assert not found.removed & found.records.keys()
    return found


def replaced(records: Records, found: Topology) -> Changes:
    return together(records.replace(found))


def follow_up(records: Records, found: Topology, touched: Iterable[Locator]) -> Changes:
    return together(records.update(found, touched))


def sections(changes: Changes) -> list[tuple[str, str]]:
    return sorted((found.section, found.name) for found in changes.records)


def only(found: Iterable[Any]) -> Any:
    (one,) = found
    return one


def test_the_schema_that_is_shipped_is_that_of_the_records() -> None:
    """To write it anew: `json.dumps(schema(), indent=2)`."""
    assert json.loads(SCHEMA.read_text(encoding="utf-8")) == schema()


def test_a_listenerset_is_on_the_paths_through_its_listeners() -> None:
    place = f"listenerset.{GROUP}:{NS}/my-set"
    own = listener_set("my-set", listener("http", hostname="*.example.com", port=81))
    bound = route(parentRefs=[{"kind": "ListenerSet", "name": "my-set"}])
    red = color("set", target("ListenerSet", "my-set"), rules=rules(sky="red"))
    objects = [gateway_class(), allowing(gateway()), own, bound, red]
    records, found = Records(), topology(objects)
    replaced(records, found)
    (effective,) = data(records)["effective"].values()
    assert effective["path"] == [CLASS, GATEWAY, place, f"{place}#http", ROUTE, RULE]
    assert effective["hostnames"] == ["*.example.com"]
    assert data(records)["nodes"][place]["policies"] == [policy("set")]
    # An older one that wants the same place takes the route its path.
    older = listener_set(
        "older", *own["spec"]["listeners"], creationTimestamp="2026-01-01T00:00:00Z"
    )
    follow(records, found, older)
    assert data(records)["effective"] == {}
    assert data(records) == data_of(topology([*objects, older]))


def test_a_node_has_its_neighbours_and_the_policies_that_target_it() -> None:
    found = data_of(topology([*BASE, route(), color("gw", target(), rules=rules(sky="blue"))]))
    assert found["nodes"][GATEWAY] == {
        "kind": "Gateway",
        "group": GROUP,
        "namespace": NS,
        "name": "my-gateway",
        "role": "targetable",
        "parents": [CLASS],
        "children": [f"{GATEWAY}#http"],
        "policies": [policy("gw")],
    }
    own = found["nodes"][policy("gw")]
    assert (own["role"], own["parents"], own["children"]) == ("policy", [], [GATEWAY])
    assert found["nodes"][ROUTE]["children"] == [RULE]


def test_two_lookups_tell_which_rule_applies_and_from_where() -> None:
    objects = [
        *BASE,
        route(),
        color("gw", target(), **defaults("merge", sky="blue", sea="green")),
        color("own", target("HTTPRoute", "route"), rules=rules(sky="grey")),
    ]
    found = data_of(topology(objects))
    applied = only(found["targetables"][RULE][COLOR])
    merged = found["merged"][applied["merged"]]
    assert applied["path"] == [CLASS, GATEWAY, f"{GATEWAY}#http", ROUTE, RULE]
    assert merged["spec"] == {"rules": {"sky": {"color": "grey"}, "sea": {"color": "green"}}}
    assert merged["sources"] == {"sky": policy("own"), "sea": policy("gw")}
    assert merged["policies"] == [policy("gw"), policy("own")]
    assert found["effective"][applied["effective"]]["merged"] == applied["merged"]


def test_an_effective_policy_has_its_identifiers_hostnames_and_matches() -> None:
    matches = [{"path": {"type": "PathPrefix", "value": "/a"}}]
    objects = [
        gateway_class(),
        gateway("my-gateway", listener(hostname="*.Example.com")),
        route(hostnames=["A.example.com", "b.example.org"], rules=[{"matches": matches}]),
        color("gw", target(), rules=rules(sky="blue")),
    ]
    built = topology(objects)
    found = data_of(built)
    one = only(built.effective(COLOR_POLICY.id))
    assert found["effective"] == {
        one.path_id: {
            "id": one.id,
            "kind": COLOR,
            "path": list(one.path),
            "hostnames": ["a.example.com"],
            "matches": matches,
            "rules": one.rule_ids,
            "merged": only(found["merged"]),
        }
    }


def test_rules_that_are_separate_for_each_path_have_identifiers_of_their_own() -> None:
    apart = replace(COLOR_POLICY, shared=lambda _rule: False)
    objects = [
        gateway_class(),
        gateway("my-gateway", listener("a"), listener("b")),
        route(),
        color("gw", target(), rules=rules(sky="blue")),
    ]
    shared, separate = data_of(topology(objects)), data_of(topology(objects, *_with(apart)))
    assert len({one["rules"]["sky"] for one in shared["effective"].values()}) == 1
    assert len({one["rules"]["sky"] for one in separate["effective"].values()}) == 2
    assert len(separate["merged"]) == 1


def _with(kind: package.PolicyKind) -> tuple[Any, ...]:
    return valid(), kind


@pytest.mark.parametrize(
    ("own", "wanted", "shared"),
    [
        ("", [], ["*"]),
        ("a.com", [], ["a.com"]),
        ("", ["b.com", "a.com", "B.com"], ["b.com", "a.com"]),
        ("*.a.com", ["x.a.com", "y.b.com"], ["x.a.com"]),
        ("x.a.com", ["*.a.com"], ["x.a.com"]),
        ("*.a.com", ["*.b.a.com", "*.a.com"], ["*.b.a.com", "*.a.com"]),
        ("*.b.a.com", ["*.a.com"], ["*.b.a.com"]),
        ("x.a.com", ["*.a.com", "x.a.com"], ["x.a.com"]),
        ("*.a.com", ["x.b.com"], []),
    ],
)
def test_hostnames_are_what_listener_and_route_share(
    own: str, wanted: list[str], shared: list[str]
) -> None:
    objects = [
        gateway_class(),
        gateway("my-gateway", listener(hostname=own)),
        route(hostnames=wanted),
        color("gw", target(), rules=rules(sky="blue")),
    ]
    found = data_of(topology(objects, valid(hostnames=False)))
    assert only(found["effective"].values())["hostnames"] == shared


def test_a_route_that_knows_no_hostnames_takes_any() -> None:
    objects = [
        gateway_class(),
        gateway("my-gateway", listener(protocol="TCP", hostname="a.example.com")),
        route(kind="TCPRoute"),
        color("gw", target(), rules=rules(sky="blue")),
    ]
    assert only(data_of(topology(objects))["effective"].values())["hostnames"] == ["*"]


@pytest.mark.parametrize("fields", [{"hostnames": "a.com"}, {"rules": [{"matches": "all"}]}])
def test_what_cannot_be_read_of_a_route_says_nothing(fields: dict[str, Any]) -> None:
    objects = [*BASE, route(**fields), color("gw", target(), rules=rules(sky="blue"))]
    one = only(data_of(topology(objects))["effective"].values())
    assert (one["hostnames"], one["matches"]) == (["*"], [])


def test_a_path_without_a_policy_is_told_too() -> None:
    found = data_of(topology([*BASE, route()]))
    applied = only(found["targetables"][RULE][COLOR])
    assert (applied["effective"], applied["merged"]) == (None, None)
    assert not found["effective"]
    assert not found["merged"]


def test_a_kind_without_a_level_is_told_at_what_it_targets() -> None:
    direct = package.PolicyKind(COLOR_POLICY.id)
    objects = [*BASE, service("service", 80), color("own", target("Service", "service"))]
    built = topology(objects, valid(), direct)
    assert list(data_of(built)["targetables"]) == [f"service:{NS}/service"]
    assert built.effective_at(COLOR_POLICY.id, GATEWAY) is None


def test_another_value_in_a_policy_is_one_record_however_many_paths_have_it() -> None:
    found, records = topology(world(16, 10, bound=False)), Records()
    found.update([color("all", target(), **defaults("merge", tree="green"))])
    replaced(records, found)
    (first, *_) = [k for k in data(records)["merged"].values() if policy("all") in k["policies"]]
    assert first["spec"]["rules"]["tree"] == {"color": "green"}
    changes = follow(records, found, color("all", target(), **defaults("merge", tree="brown")))
    assert {section for section, _ in sections(changes)} == {MERGED}
    assert len(changes.records) == 10  # each route has a policy of its own
    assert not changes.removed


def test_one_route_that_changes_is_a_few_records() -> None:
    found, records = topology(world(1, 1000, bound=False)), Records()
    replaced(records, found)
    other = route("route-7", hostnames=["other.example.com"])
    changes = follow(records, found, other)
    assert [section for section, _ in sections(changes)] == [EFFECTIVE]
    gone = found.update(deleted=[locator_of(found, other)])
    dropped = follow_up(records, found, [*gone, locator_of(found, other)])
    assert sections(dropped) == [
        (NODES, policy("route-7")),  # it has no target any more
        (NODES, f"{GATEWAY}#l0"),
    ]
    assert {where.section for where in dropped.removed} == {NODES, EFFECTIVE, MERGED, TARGETABLES}
    assert len(dropped.removed) == 5


def test_what_changes_nothing_gives_nothing() -> None:
    found, records = topology([*BASE, route()]), Records()
    replaced(records, found)
    labelled = gateway("my-gateway", labels={"a": "b"})
    assert follow(records, found, labelled) == Changes()


def test_the_hostname_of_a_listener_is_that_of_every_path_through_it() -> None:
    objects = [*BASE, route(), color("gw", target(), rules=rules(sky="blue"))]
    found, records = topology(objects), Records()
    replaced(records, found)
    for name, shown in (("a.com", "a.com"), ("", "*")):
        changes = follow(records, found, gateway("my-gateway", listener(hostname=name)))
        assert [section for section, _ in sections(changes)] == [EFFECTIVE]
        assert only(data(records)["effective"].values())["hostnames"] == [shown]


def test_a_listener_that_goes_takes_its_paths_along() -> None:
    objects = [
        gateway_class(),
        gateway("my-gateway", listener("a", hostname="*.a"), listener("b", hostname="*.b")),
        route(),
        color("gw", target(), **overrides(sky="blue")),
    ]
    found, records = topology(objects), Records()
    replaced(records, found)
    changes = follow(records, found, gateway("my-gateway", listener("b", hostname="*.b")))
    assert Key(NODES, f"{GATEWAY}#a") in changes.removed
    assert [one["hostnames"] for one in data(records)["effective"].values()] == [["*.b"]]


def test_a_topology_of_other_kinds_takes_the_place_of_the_old_one() -> None:
    objects = [*BASE, route(), color("gw", target(), rules=rules(sky="blue"))]
    records = Records()
    replaced(records, topology(objects))
    at_gateways = replace(COLOR_POLICY, level=frozenset({GATEWAY_KIND}))
    found = topology(objects, valid(), at_gateways)
    changes = replaced(records, found)
    assert data(records) == data_of(found)
    assert Key(TARGETABLES, RULE) in changes.removed
    assert Key(TARGETABLES, GATEWAY) in changes.records
    assert Key(NODES, RULE) not in changes.records


def test_what_is_pointed_to_comes_first_and_goes_last() -> None:
    objects = [*BASE, route(), color("gw", target(), rules=rules(sky="blue"))]
    records = Records()
    found = [where.section for where, _ in replaced(records, topology(objects)).in_order()]
    assert list(dict.fromkeys(found)) == [MERGED, EFFECTIVE, TARGETABLES, NODES]
    gone = [(where.section, one) for where, one in replaced(records, topology([])).in_order()]
    assert list(dict.fromkeys(gone)) == [
        (section, None) for section in (NODES, TARGETABLES, EFFECTIVE, MERGED)
    ]


def test_a_large_world_comes_in_slices() -> None:
    """Others run between them: each is a few dozen milliseconds at most."""
    parts = list(Records().replace(topology(world(16, 100, bound=False))))
    assert max(len(part.records) for part in parts) <= 20 * (16 + 3)


def apply(held: dict[Key, bytes], changes: Changes) -> None:
    """Do what a store does, which may not be told to drop what it was never given."""
    for gone in changes.removed:
        del held[gone]
    for where, record in changes.records.items():
        assert held.get(where) != encoded(record)
        held[where] = encoded(record)


@given(OBJECTS, st.lists(st.one_of(policies(), routes(), st.sampled_from(OTHERS)), max_size=6))
def test_differences_add_up_to_what_is_there(begin: list[Object], steps: Sequence[Object]) -> None:
    there = {key(one): one for one in begin}
    found, records = topology(there.values()), Records()
    held: dict[Key, bytes] = {}
    apply(held, replaced(records, found))
    for step in steps:
        if there.get(key(step)) == step:
            del there[key(step)]
            affected = found.update(deleted=[locator_of(found, step)])
        else:
            there[key(step)] = step
            affected = found.update([step])
        apply(held, follow_up(records, found, [*affected, locator_of(found, step)]))
        anew = Records()
        replaced(anew, topology(there.values()))
        assert held == {where: encoded(record) for where, record in anew.all()}
        assert held == {where: encoded(record) for where, record in records.all()}
        msgspec.convert(data(records), Data)


@pytest.mark.parametrize(("before", "after"), [(1, True), (False, 0), ([1], [True]), (1, 1.0)])
def test_a_value_of_another_type_is_another_value(before: object, after: object) -> None:
    match = {"headers": before}
    objects = [gateway_class(), gateway(), route(rules=[{"matches": [match]}])]
    found, records = topology([*objects, color("p", rules={"a": {"n": before}})]), Records()
    replaced(records, found)
    other = color("p", rules={"a": {"n": after}})
    (merged,) = follow(records, found, other).records.values()
    assert json.loads(encoded(merged))["spec"] == {"rules": {"a": {"n": after}}}
    assert f'"n":{json.dumps(after, separators=(",", ":"))}'.encode() in encoded(merged)
    again = route(rules=[{"matches": [{"headers": after}]}])
    assert [key for key, _ in sections(follow(records, found, again))] == ["effective"]
