"""What topologies cost, counted in calls: the same on every machine, however busy it is."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType

from benchmarks.topology import paths
from kube_sync.topology.pictures import dot
from tests.fakes.topologies import route, topology, world


def calls(work: Callable[[], object]) -> int:
    """Return how many functions are called, those of the interpreter among them."""
    count = 0

    def counting(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(counting)
    try:
        work()
    finally:
        sys.setprofile(before)
    return count


def full(listeners: int, routes: int, *, bound: bool) -> int:
    objects = list(world(listeners, routes, bound=bound))
    return calls(lambda: paths(topology(objects)))


def test_twice_the_routes_cost_twice_as_much() -> None:
    assert full(1, 200, bound=False) < 2.1 * full(1, 100, bound=False)


def test_a_path_costs_less_than_a_route() -> None:
    """Sixteen times the paths: routes that name no listener, so each has one by each."""
    assert full(16, 50, bound=False) < 6 * full(16, 50, bound=True)


def test_a_change_costs_what_it_touches() -> None:
    def changed(routes: int) -> int:
        found = topology(world(1, routes, bound=False))
        paths(found)
        return calls(lambda: found.update([route("route-7", parentRefs=[{"name": "none"}])]))

    assert changed(200) <= changed(20) * 1.5
    assert changed(200) < full(1, 200, bound=False) / 100


def test_paths_with_the_same_policies_are_combined_once() -> None:
    found = topology(world(16, 10, bound=False))
    combined = {id(one.combined) for kind in found.policy_kinds for one in found.effective(kind)}
    assert len(combined) == 10


def test_a_gateway_with_64_listeners_and_300_routes_that_name_none_has_each_of_its_paths() -> None:
    """Too big a picture for a ConfigMap, and no trouble otherwise."""
    found = topology(world(64, 300, bound=False))
    ids = {one.path_id for kind in found.policy_kinds for one in found.effective(kind)}
    assert len(ids) == 64 * 300
    assert len(dot(found, 900 * 1024)) < 200
