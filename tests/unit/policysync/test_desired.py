"""No label is no cluster; a label without a decision is no answer."""

from __future__ import annotations

from typing import Any

import pytest

from kube_sync.policysync.desired import Placement, placement
from tests.fakes.syncing import decision, gateway


def test_a_gateway_is_on_the_clusters_of_all_its_decisions() -> None:
    names = [f"c{n}" for n in range(250)]
    slices = [decision(*names[n : n + 100]) for n in range(0, 250, 100)]
    found = placement(gateway(), [*slices, decision("x", placement="other"), {}, {"metadata": 1}])
    assert found == Placement(frozenset(names))


def test_a_gateway_without_the_label_is_nowhere() -> None:
    assert placement(gateway(placement=None), [decision("c1")]) == Placement()


def test_a_decision_for_no_cluster_is_an_answer() -> None:
    assert placement(gateway(), [decision()]) == Placement()
    assert placement(gateway(), [{"metadata": decision()["metadata"]}]) == Placement()


def test_a_label_without_a_decision_is_told_and_is_not_no_clusters() -> None:
    found = placement(gateway(), [decision("c1", placement="other")])
    assert found == Placement(problem='there is no PlacementDecision of placement "web"')


@pytest.mark.parametrize(
    ("broken", "told"),
    [
        ({"decisions": "x"}, "status.decisions: expected a list, found text"),
        ({"decisions": [1]}, "status.decisions[0]: expected a mapping, found a number"),
        ({"decisions": [{"clusterName": 1}]}, "clusterName: expected text, found a number"),
        ({"decisions": [{}]}, 'status.decisions: "" is the name of no cluster'),
        ({"decisions": [{"clusterName": "../x"}]}, '"../x" is the name of no cluster'),
        ("x", "status: expected a mapping, found text"),
    ],
)
def test_a_decision_that_cannot_be_read_is_told(broken: Any, told: str) -> None:
    found = placement(gateway(), [decision("c1"), {**decision(), "status": broken}])
    assert not found.clusters
    assert found.problem.startswith("its placement cannot be read: ")
    assert told in found.problem


def test_a_gateway_that_cannot_be_read_is_told() -> None:
    assert placement({"metadata": {"labels": []}}, []).problem
