"""Which canary plans and answers go by, as its ConfigMap and what was written on it say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from kube_sync.config import Policies
from kube_sync.inspect.plan.extra_documents import CanaryInEffect, canary_note, in_effect
from kube_sync.objects import ObjectKey
from kube_sync.opa.sides import Side
from tests.unit.inspect.plan.fleets import NAMESPACE, POLICY, canary, item, policy

PLACE = f"{NAMESPACE}/placement"
EDITED = POLICY.replace("_fit}", '_fit - {"c1"}}')
POLICIES = Policies(namespaces=(NAMESPACE,))


async def found(*objects: Mapping[str, Any]) -> CanaryInEffect | None:
    return await in_effect([item(dict(one)) for one in objects], POLICIES)


async def test_canary_decides_on_the_side_that_its_status_says() -> None:
    effect = {"effect": {"share": "0.1", "namespaces": ["shop"]}}
    one = await found(policy(), canary(EDITED, "0.5", effect))
    assert one is not None
    assert one.side == Side(PLACE, "0.1", frozenset({"shop"}))  # a half is still to be counted
    assert str(one) == (
        f"ConfigMap {PLACE}-candidate, a canary of 10 % of all objects and all in shop"
    )
    ((_, place, modules),) = one.candidates.maps
    assert (str(place), modules) == (PLACE, {f"{PLACE}-candidate/policy.rego": EDITED})


@pytest.mark.parametrize(
    "said",
    [
        {"effect": None},
        {"modules": "another text"},
        {"stands_for": f"{NAMESPACE}/other"},
        {"stage": "shadow"},
        {"effect": {"share": "much"}},
        {"halted": {"why": ["3 would be nowhere"], "counts": {}}, "limits": {}},
        {"effect": "odd"},
    ],
)
async def test_canary_whose_status_says_nothing_of_it_decides_nothing(said: Any) -> None:
    assert await found(policy(), canary(EDITED, "0.5", said)) is None


async def test_policies_of_other_stages_and_elsewhere_are_no_canary() -> None:
    elsewhere = canary(EDITED, "0.5")
    elsewhere["metadata"]["namespace"] = "shop"
    shadow = canary(EDITED, "0.5")
    shadow["metadata"]["labels"] = {"kube-sync.io/stage": "shadow"}
    assert await found(policy(), elsewhere, shadow) is None
    assert await found(policy()) is None


async def test_objects_on_the_side_are_counted() -> None:
    one = await found(canary(EDITED, "0", {"effect": {"share": "0", "namespaces": ["shop"]}}))
    assert one is not None
    keys = [ObjectKey("shop", "web"), ObjectKey("shop", "ads"), ObjectKey("pay", "web")]
    assert "decides on 2 of these workloads" in canary_note(one, keys)
