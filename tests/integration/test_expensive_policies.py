"""Policies that take memory or time without end, on real servers: nothing ends but they."""

from __future__ import annotations

import asyncio
import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests import eventually as waiting
from tests.integration.test_policies import World
from tools.servers.binaries import ensure_binary
from tools.servers.errors import StartFailed
from tools.servers.secured_opa import RunningOpa
from tools.servers.stack import RunningStack

# Each of these has OPA work to its limits, several times over; a busy machine takes long for that.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]
eventually = partial(waiting.eventually, seconds=180)
LIMITS = {"memory_bytes": 256 * 2**20, "cpu_seconds": 10, "timeout_seconds": 10}
_DOUBLED = "\n".join(f"a{i} := [a{i - 1}, a{i - 1}]" for i in range(1, 40))
# Each type has the one before twice, and the compiler compares them element by element.
COMPILED = f"""package greedy

a0 := [1]
{_DOUBLED}

x if a39 == a39
"""
RANGE = """package io.k8s.federation

admission := {"n": count(numbers.range(1, 1e10))}
"""
COMPREHENSION = """package io.k8s.federation

admission := {"n": count([1 | some i in few; some j in few; some k in few])}

few := numbers.range(1, 3000)
"""
# Each rule holds the one before twice, at two depths: OPA shares them, who follows them cannot.
DOUBLING = "\n".join(
    [
        "package io.k8s.federation",
        "admission := {} if x40 != input.b",
        "x0 := input.a",
        *(f"x{n} := [x{n - 1}, [x{n - 1}]]" for n in range(1, 41)),
    ]
)
MODEST = """package io.k8s.federation

admission := {"n": 1}
"""


@pytest.fixture
def world(stack: RunningStack, opa: RunningOpa, namespace: str, tmp_path: Path) -> World:
    found = World(stack, opa, namespace, tmp_path)
    template = {
        "metadata": {"labels": {"a": "b"}},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    }
    manifest = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {"name": "r", "namespace": namespace},
        "spec": {"replicas": 0, "selector": {"matchLabels": {"a": "b"}}, "template": template},
    }
    stack.kubectl("apply", "--server-side", "-f", "-", stdin=json.dumps(manifest))
    return found


def error(world: World, name: str) -> dict[str, Any]:
    found: dict[str, Any] = (world.status(name) or {}).get("error") or {}
    return found


def events(world: World) -> list[tuple[str, str, str, str]]:
    """Return the Events of the namespace: type, reason, what it is about, and message."""
    where = ("events.events.k8s.io", f"--namespace={world.namespace}", "--output=json")
    found = json.loads(world.stack.kubectl("get", *where))["items"]
    return [(e["type"], e["reason"], e["regarding"]["name"], e["note"]) for e in found]


async def test_policy_that_compiles_without_end_is_refused_and_delays_no_other(
    world: World,
) -> None:
    with world.replicating(compile=LIMITS):
        epoch = world.data("kube_sync/epoch")
        world.policy("greedy", m=COMPILED)
        world.policy("other", m="package other\n\nx := 1\n")
        await eventually(lambda: world.data("other/x"), 1)
        await eventually(lambda: error(world, "greedy").get("code"), "too_expensive")
        assert error(world, "greedy")["message"].startswith("too expensive to compile (more than ")
        await eventually(lambda: world.status("other"), {"status": "ok"})
        assert world.data("kube_sync/epoch") == epoch, "nothing ended"
        said = error(world, "greedy")["message"]
        await eventually(lambda: events(world), [("Warning", "TooExpensive", "greedy", said)])
        world.policy("greedy", m="package greedy\n\nx := 2\n")
        await eventually(lambda: world.data("greedy/x"), 2)


async def test_edits_that_are_too_expensive_in_a_row_let_others_pass(world: World) -> None:
    names = [f"greedy-{n}" for n in range(3)]

    def codes() -> set[str]:
        return {error(world, name).get("code", "") for name in names}

    def edit(turn: int) -> None:
        for name in names:
            world.policy(name, m=f"# {name} {turn}\n{COMPILED}")
        world.policy("other", m=f"package other\n\nx := {turn}\n")

    limits = {**LIMITS, "cpu_seconds": 4, "timeout_seconds": 4}
    with world.replicating(compile=limits):
        edit(1)
        await eventually(lambda: world.data("other/x"), 1)
        await eventually(codes, {"too_expensive"})
        edit(2)
        await eventually(lambda: world.data("other/x"), 2)
        await eventually(lambda: "waiting" in codes(), True)  # noqa: FBT003
        await eventually(codes, {"too_expensive"})


@pytest.mark.parametrize("source", [RANGE, COMPREHENSION], ids=["range", "comprehension"])
async def test_policy_that_decides_without_end_never_reaches_the_opa_that_serves(
    world: World, source: str
) -> None:
    world.policy("p", m=MODEST)
    with world.replicating(compile=LIMITS):
        assert world.data("io/k8s/federation/admission/n") == 1
        epoch = world.data("kube_sync/epoch")
        world.policy("p", m=source)
        await eventually(lambda: error(world, "p").get("code"), "too_expensive")
        assert error(world, "p")["message"].startswith("too expensive to evaluate (more than ")
        assert world.status("p")["in_force"] == "the last good version"
        assert world.data("io/k8s/federation/admission/n") == 1
        assert world.data("kube_sync/epoch") == epoch, "nothing ended"


