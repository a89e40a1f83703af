from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_sync.objects import GroupVersionResource
from kube_sync.remediation.sinks.slices import LIMIT, decision_key, divided, mark

REPLICASETS = GroupVersionResource("apps", "v1", "replicasets")

_names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=253)
_plurals = st.from_regex(r"[a-z]([-a-z]{0,61}[a-z])?", fullmatch=True)
_fleets = st.sets(st.integers(0, 350).map(lambda n: f"c{n:03}"), max_size=350)


@given(_plurals, _names, st.none() | _names)
def test_a_decision_key_is_a_label_and_begins_a_name(
    plural: str, name: str, namespace: str | None
) -> None:
    key = decision_key(GroupVersionResource("", "v1", plural), name, namespace)
    assert len(key) <= 63
    assert re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", key)


def test_a_decision_key_shows_what_it_is_of() -> None:
    assert re.fullmatch(r"replicasets-web-[0-9a-f]{10}", decision_key(REPLICASETS, "web"))


@pytest.mark.parametrize(
    "other",
    [
        (GroupVersionResource("extensions", "v1", "replicasets"), "a.b"),
        (REPLICASETS, "a-b"),
        (REPLICASETS, "a.b" + "x" * 200),
    ],
)
def test_resources_that_look_alike_have_keys_of_their_own(
    other: tuple[GroupVersionResource, str],
) -> None:
    assert decision_key(REPLICASETS, "a.b") != decision_key(*other)


def test_where_namespaces_share_one_a_key_shows_whose_it_is() -> None:
    key = decision_key(REPLICASETS, "web", "shop")
    assert re.fullmatch(r"shop-replicasets-web-[0-9a-f]{20}", key)
    pairs = [("a-b", "c"), ("a", "b-c"), ("", "a-b-c")]
    assert len({decision_key(REPLICASETS, name, space) for space, name in pairs}) == 3


def test_another_version_of_a_resource_is_the_same_resource() -> None:
    later = GroupVersionResource("apps", "v2", "replicasets")
    assert mark(REPLICASETS, "web") == mark(later, "web") == "replicasets.apps/web"
    assert decision_key(REPLICASETS, "web") == decision_key(later, "web")
    assert mark(GroupVersionResource("", "v1", "pods"), "web") == "pods/web"


def test_no_cluster_is_one_empty_slice() -> None:
    """Which says that there is a placement, and that it is empty."""
    assert divided((), {}) == [[]]


def test_more_than_a_hundred_clusters_are_as_few_slices_as_hold_them() -> None:
    names = [f"c{n:03}" for n in range(250)]
    assert divided(reversed(names), {}) == [names[:100], names[100:200], names[200:]]


def test_a_cluster_that_joins_moves_no_other() -> None:
    names = [f"c{n:03}" for n in range(150)]
    before = dict(enumerate(divided(names, {})))
    after = divided([*names, "a"], before)
    assert after == [before[0], ["a", *before[1]]]


@given(_fleets, _fleets)
def test_each_cluster_is_in_exactly_one_slice_and_dividing_again_changes_nothing(
    before: set[str], after: set[str]
) -> None:
    held = dict(enumerate(divided(before, {})))
    slices = divided(after, held)
    assert sorted(name for found in slices for name in found) == sorted(after)
    assert all(len(found) <= LIMIT for found in slices)
    assert len(slices) == max(1, -(-len(after) // LIMIT))
    assert divided(after, dict(enumerate(slices))) == slices


@given(_fleets, _fleets)
def test_a_cluster_that_stays_is_there_at_every_moment_of_the_change(
    before: set[str], after: set[str]
) -> None:
    """A reader that misses it for a moment would take the workload away."""
    there = dict(enumerate(divided(before, {})))
    slices = divided(after, there)
    steps = [*enumerate(slices), *((i, []) for i in there if i >= len(slices))]
    for index, clusters in steps:
        there[index] = clusters
        assert before & after <= {name for found in there.values() for name in found}
