from __future__ import annotations

from typing import Any

import pytest

from kube_sync.config import Settings
from kube_sync.errors import Broken
from kube_sync.inspect.plan import promotion_preview as promotion
from kube_sync.inspect.plan.effects import Effect
from kube_sync.inspect.plan.plan import Plan
from kube_sync.inspect.plan.promotion_preview import lines, preview
from kube_sync.inspect.plan.request import Request
from kube_sync.objects import ObjectKey

POLICY = ObjectKey("policies", "p-candidate")


def _effect(name: str, **more: Any) -> Effect:
    key = ObjectKey("shop", name)
    return Effect("replicasets", key, f"u-{name}", "moves", ("c1",), ("c2",), **more)


def test_first_ten_that_would_move_are_named_and_the_others_counted() -> None:
    effects = [_effect(f"w{n:02}") for n in range(12)]
    head, *rows, left = lines(Plan(300, 2, [*effects, _effect("later", pending=True)]))
    assert head == "12 to move (of 300 workloads)"
    assert (len(rows), left) == (10, "  … and 2 more")
    assert rows[0] == "  replicasets shop/w00  c1 -> c2  (moves)"


def test_where_nothing_changes_that_is_all_that_is_said() -> None:
    assert [*lines(Plan(3, 1, [_effect("later", pending=True)]))] == [
        "nothing changes (of 3 workloads)"
    ]


async def test_policy_of_any_stage_is_planned_with(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Request] = []

    async def planned(request: Request, *_: object) -> Plan:
        asked.append(request)
        return Plan(3, 1, [_effect("web\x1b")])

    monkeypatch.setattr(promotion, "planned", planned)
    found = await preview(Settings(), POLICY, print)
    assert found[1] == "  replicasets shop/web�  c1 -> c2  (moves)"
    assert (asked[0].staged, asked[0].candidates) == (True, ("policies/p-candidate",))
    assert {"candidate", "shadow", "canary"} == {*asked[0].stages}


async def test_plan_that_cannot_be_made_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    async def planned(*_: object) -> Plan:
        raise Broken(["opa: no such file"])

    monkeypatch.setattr(promotion, "planned", planned)
    assert await preview(Settings(), POLICY, print) == [
        "what would move cannot be told: opa: no such file"
    ]