@pytest.mark.parametrize(
    ("source", "warned"),
    [
        (DOUBLING, ["nested too deeply"]),
        (f"# METADATA\n{'#' * 500_000}\npackage p\n\nx := 1\n", []),
    ],
    ids=["analysis", "comment"],
)
async def test_policy_that_nobody_can_read_to_the_end_delays_no_other(
    world: World, source: str, warned: list[str]
) -> None:
    world.policy("p", m=source)
    with world.replicating(compile=LIMITS):
        world.policy("other", m="package other\n\nx := 1\n")
        await eventually(lambda: world.data("other/x"), 1)
        await eventually(lambda: (world.status("p") or {}).get("status"), "ok")
        warnings = world.status("p").get("warnings", [])
        said = [one["message"] for one in warnings]
        assert [text for text, one in zip(warned, said, strict=True) if text in one] == warned


async def test_policy_that_opa_cannot_show_is_refused_and_stops_no_epoch(world: World) -> None:
    world.policy("p", m=f"package p\n\nx := {'[' * 900}1{']' * 900}\n")
    world.policy("other", m="package other\n\nx := 1\n")
    for _ in range(2):  # the second one asks an OPA that holds the policies of the first
        with world.replicating(compile=LIMITS):
            await eventually(lambda: world.data("other/x"), 1)
            await eventually(lambda: error(world, "p").get("code"), "too_expensive")
            assert "nested too deeply" in error(world, "p")["message"]


async def test_version_that_ends_the_replicator_twice_is_not_tried_a_third_time(
    world: World, tmp_path: Path
) -> None:
    """A compiler that kills whoever started it stands for one that takes all memory there is."""
    deadly = tmp_path / "deadly"
    script = f'#!/bin/sh\ngrep -qrs deadly . && kill -9 $PPID\nexec {ensure_binary("opa")} "$@"\n'
    deadly.write_text(script, encoding="utf-8")
    deadly.chmod(0o755)
    world.policy("good", m="package good\n\nx := 1\n")
    with world.replicating(binary=str(deadly)) as server:
        world.policy("p", m="package p\n\ndeadly := 1\n")
        await eventually(server.alive, False)  # noqa: FBT003
    with pytest.raises(StartFailed), world.replicating(binary=str(deadly)):
        pass
    with world.replicating(binary=str(deadly)):
        await eventually(lambda: error(world, "p").get("code"), "not_tried")
        assert "the replicator ended 2 times while it compiled" in error(world, "p")["message"]
        assert world.data("good/x") == 1
        world.policy("p", m="package p\n\nharmless := 1\n")
        await eventually(lambda: world.data("p/harmless"), 1)


async def test_revision_in_which_opa_ends_three_times_gives_way_to_the_one_before(
    world: World,
) -> None:
    world.policy("p", m="package p\n\nx := 1\n")
    world.policy("q", m="package q\n\nx := 1\n")
    with world.replicating():
        world.policy("p", m="package p\n\nx := 2\n")
        for _ in range(3):
            await eventually(lambda: world.data("p/x"), 2)
            world.opa.server.kill()
            await asyncio.to_thread(world.opa.server.start)
        await eventually(lambda: world.data("p/x"), 1)
        assert world.data("q/x") == 1
        await eventually(lambda: error(world, "p").get("code"), "quarantined")
        assert "OPA ended 3 times while this version was in force" in error(world, "p")["message"]
        assert world.status("q") == {"status": "ok"}
        said = error(world, "p")["message"]
        await eventually(lambda: events(world), [("Warning", "Quarantined", "p", said)])
    with world.replicating():  # another one knows it too
        assert world.data("p/x") == 1
        assert error(world, "p")["code"] == "quarantined"
        world.policy("p", m="package p\n\nx := 3\n")
        await eventually(lambda: world.data("p/x"), 3)


async def killed(world: World, x: int, times: int = 3) -> None:
    """End OPA so often while it holds this version of `p`."""
    for _ in range(times):
        await eventually(lambda: world.data("p/x"), x)
        world.opa.server.kill()
        await asyncio.to_thread(world.opa.server.start)


async def test_edit_that_opa_ends_without_as_well_is_tried_again_and_says_so(world: World) -> None:
    world.policy("p", m="package p\n\nx := 1\n")
    with world.replicating():
        world.policy("p", m="package p\n\nx := 2\n")
        await killed(world, 2)
        await killed(world, 1)
        await eventually(lambda: world.data("p/x"), 2)
        await eventually(lambda: (world.status("p") or {}).get("status"), "ok")
        (warning,) = world.status("p")["warnings"]
        said = warning["message"]
        assert said.startswith("OPA went on ending while this version was taken back")
        released = ("Warning", "OpaEndsUnexplained", "p", said)
        await eventually(lambda: released in events(world), True)  # noqa: FBT003


async def test_count_of_ends_of_opa_outlives_the_replicator(world: World) -> None:
    world.policy("p", m="package p\n\nx := 1\n")
    with world.replicating():
        world.policy("p", m="package p\n\nx := 2\n")
        await killed(world, 2, times=2)
        await eventually(lambda: world.data("p/x"), 2)
    with world.replicating():
        await killed(world, 2, times=1)
        await eventually(lambda: world.data("p/x"), 1)
        await eventually(lambda: error(world, "p").get("code"), "quarantined")
