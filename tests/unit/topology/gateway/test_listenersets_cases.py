"""ListenerSets by cases, each of objects (`<name>.in.yaml`) and what comes of them (`.out.yaml`).

They have the shape of the cases of implementations of the Gateway API, to be read beside these.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from kube_sync.topology import Locator, Topology
from kube_sync.topology.gateway import GATEWAY_CLASS, ROUTES
from kube_sync.topology.hints import COLOR_POLICY
from tests.fakes.topologies import topology

CASES = Path(__file__).parents[3] / "cases/listenersets"


@pytest.mark.parametrize("name", sorted(one.name[:-8] for one in CASES.glob("*.in.yaml")))
def test_listenersets_come_to_what_the_case_says(name: str) -> None:
    given = yaml.safe_load((CASES / f"{name}.in.yaml").read_text(encoding="utf-8"))
    expected = yaml.safe_load((CASES / f"{name}.out.yaml").read_text(encoding="utf-8"))
    found = topology([one for objects in given.values() for one in objects])
    assert _attached(found) == expected["attached"]
    assert _conditions(found) == expected["conditions"]
    assert _effective(found) == expected.get("effective", {})


def _attached(found: Topology) -> dict[str, list[str]]:
    """Return the listeners of each route, with what they are of: two objects may have one name."""
    routes = [node for node in found.nodes() if node.kind in ROUTES]
    return {
        route.full_name: sorted(_listener(found, one) for one in found.all.parents(route.locator))
        for route in routes
    }


def _listener(found: Topology, locator: Locator) -> str:
    node = found[locator]
    assert node.owner is not None
    return f"{found[node.owner].kind.kind} {node.full_name}"


def _conditions(found: Topology) -> list[str]:
    """Return conditions of what is not of a Gateway whose class is left out of the case."""
    return sorted(
        f"{_name(found, one.locator)} {one.type} {one.status} {one.reason}"
        for one in found.conditions()
        if "gatewayClassName" not in one.message
    )


def _effective(found: Topology) -> dict[str, dict[str, Any]]:
    return {
        " > ".join(_name(found, one) for one in effective.path): {
            rule: value["color"] for rule, value in effective.spec.items()
        }
        for effective in found.effective(COLOR_POLICY.id)
        if effective.combined
    }


def _name(found: Topology, locator: Locator) -> str:
    node = found[locator]
    return node.name if node.kind == GATEWAY_CLASS else node.full_name
