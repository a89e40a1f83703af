"""Whatever comes, in whatever order, by whatever updates: the same world is the same bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from kube_sync.topology import PolicyKind, Topology
from kube_sync.topology.hints import COLOR_POLICY
from kube_sync.topology.nodes import Role, node_of
from kube_sync.topology.pictures import dot, svg
from kube_sync.topology.report import as_json, report
from tests.fakes.topologies import (
    API,
    GROUP,
    NS,
    WIDE,
    Object,
    allowing,
    color,
    gateway,
    gateway_class,
    grant,
    listener,
    listener_set,
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
    target("ListenerSet", "s0"),
    target("ListenerSet", "s0", sectionName="a"),
    target("HTTPRoute", "r0"),
    target("HTTPRoute", "r0", sectionName="rule-1"),
    target("Service", "service"),
    target(name="none"),
]
VALUES = [None, "1", 1, True, 0, False, {"c": 1}, {"c": True, "d": None}, {"c": None}]
COLORS = st.dictionaries(st.sampled_from("xyz"), st.sampled_from(VALUES))
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
    synced = draw(st.sampled_from([False, False, True, "2020-06-01T00:00:00Z", "yesterday"]))
    return color(
        name, refs, namespace=space, synced=synced, **spec, **({"age": age} if age else {})
    )


@st.composite
def routes(draw: st.DrawFn) -> Object:
    refs = draw(st.lists(st.sampled_from(["a", "b", None, "none"]), max_size=3))
    named = [{"name": "my-gateway"}, *({"kind": "ListenerSet", "name": n} for n in ("s0", "s1"))]
    parents = [draw(st.sampled_from(named)) | ({"sectionName": r} if r else {}) for r in refs]
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
    allowing(gateway("my-gateway", listener("b")), "All"),
    allowing(gateway(), "Selector", selector={"matchLabels": {"team": "a"}}),
    listener_set("s0", listener("a", port=81), listener("b", hostname="a.example.com")),
    listener_set("s0", listener("a", port=81, protocol="TCP"), listener("b")),
    listener_set("s1", listener("a", port=81), creationTimestamp="2026-01-01T00:00:00Z"),
    listener_set("s1", parent={"name": "none"}),
    namespace(NS),
    namespace(NS, team="a"),
    namespace("other"),
    service("service", 80),
    service("service", 81),
    service("service", 80, namespace="other"),
    grant("other", (GROUP, "HTTPRoute", NS)),
    grant(NS, ("examples.kube-sync.io", "ColorPolicy", "other")),
]
ANY = st.one_of(policies(), routes(), st.sampled_from(OTHERS))
OBJECTS, CHANGES = st.lists(ANY, max_size=25), st.lists(ANY, max_size=6)


def unique(objects: Sequence[Object]) -> list[Object]:
    """Return the last of each: two of one name are no world."""
    return list({key(one): one for one in objects}.values())


def is_synced(one: Object) -> bool:
    return "kuadrant.io/policy-synced" in one["metadata"].get("annotations", {})


def as_synced(one: Object) -> Object:
    found = {
        "kuadrant.io/policy-synced": "true",
        "kuadrant.io/origin-creation": "1970-01-01T00:00:00Z",
    }
    return one | {"metadata": one["metadata"] | {"annotations": found}}


def key(one: Object) -> tuple[str, str, str]:
    metadata = one["metadata"]
    return one["kind"], metadata.get("namespace", ""), metadata["name"]


# Of each target all of them in force, or the first alone.
KINDS = st.sampled_from([WIDE, replace(COLOR_POLICY, merges=False)])


def everything(found: Topology) -> bytes:
    """Return all that can be read of a topology; paths are in the effective policies."""
    return as_json(report(found)) + dot(found).encode() + svg(found).encode()


@given(OBJECTS, KINDS, st.randoms(use_true_random=False))
def test_the_order_of_objects_means_nothing(
    objects: list[Object], kind: PolicyKind, random: object
) -> None:
    first = unique(objects)
    second = list(first)
    random.shuffle(second)  # type: ignore[attr-defined]
    assert everything(topology(first, API, kind)) == everything(topology(second, API, kind))


@given(OBJECTS, CHANGES, KINDS)
def test_updates_give_what_building_anew_gives(
    begin: list[Object], changes: list[Object], kind: PolicyKind
) -> None:
    world = {key(one): one for one in begin}
    found = topology(world.values(), API, kind)
    everything(found)  # so that there is something to be kept wrongly
    for change in changes:
        if world.get(key(change)) == change:
            del world[key(change)]
            kinds = found.kinds
            own = next(own for id_, own in kinds.items() if id_.kind == change["kind"])
            found.update(deleted=[node_of(own, change).locator])
        else:
            world[key(change)] = change
            found.update([change])
        assert everything(found) == everything(topology(world.values(), API, kind))


@given(OBJECTS, KINDS)
def test_a_synced_policy_takes_no_part_where_another_has_the_same_target(
    objects: list[Object], kind: PolicyKind
) -> None:
    found = topology(unique(objects), API, kind)
    read = [found.policy(node.locator) for node in found.nodes() if node.role is Role.POLICY]
    native = {
        place
        for policy, aim in read
        if not (policy.synced or policy.problem)
        for place in aim.targets
    }
    for policy, aim in read:
        if policy.synced:
            assert native.isdisjoint(found.in_force_at(policy.node.locator))
            if native.issuperset(aim.targets):
                effective = found.effective(kind.id)
                parts = [one.combined.policies for one in effective if one.combined]
                assert all(policy not in part for part in parts)


@given(OBJECTS, st.lists(policies(), max_size=6), KINDS)
def test_synced_policies_change_nothing_for_those_who_have_their_own(
    objects: list[Object], theirs: list[Object], kind: PolicyKind
) -> None:
    """Whoever calls a policy synced can only lower it: beside one at each place it is nothing."""
    own = [color(f"own{n}", place, rules={}) for n, place in enumerate(PLACES)]
    begin = unique([*(one for one in objects if not is_synced(one)), *own])
    known = {key(one) for one in begin}
    more = unique([as_synced(one) for one in theirs if key(one) not in known])
    before, after = topology(begin, API, kind), topology([*begin, *more], API, kind)
    for one, other in zip(before.effective(kind.id), after.effective(kind.id), strict=True):
        assert (one.path, one.spec, one.sources) == (other.path, other.spec, other.sources)


@given(OBJECTS)
def test_what_is_there_already_changes_nothing(objects: list[Object]) -> None:
    found = topology(unique(objects))
    before = everything(found)
    assert found.update(unique(objects)) == frozenset()
    assert everything(found) == before
