"""Whatever comes, in whatever order, by whatever updates: the same world is the same bytes."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from kube_sync.topology import Topology
from kube_sync.topology.dot import dot
from kube_sync.topology.nodes import node_of
from kube_sync.topology.report import as_json, report
from kube_sync.topology.svg import svg
from tests.fakes.topologies import (
    GROUP,
    NS,
    Object,
    color,
    gateway,
    gateway_class,
    grant,
    listener,
    namespace,
    route,
    service,
    target,
    topology,
)

PLACES = [
    target("GatewayClass", "my-gateway-class"),
    target("Namespace", NS),
    target(),
    target(sectionName="a"),
    target("HTTPRoute", "r0"),
    target("HTTPRoute", "r0", sectionName="rule-1"),
    target("Service", "service"),
    target(name="none"),
]
COLORS = st.dictionaries(st.sampled_from("xyz"), st.sampled_from([None, "1", "2", {"c": "3"}]))
BLOCKS = st.one_of(
    st.builds(lambda rules: {"rules": rules}, COLORS),
    st.builds(
        lambda mode, strategy, rules: {mode: {"strategy": strategy, "rules": rules}},
        st.sampled_from(["defaults", "overrides"]),
        st.sampled_from(["atomic", "merge", "patch"]),
        COLORS,
    ),
)


@st.composite
def policies(draw: st.DrawFn) -> Object:
    spec = dict(draw(BLOCKS))
    age = draw(st.sampled_from([None, 2020, 2021]))
    refs = draw(st.lists(st.sampled_from(PLACES), min_size=1, max_size=3))
    space = draw(st.sampled_from([NS, NS, "other"]))
    name = draw(st.sampled_from("pqrst"))
    return color(name, refs, namespace=space, **spec, **({"age": age} if age else {}))


@st.composite
def routes(draw: st.DrawFn) -> Object:
    refs = draw(st.lists(st.sampled_from(["a", "b", None, "none"]), max_size=3))
    parents = [{"name": "my-gateway"} | ({"sectionName": r} if r else {}) for r in refs]
    backend = {"name": "service"} | draw(
        st.sampled_from([{}, {"port": 80}, {"namespace": "other"}])
    )
    names = draw(st.lists(st.sampled_from(["a.example.com", "b.example.org"]), max_size=2))
    rules = [{"backendRefs": [backend]}] * draw(st.integers(0, 2))
    name = draw(st.sampled_from(["r0", "r1", "r2"]))
    return route(name, parentRefs=parents, hostnames=names, rules=rules)


OTHERS: Sequence[Object] = [
    gateway_class(),
    gateway("my-gateway", listener("a", hostname="*.example.com"), listener("b")),
    gateway("my-gateway", listener("b"), listener("c")),
    namespace(NS),
    namespace("other"),
    service("service", 80),
    service("service", 81),
    service("service", 80, namespace="other"),
    grant("other", (GROUP, "HTTPRoute", NS)),
    grant(NS, ("examples.kube-sync.io", "ColorPolicy", "other")),
]
OBJECTS = st.lists(st.one_of(policies(), routes(), st.sampled_from(OTHERS)), max_size=25)


def unique(objects: Sequence[Object]) -> list[Object]:
    """Return the last of each: two of one name are no world."""
    return list({key(one): one for one in objects}.values())


def key(one: Object) -> tuple[str, str, str]:
    metadata = one["metadata"]
    return one["kind"], metadata.get("namespace", ""), metadata["name"]


def everything(found: Topology) -> bytes:
    """Return all that can be read of a topology; paths are in the effective policies."""
    return as_json(report(found)) + dot(found).encode() + svg(found).encode()


@settings(deadline=None)
@given(OBJECTS, st.randoms(use_true_random=False))
def test_the_order_of_objects_means_nothing(objects: list[Object], random: object) -> None:
    first = unique(objects)
    second = list(first)
    random.shuffle(second)  # type: ignore[attr-defined]
    assert everything(topology(first)) == everything(topology(second))


@settings(deadline=None)
@given(OBJECTS, st.lists(st.one_of(policies(), routes(), st.sampled_from(OTHERS)), max_size=6))
def test_updates_give_what_building_anew_gives(begin: list[Object], changes: list[Object]) -> None:
    world = {key(one): one for one in begin}
    found = topology(world.values())
    everything(found)  # so that there is something to be kept wrongly
    for change in changes:
        if world.get(key(change)) == change:
            del world[key(change)]
            kinds = found._state.kinds
            kind = next(kind for id_, kind in kinds.items() if id_.kind == change["kind"])
            found.update(deleted=[node_of(kind, change).locator])
        else:
            world[key(change)] = change
            found.update([change])
        assert everything(found) == everything(topology(world.values()))


@settings(deadline=None)
@given(OBJECTS)
def test_what_is_there_already_changes_nothing(objects: list[Object]) -> None:
    found = topology(unique(objects))
    before = everything(found)
    assert found.update(unique(objects)) == frozenset()
    assert everything(found) == before
