"""What authors of policies are warned of, on a real API server and a real OPA."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.eventually import eventually
from tests.integration.test_policies import World
from tests.integration.test_policy_objects import CRD, NAMED
from tools.demo.fleet import cluster, replica_set
from tools.servers.secured_opa import RunningOpa
from tools.servers.stack import RunningStack

DECISION = "package io.k8s.federation.admission\n\n"
GOOD = DECISION + 'annotations["a/b"] := "c" if input.kind == "ReplicaSet"\n'
SLIP = GOOD.replace("annotations", "anotations")
FAILS = """package io.k8s.federation.admission

annotations["a/cheap"] := {name: true |
	some name, cluster in data.kubernetes.clusters[_]
	to_number(cluster.metadata.labels["example.com/price"]) < 3
}
"""


@pytest.fixture
def world(stack: RunningStack, opa: RunningOpa, namespace: str, tmp_path: Path) -> World:
    return World(stack, opa, namespace, tmp_path)


def warnings(world: World, name: str = "p") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (world.status(name) or {}).get("warnings", [])
    return found


async def test_slip_is_said_on_the_policy_and_no_more_once_it_is_mended(
    world: World,
) -> None:
    world.policy("p", m=GOOD)
    with world.replicating():
        await eventually(lambda: world.status("p"), {"status": "ok"})
        world.policy("p", m=SLIP)
        await eventually(lambda: bool(warnings(world)), expected=True)
        assert world.status("p") == {
            "status": "ok",
            "warnings": [
                {
                    "code": "unknown_rule",
                    "file": f"{world.namespace}/p/m.rego",
                    "row": 3,
                    "message": "a decision has no 'anotations': it has annotations, errors, evict,"
                    " labels, reasons, warnings",
                    "suggestion": "annotations",
                }
            ],
        }
        world.policy("p", m=GOOD)
        await eventually(lambda: world.status("p"), {"status": "ok"})


async def test_annotation_that_no_policy_has_is_said_on_it(world: World) -> None:
    world.policy("p", m=GOOD)
    with world.replicating():
        where = f"--namespace={world.namespace}"
        world.stack.kubectl("annotate", "configmap", "p", "kube-sync.io/stand-for=q", where)
        await eventually(lambda: [one["code"] for one in warnings(world)], ["unknown_annotation"])
        assert warnings(world)[0]["suggestion"] == "kube-sync.io/stands-for"


@pytest.fixture
def kind(stack: RunningStack) -> Iterator[None]:
    stack.install_kinds(CRD)
    yield
    stack.kubectl("delete", "crd", NAMED)


@pytest.mark.usefixtures("kind")
async def test_placementpolicy_says_its_warnings_in_a_condition(world: World) -> None:
    policy: dict[str, Any] = {
        "apiVersion": "policy.kube-sync.io/v1alpha1",
        "kind": "PlacementPolicy",
        "metadata": {"name": "web", "namespace": world.namespace},
        "spec": {"modules": [{"name": "m.rego", "rego": SLIP}]},
    }

    def warned() -> tuple[str, str, str] | None:
        found = world.stack.api.get("placementpolicies", "web", world.namespace)
        for one in found.get("status", {}).get("conditions", ()):
            if one["type"] == "Warned":
                return one["status"], one["reason"], one["message"]
        return None

    with world.replicating():
        world.stack.api.apply(policy)
        said = (
            "m.rego:3: unknown_rule: a decision has no 'anotations': it has annotations, errors,"
            " evict, labels, reasons, warnings (meant: annotations?)"
        )
        await eventually(warned, ("True", "UnknownRule", said))
        policy["spec"]["modules"][0]["rego"] = GOOD
        world.stack.api.apply(policy)
        await eventually(warned, None)


async def test_builtin_that_fails_is_said_with_its_row_on_the_policy(world: World) -> None:
    for name, price in (("cheap", "2"), ("odd", "cheap")):
        found = cluster(name, "europe-west1", "1")
        found["metadata"] |= {
            "namespace": world.namespace,
            "labels": {"example.com/price": price},
        }
        world.stack.api.apply(found)
    web = replica_set("web")
    web["metadata"]["namespace"] = world.namespace
    world.stack.api.apply(web)
    world.policy("p", m=FAILS)
    with world.replicating():
        await eventually(lambda: [one["code"] for one in warnings(world)], ["eval_builtin_error"])
        (warning,) = warnings(world)
        assert (warning["file"], warning["row"]) == (f"{world.namespace}/p/m.rego", 5)
        assert warning["message"].startswith("to_number failed ")
        assert "cheap" not in warning["message"]
