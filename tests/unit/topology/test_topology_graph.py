"""Nodes and links of kinds that no API knows, so that only the graph is looked at."""

from __future__ import annotations

import pytest

from kube_sync.errors import Terminal
from kube_sync.topology import (
    Graph,
    GroupKind,
    Kind,
    Link,
    Locator,
    PolicyKind,
    Role,
    Sections,
    Topology,
    locator,
)
from tests.fakes.topologies import FRUIT_KINDS, FRUIT_LINKS, Object, color, fruit, made

APPLE, BANANA = Locator("apple:apple"), Locator("banana:banana")
FRUIT_BASKET = [
    fruit("Apple", "apple"),
    fruit("Orange", "orange-1", "apple:apple"),
    fruit("Orange", "orange-2", "apple:apple"),
    fruit("Banana", "banana", "orange:orange-1", "orange:orange-2"),
]
RING = [
    fruit("Apple", "apple", "peach:peach"),
    fruit("Orange", "orange", "apple:apple"),
    fruit("Banana", "banana", "orange:orange"),
    fruit("Peach", "peach", "banana:banana"),
]
INFO = GroupKind("", "Info")
FRUIT_POLICY = PolicyKind(GroupKind("", "FruitPolicy"))


def fruits(objects: list[Object], *, allow_loops: bool = False) -> Topology:
    return Topology.of(objects, FRUIT_KINDS, FRUIT_LINKS, allow_loops=allow_loops)


def names(path: tuple[Locator, ...]) -> list[str]:
    return [node.partition(":")[2] for node in path]


def test_of_nothing_there_is_nothing() -> None:
    found = fruits([])
    assert list(found.nodes()) == []
    assert (found.all.roots(), found.all.leaves(), list(found.all.edges())) == ((), (), [])


def test_paths_lead_from_a_node_to_another_on_every_way() -> None:
    graph = fruits(FRUIT_BASKET).targetables
    assert [names(path) for path in graph.paths(APPLE, BANANA)] == [
        ["apple", "orange-1", "banana"],
        ["apple", "orange-2", "banana"],
    ]
    assert len(list(graph.paths(Locator("orange:orange-1"), BANANA))) == 1


def test_a_node_has_one_path_to_itself_and_none_upwards_or_to_what_is_not_there() -> None:
    graph = fruits(FRUIT_BASKET).targetables
    assert list(graph.paths(APPLE, APPLE)) == [(APPLE,)]
    assert list(graph.paths(BANANA, APPLE)) == []
    assert list(graph.paths(APPLE, Locator("apple:none"))) == []


def test_roots_leaves_parents_and_children_are_in_order() -> None:
    graph = fruits(FRUIT_BASKET).targetables
    assert (graph.roots(), graph.leaves()) == ((APPLE,), (BANANA,))
    assert names(graph.children(APPLE)) == names(graph.parents(BANANA)) == ["orange-1", "orange-2"]
    assert len(graph) == 4
    assert APPLE in graph


def test_a_loop_is_refused_by_name() -> None:
    loop = "apple:apple -> orange:orange -> banana:banana -> peach:peach -> apple:apple"
    with pytest.raises(Terminal, match=f"^loop detected: {loop}$"):
        fruits(RING)


def test_a_diamond_is_no_loop() -> None:
    assert fruits(FRUIT_BASKET).all.loop([APPLE]) is None


def test_loops_that_are_allowed_leave_a_topology_whose_paths_end() -> None:
    graph = fruits(RING, allow_loops=True).targetables
    assert [names(path) for path in graph.paths(APPLE, BANANA)] == [["apple", "orange", "banana"]]
    assert graph.roots() == ()


def test_paths_to_a_node_below_an_allowed_loop_visit_nothing_twice() -> None:
    root = fruit("Apple", "root")
    ring = [*RING[1:], fruit("Apple", "apple", "peach:peach", "apple:root")]
    extra = Link(*(GroupKind("", "Apple"),) * 2, parents=FRUIT_LINKS[0].parents)
    found = Topology.of([root, *ring], FRUIT_KINDS, [*FRUIT_LINKS, extra], allow_loops=True)
    assert [names(path) for path in found.paths_to(BANANA)] == [
        ["root", "apple", "orange", "banana"]
    ]


