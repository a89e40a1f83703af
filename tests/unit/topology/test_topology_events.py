from __future__ import annotations

import copy
from typing import Any

import pytest

from kube_sync.topology.controller.events import (
    EventType,
    ResourceEvent,
    means_the_same,
)
from kube_sync.topology.gateway import GATEWAY
from kube_sync.topology.nodes import Body
from tests.fakes.topologies import NS, gateway

BODY = gateway()


def event(old: Body | None, new: Body | None, *, meaning: bool = True) -> ResourceEvent:
    return ResourceEvent(GATEWAY, NS, "my-gateway", old, new, meaning)


def test_an_event_is_what_its_two_states_make_it() -> None:
    assert event(None, BODY).type is EventType.CREATE
    assert event(BODY, BODY).type is EventType.UPDATE
    assert event(BODY, None).type is EventType.DELETE


def test_an_event_has_the_locator_of_the_topology() -> None:
    assert event(BODY, None).locator == f"gateway.gateway.networking.k8s.io:{NS}/my-gateway"


@pytest.mark.parametrize(
    ("path", "value", "same"),
    [
        (("status",), {"conditions": []}, True),
        (("metadata", "resourceVersion"), "2", True),
        (("metadata", "managedFields"), [{}], True),
        (("spec", "listeners"), [], False),
        (("data",), {}, False),
        (("apiVersion",), "gateway.networking.k8s.io/v1beta1", False),
        (("metadata", "labels"), {"a": "b"}, False),
        (("metadata", "annotations"), {"a": "b"}, False),
        (("metadata", "deletionTimestamp"), "2026-01-01T00:00:00Z", False),
        (("metadata", "uid"), "another", False),
        # Changed and changed back: its status is of a spec that is no more.
        (("metadata", "generation"), 3, False),
    ],
)
def test_only_the_status_and_bookkeeping_mean_nothing(
    path: tuple[str, ...],
    value: Any,
    same: bool,  # noqa: FBT001
) -> None:
    changed = copy.deepcopy(BODY)
    inside = changed
    for name in path[:-1]:
        inside = inside[name]
    inside[path[-1]] = value
    assert means_the_same(BODY, changed) is same
    assert means_the_same(changed, BODY) is same


def test_a_value_of_another_type_has_a_meaning() -> None:
    old, new = gateway(), gateway()
    old["spec"]["flag"], new["spec"]["flag"] = 1, True
    assert not means_the_same(old, new)
    old["spec"]["flag"] = True
    assert means_the_same(old, new)
