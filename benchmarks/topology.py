"""The topology in memory: how its cost grows, what a path costs, and what one change costs.

No server and no file: objects are made before the clock starts. A full build is the graph, every
path and every effective policy. Each figure is a median; ratios are of figures of the same run.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator

from benchmarks.topologyburst import measure_burst
from kube_sync.topology import PolicyKind
from kube_sync.topology.hints import COLOR_POLICY
from kube_sync.topology.pictures import dot
from kube_sync.topology.policy_definitions import declared
from kube_sync.topology.status.owned_configmaps import LIMIT
from kube_sync.topology.status.plan import Planner
from kube_sync.topology.topology import Topology
from tests.fakes.released import released_kind
from tests.fakes.topologies import (
    API,
    Object,
    gateway,
    gateway_class,
    made,
    route,
    target,
    topology,
    world,
)

_ROUTES = 1000
_LISTENERS, _UNBOUND = 64, 300
_CHANGES = 20


def measure_topology(runs: int) -> dict[str, float]:
    """Measure full builds of several sizes, and changes of one route."""
    half, whole = list(world(1, _ROUTES // 2, bound=False)), list(world(1, _ROUTES, bound=False))
    bound = list(world(_LISTENERS, _UNBOUND, bound=True))
    unbound = list(world(_LISTENERS, _UNBOUND, bound=False))
    assert paths(topology(unbound)) == _LISTENERS * _UNBOUND  # noqa: S101 - what is measured
    half_s, whole_s, bound_s, unbound_s = _together(runs, half, whole, bound, unbound)
    limits_s, auth_s = _kuadrant(runs)
    moved_s, told_s = _one_change(whole)
    return {
        f"topology, full build, {_ROUTES // 2} routes (ms)": half_s * 1e3,
        f"topology, full build, {_ROUTES} routes (ms)": whole_s * 1e3,
        "topology, twice the routes, ratio": whole_s / half_s,
        f"topology, {_UNBOUND} paths, routes bound to one of {_LISTENERS} (ms)": bound_s * 1e3,
        f"topology, {_LISTENERS * _UNBOUND} paths, routes unbound (ms)": unbound_s * 1e3,
        f"topology, {_LISTENERS} times the paths, ratio": unbound_s / bound_s,
        f"topology, one of {_ROUTES} routes moves (ms)": moved_s * 1e3,
        f"topology, {_ROUTES} routes with RateLimitPolicies, ratio": limits_s / whole_s,
        f"topology, {_ROUTES} routes with AuthPolicies, ratio": auth_s / whole_s,
        "topology, one route to a full build, ratio": moved_s / whole_s,
        "topology, one route and all conditions, ratio": told_s / whole_s,
        f"topology, what {_ROUTES} routes and as many policies say, and the picture (ms)": (
            _told(whole, runs) * 1e3
        ),
    } | measure_burst(whole, _ROUTES, runs)


def paths(found: Topology) -> int:
    """Compute every effective policy, and return how many there are."""
    return sum(1 for _ in found.effective(COLOR_POLICY.id))


def _together(runs: int, *worlds: list[Object]) -> list[float]:
    """Return the seconds of a full build of each world, measured in turns."""
    found: list[list[float]] = [[] for _ in worlds]
    for _ in range(runs):
        for times, objects in zip(found, worlds, strict=True):
            times.append(_seconds(lambda objects=objects: paths(topology(objects))))  # type: ignore[misc]
    return [statistics.median(times) for times in found]


def _kuadrant(runs: int) -> tuple[float, float]:
    """Return the seconds of full builds with Kuadrant's kinds, as its operator releases them."""
    found: list[list[float]] = [[], []]
    for _ in range(runs):
        for times, kind in zip(found, ("RateLimitPolicy", "AuthPolicy"), strict=True):
            policies = declared(released_kind("kuadrant", kind), API.kinds)
            objects = list(_with_policies(kind))
            times.append(_seconds(lambda o=objects, p=policies: _effective(o, p)))  # type: ignore[misc]
    return statistics.median(found[0]), statistics.median(found[1])


def _effective(objects: list[Object], kind: PolicyKind) -> int:
    return sum(1 for _ in topology(objects, API, kind).effective(kind.id))


def _with_policies(kind: str) -> Iterator[Object]:
    """Yield one gateway and many routes, each with a policy that is merged with the gateway's."""
    limit, oidc = {"rates": [{"limit": 5, "window": "1m"}]}, {"jwt": {"issuerUrl": "https://a.io"}}
    rules: dict[str, tuple[Object, Object]] = {
        "RateLimitPolicy": ({"limits": {"global": limit}}, {"limits": {"peruser": limit}}),
        "AuthPolicy": (
            {"rules": {"authentication": {"oidc": oidc}}},
            {"when": [], "rules": {"authorization": {"opa": {"opa": {}}}}},
        ),
    }
    above, below = rules[kind]
    yield gateway_class()
    yield gateway("my-gateway", {"name": "l0", "port": 1})
    whole = {"targetRef": target(), "overrides": {"strategy": "merge", **above}}
    yield made(f"kuadrant.io/v1/{kind}", "gateway", whole)
    for number in range(_ROUTES):
        name = f"route-{number}"
        yield route(name, hostnames=[f"{name}.example.com"])
        spec = {"targetRef": target("HTTPRoute", name), **below}
        yield made(f"kuadrant.io/v1/{kind}", name, spec)


def _one_change(objects: list[Object]) -> tuple[float, float]:
    """Return the seconds until a route that changed its gateway is reflected, and is told."""
    found = topology(objects)
    paths(found)
    found.conditions()
    moved, told = [], []
    for number in range(_CHANGES):
        name = f"route-{number}"
        elsewhere = route(name, parentRefs=[{"name": "none"}])
        for change in (elsewhere, next(o for o in objects if o["metadata"]["name"] == name)):
            moved.append(_seconds(lambda change=change: _take(found, change)))  # type: ignore[misc]
            told.append(moved[-1] + _seconds(found.conditions))
    return statistics.median(moved), statistics.median(told)


def _take(found: Topology, change: Object) -> int:
    found.update([change])
    return paths(found)


def _told(objects: list[Object], runs: int) -> float:
    """Return the seconds in which all that is to be written is made, nothing being there."""
    stored = {"uid": "u", "resourceVersion": "1", "generation": 1}
    found = topology([body | {"metadata": body["metadata"] | stored} for body in objects])
    paths(found)
    return statistics.median(_seconds(lambda: _look(found)) for _ in range(runs))


def _look(found: Topology) -> int:
    planner = Planner(found, lambda _: True, "2026-01-01T00:00:00Z")
    nodes = [node for node in found.nodes() if node.owner is None and planner.has_status(node)]
    steps = sum(planner.step(node, node.body) is not None for node in nodes)
    dot(found, LIMIT)
    return steps


def _seconds(work: Callable[[], object]) -> float:
    begun = time.process_time()  # one thread that waits for nothing: what others do is left out
    work()
    return time.process_time() - begun