def test_an_update_that_closes_a_loop_changes_nothing() -> None:
    found = fruits([fruit("Apple", "apple"), *RING[1:]])
    before = list(found.all.edges())
    with pytest.raises(Terminal, match="loop detected"):
        found.update([RING[0], fruit("Apple", "new")])
    assert list(found.all.edges()) == before
    assert Locator("apple:new") not in found
    assert found[APPLE].body["spec"]["parents"] == []


def test_an_update_with_an_object_without_a_name_changes_nothing() -> None:
    found = fruits(FRUIT_BASKET)
    with pytest.raises(Terminal, match=r"^Apple: metadata\.name: an object needs a name"):
        found.update([fruit("Apple", "new"), fruit("Apple", "")], deleted=[BANANA])
    assert Locator("apple:new") not in found
    assert BANANA in found


def test_a_name_that_is_no_text_is_said_with_its_field() -> None:
    nameless = fruit("Apple", "a") | {"metadata": {"name": 7}}
    with pytest.raises(Terminal, match=r"^Apple: metadata\.name: expected text, found a number"):
        fruits([nameless])


def test_an_edge_that_is_said_twice_is_there_once() -> None:
    twice = fruit("Orange", "orange", "apple:apple", "apple:apple")
    graph = fruits([FRUIT_BASKET[0], twice]).targetables
    assert names(graph.children(APPLE)) == ["orange"]
    assert len(list(graph.paths(APPLE, Locator("orange:orange")))) == 1


def test_an_edge_that_both_ends_say_stays_until_neither_does() -> None:
    down = Link(
        GroupKind("", "Apple"),
        GroupKind("", "Orange"),
        children=lambda node, _: map(Locator, node.body["spec"].get("children", ())),
    )
    apple = made("v1/Apple", "apple", {"parents": [], "children": ["orange:o"]}, namespace=None)
    orange = fruit("Orange", "o", "apple:apple")
    found = Topology.of([apple, orange], FRUIT_KINDS, [*FRUIT_LINKS, down])
    found.update([fruit("Orange", "o")])
    assert names(found.all.children(APPLE)) == ["o"]
    found.update([fruit("Apple", "apple")])
    assert found.all.children(APPLE) == ()


def test_what_a_link_names_counts_as_soon_as_it_comes_and_until_it_goes() -> None:
    found = fruits([fruit("Orange", "orange", "apple:apple")])
    orange = Locator("orange:orange")
    assert found.targetables.roots() == (orange,)
    assert orange in found.update([fruit("Apple", "apple")])
    assert found.targetables.roots() == (APPLE,)
    found.update(deleted=[APPLE, APPLE])
    assert found.targetables.roots() == (orange,)


def test_an_object_of_no_known_kind_or_shape_is_left_out() -> None:
    strangers: list[Object] = [made("v1/Pear", "pear", {}), {"kind": 7}, {}]
    assert list(fruits(strangers).nodes()) == []


def test_policies_and_objects_are_nodes_and_no_targetables() -> None:
    """policy-1 targets apple-1, which has an object of its own; targetables know neither."""
    apple = fruit("Apple", "apple-1")
    basket = [apple, fruit("Orange", "orange-1", "apple:apple-1")]
    infos = [
        made("v1/Info", "info-1", {"parents": ["apple:apple-1"]}, namespace=None),
        made("v1/Info", "info-2", {"parents": ["orange:orange-1"]}, namespace=None),
        made("v1/Info", "info-3", {"parents": ["fruitpolicy:policy-1"]}, namespace=None),
    ]
    ref = {"group": "", "kind": "Apple", "name": "apple-1"}
    policy = made("v1/FruitPolicy", "policy-1", {"targetRef": ref}, namespace=None)
    found = Topology.of(
        [*basket, *infos, policy],
        [*FRUIT_KINDS, Kind(INFO, Role.OBJECT)],
        [
            *FRUIT_LINKS,
            *(
                Link(GroupKind("", kind), INFO, parents=FRUIT_LINKS[0].parents)
                for kind in ("Apple", "Orange", "FruitPolicy")
            ),
        ],
        [FRUIT_POLICY],
    )
    own = Locator("fruitpolicy:policy-1")
    assert names(found.all.children(own)) == ["apple-1", "info-3"]
    assert names(found.all.children(Locator("apple:apple-1"))) == ["info-1", "orange-1"]
    (path,) = found.all.paths(own, Locator("info:info-2"))
    assert names(path) == ["policy-1", "apple-1", "orange-1", "info-2"]
    assert names(found.targetables.roots()) == ["apple-1"]
    assert names(found.policies.roots()) == ["policy-1"]
    assert names(found.objects.roots()) == ["info-1", "info-2", "info-3"]


