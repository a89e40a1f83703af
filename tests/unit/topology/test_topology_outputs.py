"""JSON, DOT, SVG and tables of small topologies."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import msgspec

from kube_sync import topology as package
from kube_sync.topology import Kind, Link, Role, Topology
from kube_sync.topology.nodes import GroupKind
from kube_sync.topology.pictures import dot, layers, svg
from kube_sync.topology.report import Report, as_json, report, schema
from kube_sync.topology.table import effective_table, table
from tests.fakes.topologies import (
    CLASS,
    FRUIT_LINKS,
    GATEWAY,
    NS,
    Object,
    color,
    defaults,
    fruit,
    gateway,
    gateway_class,
    listener,
    overrides,
    route,
    rules,
    target,
    topology,
)

SCHEMA = Path(package.__file__).with_name("report.schema.json")
ROUTE = target("HTTPRoute", "route")
WORLD: list[Object] = [
    gateway_class(),
    gateway("my-gateway", listener("a"), listener("b")),
    route(),
    color("gw", target(sectionName="a"), **overrides("merge", sky="blue")),
]


def parsed(found: Topology) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(as_json(report(found)))
    return content


def test_the_schema_that_is_shipped_is_that_of_the_report() -> None:
    """To write it anew: `json.dumps(schema(), indent=2)`."""
    assert json.loads(SCHEMA.read_text(encoding="utf-8")) == schema()


def test_a_report_has_nodes_edges_roots_and_where_what_applies() -> None:
    built = topology(WORLD)
    found = parsed(built)
    own = f"colorpolicy.examples.kube-sync.io:{NS}/gw"
    rule = f"httproute.gateway.networking.k8s.io:{NS}/route#rule-1"
    one, _ = built.effective(policies_kind())
    assert found["roots"] == [CLASS]
    assert {"from": own, "to": f"{GATEWAY}#a"} in found["edges"]
    assert found["effective"] == {
        one.path_id: {
            "id": one.id,
            "kind": "ColorPolicy",
            "path": [CLASS, GATEWAY, f"{GATEWAY}#a", rule.partition("#")[0], rule],
            "policies": [own],
            "spec": {"rules": {"sky": {"color": "blue"}}},
            "sources": {"sky": own},
            "parts": {},
            "rules": one.rule_ids,
        }
    }
    assert [(path["locator"], path["effective"]) for path in found["targetables"]] == [
        (rule, one.path_id),
        (rule, None),
    ]
    assert {node["role"] for node in found["nodes"]} == {"targetable", "policy"}
    assert {
        "locator": rule,
        "kind": "HTTPRouteRule",
        "group": "gateway.networking.k8s.io",
        "namespace": NS,
        "name": "route#rule-1",
        "role": "targetable",
    } in found["nodes"]


def test_a_report_is_what_its_schema_says() -> None:
    """The schema is that of these types, and they are strict."""
    policies = [
        color("r", ROUTE, **defaults("patch", sky="red", sea="green")),
        color("lost", ROUTE),
    ]
    found = topology([*WORLD, *policies, color("none", target(name="none"))])
    assert msgspec.json.decode(as_json(report(found)), type=Report, strict=True).conditions


def test_a_report_has_the_paths_and_kinds_that_are_asked_for() -> None:
    found = topology(WORLD)
    path = (CLASS, GATEWAY)
    assert report(found, [], [path]).paths == [path]
    assert (report(found, []).effective, report(found, []).targetables) == ({}, [])


def test_nothing_is_an_empty_report_and_an_empty_picture() -> None:
    empty = topology([])
    assert set(map(str, parsed(empty).values())) == {"[]", "{}"}
    assert dot(empty) == "digraph {\n  rankdir=LR;\n}\n"
    assert ET.fromstring(svg(empty)).findall("*") == []  # noqa: S314 - of our own
    assert table(empty) == "KIND  NAME  ROLE  BELOW\n"


def test_dot_has_a_node_for_each_and_the_kinds_on_its_edges() -> None:
    lines = dot(topology([gateway_class(), gateway(), color("p")])).splitlines()
    box = 'shape="box",style="filled",fillcolor="#e5e5e5"'
    assert lines[2:] == [
        f'  n1 [label="ColorPolicy\\n{NS}/p",shape="note",style="dashed"];',
        f'  n2 [label="Gateway\\n{NS}/my-gateway",{box}];',
        f'  n3 [label="Listener\\n{NS}/my-gateway#http",{box}];',
        f'  n4 [label="GatewayClass\\nmy-gateway-class",{box}];',
        '  n1 -> n2 [comment="Policy -> Target",style="dashed"];',
        '  n2 -> n3 [comment="Gateway -> Listener"];',
        '  n4 -> n2 [comment="GatewayClass -> Gateway"];',
        "}",
    ]


def test_a_name_cannot_become_more_than_a_name() -> None:
    evil = fruit("Apple", 'a"];x -> y;\\\n<script>\x1b')
    found = Topology.of([evil], [Kind(GroupKind("", "Apple"))])
    assert '[label="Apple\\na\\"];x -> y;\\\\\\n<script>' in dot(found)
    picture = ET.fromstring(svg(found))  # noqa: S314 - of our own
    assert [element.tag.rpartition("}")[2] for element in picture.iter()] == [
        "svg",
        "g",
        "title",
        "rect",
        "text",
        "text",
    ]


def test_a_picture_that_is_too_big_says_so_instead() -> None:
    found = topology(WORLD)
    size = len(dot(found).encode())
    assert dot(found, size) == dot(found)
    small = dot(found, size - 1)
    assert f"this topology has {size} bytes, more than the {size - 1}" in small
    assert small.startswith("digraph {")


def test_svg_puts_every_node_behind_what_points_to_it() -> None:
    found = topology(WORLD)
    depth = {node: n for n, layer in enumerate(layers(found.all)) for node in layer}
    assert len(depth) == len(found.all)
    assert all(depth[parent] < depth[child] for parent, child in found.all.edges())


def test_svg_has_a_box_for_each_node_and_a_line_for_each_edge() -> None:
    found = topology(WORLD)
    picture = ET.fromstring(svg(found))  # noqa: S314 - of our own
    tags = [element.tag.rpartition("}")[2] for element in picture.iter()]
    assert tags.count("rect") == len(found.all)
    assert tags.count("path") == len(list(found.all.edges()))
    places = [(e.get("x"), e.get("y")) for e in picture.iter() if e.tag.endswith("rect")]
    assert len(set(places)) == len(places)


def test_svg_cuts_what_is_too_long_and_tells_it_whole_on_the_side() -> None:
    long = "apple-" * 10
    found = Topology.of([fruit("Apple", long)], [Kind(GroupKind("", "Apple"))])
    assert f"<title>apple:{long}</title>" in svg(found)
    assert f"{long[:29]}…</text>" in svg(found)


def test_a_table_tells_what_each_is_below_and_what_is_wrong() -> None:
    rows = table(topology([*WORLD, color("lost", target(name="none"))])).splitlines()
    cells = [line.split(None, 3) for line in rows]
    assert ["Listener", f"{NS}/my-gateway#a", "targetable", f"{NS}/my-gateway"] in cells
    assert ["ColorPolicy", f"{NS}/gw", "policy", f"→ {NS}/my-gateway#a"] in cells
    assert ["ColorPolicy", f"{NS}/lost", "policy", "-"] in cells
    assert rows[-2].split() == ["OF", "CONDITION", "STATUS", "REASON", "MESSAGE"]
    assert "TargetNotFound" in rows[-1]


def test_a_table_has_the_paths_that_are_asked_for() -> None:
    text = table(topology(WORLD), [(CLASS, GATEWAY)])
    assert f"\nPATH\nmy-gateway-class > {NS}/my-gateway\n" in text


def test_the_effective_table_has_a_row_for_each_rule_of_each_path() -> None:
    policies = [
        color("r", ROUTE, defaults={"strategy": "patch", "rules": {"sky": {"shade": 1}}}),
        color("rule", target("HTTPRoute", "route", sectionName="rule-1"), rules=rules(sky="red")),
    ]
    lines = effective_table(topology([*WORLD[:3], *policies]), policies_kind()).splitlines()
    path = f"my-gateway-class > {NS}/my-gateway > {NS}/my-gateway#{{}} > {NS}/route"
    for row, name in zip(lines[1:3], "ab", strict=True):
        assert row.startswith(path.format(name))
        assert row.endswith(f'sky   {{"color":"red","shade":1}}  {NS}/rule, {NS}/r')


def policies_kind() -> GroupKind:
    return GroupKind("examples.kube-sync.io", "ColorPolicy")


def test_the_effective_table_says_where_nothing_applies_and_where_nothing_is_left() -> None:
    nothing = color("p", target(sectionName="a"), overrides={"rules": {}})
    lines = effective_table(topology([*WORLD[:3], nothing]), policies_kind()).splitlines()
    assert lines[1].split()[-3:] == ["-", "-", f"{NS}/p"]
    assert lines[2].split()[-4:] == ["-", "-", "no", "ColorPolicy"]


def test_objects_have_a_look_of_their_own() -> None:
    found = Topology.of([fruit("Apple", "a")], [Kind(GroupKind("", "Apple"), Role.OBJECT)])
    assert 'shape="ellipse"' in dot(found)
    assert table(found).splitlines()[1].split() == ["Apple", "a", "object", "-"]


def test_pictures_of_wide_layers_are_the_same_for_every_order() -> None:
    apples = [fruit("Apple", "root"), *(fruit("Apple", f"{n}", "apple:root") for n in range(9))]
    kind = GroupKind("", "Apple")
    link = Link(kind, kind, parents=FRUIT_LINKS[0].parents)
    first, second = (
        svg(Topology.of(order, [Kind(kind)], [link])) for order in (apples, apples[::-1])
    )
    assert first == second


def test_svg_puts_a_node_near_what_points_to_it() -> None:
    fruits = [fruit("Apple", "a"), fruit("Apple", "b")]
    fruits += [fruit("Apple", "z", "apple:a"), fruit("Apple", "y", "apple:b")]
    kind = GroupKind("", "Apple")
    link = Link(kind, kind, parents=FRUIT_LINKS[0].parents)
    picture = ET.fromstring(svg(Topology.of(fruits, [Kind(kind)], [link])))  # noqa: S314 - our own
    groups = [group for group in picture if group.tag.endswith("g")]
    places = {group[0].text: (group[1].get("x"), group[1].get("y")) for group in groups}
    assert places["apple:z"][1] == places["apple:a"][1]
    assert places["apple:y"][1] == places["apple:b"][1]
    assert places["apple:z"][0] == places["apple:y"][0] != places["apple:a"][0]
