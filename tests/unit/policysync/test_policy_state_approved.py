from __future__ import annotations

from typing import Any

import pytest

from kube_sync.kube.approvals import APPROVED
from kube_sync.objects import ObjectKey
from kube_sync.policysync.policy_state import approved_in
from tests.unit.policysync.test_hubstate import World, put

PARAMS, NOW = ObjectKey("system", "params"), 1_000_000.0


def approve(world: World, notes: Any, key: ObjectKey = PARAMS) -> None:
    put(world.state.configmaps, key, metadata={"annotations": notes}, data={"params": "{}"})


def test_what_the_parameters_of_a_class_approve_is_let_through() -> None:
    world = World()
    assert approved_in(world.state, NOW) == set()
    approve(world, {APPROVED: f"moves-1@{NOW:.0f},moves-2@1"})
    assert approved_in(world.state, NOW) == {"moves-1"}


def test_what_another_configmap_approves_counts_for_nothing() -> None:
    world = World()
    approve(world, {APPROVED: "moves-1"}, ObjectKey("system", "of-somebody"))
    put(world.state.classes, ObjectKey("", "plain"), spec={})
    assert approved_in(world.state, NOW) == set()


@pytest.mark.parametrize("notes", [[1], {APPROVED: 5}])
def test_an_annotation_of_the_wrong_shape_approves_nothing(notes: Any) -> None:
    world = World()
    approve(world, notes)
    assert approved_in(world.state, NOW) == set()
