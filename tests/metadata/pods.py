"""Pods as they come in the field and at its edges, that the API server takes, by a seed."""

from __future__ import annotations

import random
from typing import Any

# The same amounts in many spellings, from small to large: equal where Kubernetes says so, which no
# comparison of texts sees, and none of floats.
_CPU = (
    # The API server rounds up to thousandths before it compares.
    ("1n", "0.1n", "1e-10", "0.5e-9", "1m", "999999n", "0.001", "1e-3"),
    ("101m", "100001u", "100000001n", "0.1005"),
    ("100m", "0.1", "100000u", "100000000n", "1e-1", ".1", "0.10", "+100m"),
    ("250m", "0.25", "25e-2", "250000u"),
    ("1", "1000m", "1.0", "1.", "1000000u", "0.001k", "1e0", "1E0"),
    ("2", "2000m", "2e0", "0.002k"),
)
_MEMORY = (
    ("1", "0.001k", "1000m", "1e0"),
    ("128Mi", "134217728", "134217728000m", "131072Ki", "0.125Gi", "134217.728k"),
    ("1G", "1000M", "1e9", "1E9", "1000000k", "1000000000"),
    ("1Gi", "1024Mi", "1073741824", "1048576Ki"),
    ("1E", "1e18", "1000P"),
    ("8Ei", "9Ei", "9223372036854775807"),
    ("9223372036854775808", "9223372036854775808000m"),
)
_ZERO = ("0", "0m", "0Ki", "0.0", "0e3")
_RUNGS = {"cpu": _CPU, "memory": _MEMORY}


def pod(seed: int, kind: str) -> dict[str, Any]:
    """Return a pod made to be of this class, or `any`; most of them are."""
    chance = random.Random(seed)  # noqa: S311 - a test that can be told again
    spec: dict[str, Any] = {"containers": _containers(chance, kind, "c", chance.randint(1, 3))}
    if chance.random() < 0.4:
        spec["initContainers"] = _containers(chance, kind, "i", chance.randint(1, 2))
    if chance.random() < 0.2:
        spec["resources"] = _of_pod(chance)
    name = f"p-{kind.lower()}-{seed}"
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def _containers(chance: random.Random, kind: str, name: str, count: int) -> list[dict[str, Any]]:
    found = []
    for index in range(count):
        container: dict[str, Any] = {"name": f"{name}{index}", "image": "i"}
        resources = _resources(chance, kind)
        if resources is not None:
            container["resources"] = resources
        if name == "i" and chance.random() < 0.5:
            container["restartPolicy"] = "Always"
        found.append(container)
    return found


def _resources(chance: random.Random, kind: str) -> dict[str, Any] | None:
    if kind == "Guaranteed":
        return _equal(chance)
    if kind == "BestEffort":
        return chance.choice((None, {}, _zero(chance), {"limits": {"example.com/gpu": "1"}}))
    return chance.choice((None, _zero(chance), _equal(chance), _some(chance), _some(chance)))


def _zero(chance: random.Random) -> dict[str, Any]:
    field = chance.choice(("requests", "limits"))
    return {field: {chance.choice(("cpu", "memory")): chance.choice(_ZERO)}}


def _equal(chance: random.Random) -> dict[str, Any]:
    limits, requests = {}, {}
    for name, rungs in _RUNGS.items():
        rung = chance.choice(rungs)
        limits[name] = chance.choice(rung)
        if chance.random() < 0.7:
            requests[name] = chance.choice(rung)
    return {"limits": limits} | ({"requests": requests} if requests else {})


def _some(chance: random.Random) -> dict[str, Any]:
    found: dict[str, dict[str, Any]] = {"limits": {}, "requests": {}}
    for name, rungs in _RUNGS.items():
        rung = chance.randrange(len(rungs))
        if chance.random() < 0.7:
            found["limits"][name] = chance.choice(rungs[rung])
        if chance.random() < 0.7:  # at most the limit, or the API server refuses the pod
            below = rungs[chance.randint(max(0, rung - 1), rung)]
            found["requests"][name] = chance.choice((*below, chance.choice(_ZERO)))
    return found


def _of_pod(chance: random.Random) -> dict[str, Any]:
    amounts = {"cpu": ("64", "64000m"), "memory": ("7E", "7000P")}
    choice = chance.random()
    if choice < 0.15:
        return {}
    limits = {n: chance.choice(a) for n, a in amounts.items() if chance.random() < 0.8}
    if choice < 0.5:
        return {"limits": limits}
    requests = {n: chance.choice(a) for n, a in amounts.items() if n in limits or choice > 0.8}
    return {"limits": limits, "requests": requests}
