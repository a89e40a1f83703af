"""What a plan announces is what comes of the edit, object by object.

The other side is found without classes, analysis or the module that asks for many: every workload
is decided alone, by `opa eval`, over a fleet that was edited here.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from kube_sync.config import Guard, Opa, Remediate, Settings
from kube_sync.inspect.plan import command
from kube_sync.inspect.plan.request import Request
from kube_sync.opa.scratch import ScratchOpa
from tests.unit.inspect.plan.fleets import PLACEMENT, POLICY, ZONE, policy, replicaset, write, zoned
from tools.servers.binaries import ensure_binary

ZONES = ("eu", "us", "asia")
# Every workload at once, in one process: each with nothing but itself as input.
QUERY = """{name: decision |
    some name, workload in data.kubernetes.replicasets.shop
    decision := data.io.k8s.federation.admission with input as workload
}"""
POLICIES = (
    POLICY,
    POLICY.replace("== _zone(input.metadata.annotations)", '!= "eu"'),
    POLICY.replace("_fit}", '_fit; not endswith(name, "1")}'),
    POLICY.replace("count(_fit) == 0", 'startswith(input.metadata.name, "w1")'),
    POLICY.replace('"us"', '"eu"').replace("count(_fit) > 0", "count(_fit) > 2"),
)


def clusters_of(decision: Mapping[str, Any]) -> set[str] | str:
    """Return where a decision puts a workload, else in a word why nowhere."""
    if decision.get("errors"):
        return "refused"
    if PLACEMENT not in decision.get("annotations", {}):
        return "not placed"  # what nobody but its owner has written stays
    return set(decision["annotations"][PLACEMENT]["clusters"])


def placed(on: set[str] | str) -> list[str]:
    return sorted(on) if isinstance(on, set) else []


async def decided(source: str, fleet: list[Any], workloads: list[Any]) -> dict[str, Any]:
    scratch = ScratchOpa(str(ensure_binary("opa")))
    data = {
        "kubernetes": {
            "clusters": {"fleet": {c["metadata"]["name"]: c for c in fleet}},
            "replicasets": {"shop": {w["metadata"]["name"]: w for w in workloads}},
        }
    }
    found: dict[str, Any] = await scratch.evaluated({"p": source}, data, {}, QUERY)
    return {name: clusters_of(decision) for name, decision in found.items()}


@pytest.mark.parametrize("seed", range(6))
async def test_what_is_announced_is_what_comes_of_the_edit(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311 - no secret is made of it
    fleet = [zoned(f"c{n}", chance.choice(ZONES)) for n in range(6)]
    bare = [replicaset(f"w{n}", chance.choice(ZONES)) for n in range(40)]
    before = await decided(POLICY, fleet, bare)
    workloads = [
        replicaset(name, w["metadata"]["annotations"][ZONE], *placed(before[name]))
        for w in bare
        for name in [w["metadata"]["name"]]
    ]
    one, other = chance.sample(range(6), 2)
    zone, source = chance.choice(ZONES), chance.choice(POLICIES)
    edited = deepcopy(fleet)
    edited[one]["metadata"]["labels"][ZONE] = zone
    del edited[other]
    after = await decided(source, edited, workloads)
    expected = {n: placed(on) for n, on in after.items() if placed(on) and on != before[n]}

    file = tmp_path / "policy.rego"
    file.write_text(source)
    request = Request(
        exported=write(tmp_path / "fleet", policy(), *fleet, *workloads),
        files=(str(file),),
        fields=(f"c{one}.labels.{ZONE}={zone}",),
        removed=(f"c{other}",),
        form="json",
    )
    settings = Settings(
        opa=Opa(binary=str(ensure_binary("opa"))), remediate=Remediate(guard=Guard(shrink_share=1))
    )
    plan = json.loads((await command.run(request, settings, print)).text)
    announced = {w["name"]: w["to"] for w in plan["workloads"] if w["effect"] in ("moves", "adds")}
    assert announced == expected
    silent = {w["name"] for w in plan["workloads"]} - announced.keys()
    assert silent == {n for n, on in after.items() if on == "refused" != before[n]}