def test_a_locator_has_no_version_and_a_section_that_of_its_object() -> None:
    kind = GroupKind("gateway.networking.k8s.io", "Gateway")
    assert locator(kind, "NS", "gw", "http") == "gateway.gateway.networking.k8s.io:NS/gw#http"
    assert locator(GroupKind("", "GatewayClass"), "", "c") == "gatewayclass:c"


def test_deep_graphs_have_paths() -> None:
    """Deeper than Python's stack."""
    chain = [
        fruit("Apple", "0"),
        *(fruit("Apple", f"{n}", f"apple:{n - 1}") for n in range(1, 1500)),
    ]
    link = Link(*(GroupKind("", "Apple"),) * 2, parents=FRUIT_LINKS[0].parents)
    found = Topology.of(chain, FRUIT_KINDS, [link])
    (path,) = found.paths_to(Locator("apple:1499"))
    assert len(path) == 1500
    assert list(found.all.paths(Locator("apple:0"), Locator("apple:1499"))) == [path]


def test_a_link_that_cannot_read_an_object_is_said_of_it_and_harms_no_other() -> None:
    """Links of one's own read JSON as they like."""
    odd = fruit("Orange", "odd") | {"spec": {}}
    found = fruits([*FRUIT_BASKET, odd])
    (said,) = found.conditions()
    assert said == (
        "orange:odd",
        "Accepted",
        "False",
        "Invalid",
        "cannot be read: KeyError('parents')",
    )
    assert len(list(found.all.paths(APPLE, BANANA))) == 2


def test_a_link_that_looks_at_sections_is_asked_again_when_they_come() -> None:
    seeds = Sections(GroupKind("", "Seed"), lambda body: [(n, {}) for n in body["spec"]["parents"]])
    link = Link(
        GroupKind("", "Seed"),
        GroupKind("", "Orange"),
        parents=lambda _, view: [seed.locator for seed in view.sections(APPLE)],
    )
    kinds = [Kind(GroupKind("", "Apple"), sections=seeds), Kind(GroupKind("", "Orange"))]
    found = Topology.of([fruit("Orange", "o")], kinds, [link])
    for names_of in (["x"], ["x", "y"]):
        found.update([fruit("Apple", "apple", *names_of)])
        above = found.all.parents(Locator("orange:o"))
        assert [seed.partition("#")[2] for seed in above] == names_of


def test_sections_that_cannot_be_read_are_said_of_the_object() -> None:
    kind = GroupKind("", "Apple")
    seeds = Sections(GroupKind("", "Seed"), lambda body: [(body["spec"]["seed"], {})])
    found = Topology.of([fruit("Apple", "a")], [Kind(kind, sections=seeds)])
    assert [condition.message for condition in found.conditions()] == [
        "cannot be read: KeyError('seed')"
    ]


def test_a_policy_of_no_kind_given_is_no_node() -> None:
    assert list(fruits([color("stranger")]).nodes()) == []


def test_a_node_that_is_removed_takes_its_edges_along() -> None:
    graph = Graph()
    a, b, c = (Locator(name) for name in "abc")
    for node in (a, b, c):
        graph.add(node)
    graph.connect(a, b)
    graph.connect(b, c)
    graph.remove(b)
    assert (list(graph), list(graph.edges()), graph.roots()) == ([a, c], [], (a, c))
    graph.remove(b)
    assert list(graph) == [a, c]
