"""Plans for tests of what is printed of one."""

from __future__ import annotations

from typing import Any

from kube_sync.guard import Change, Withheld
from kube_sync.inspect.plan.causes import Cause, group_of
from kube_sync.inspect.plan.effects import Effect, Kind
from kube_sync.inspect.plan.plan import Plan
from kube_sync.objects import ObjectKey

MASS = Withheld("mass", "9 of 10 would move", "fewer, or approve moves-1", approve="moves-1")
WAY = Cause("policies/placement/policy.rego", 12, "a.b", "b := 1 if {", "then")


def effect(name: str, kind: Kind = "moves", **more: Any) -> Effect:
    key = ObjectKey("shop", name)
    change = Change("shop", "a", "b", frozenset({"c1"}), frozenset({"c2"}))
    given: dict[str, Any] = {"change": change, "before": ("c1",), "after": ("c2",)}
    return Effect("replicasets", key, f"u-{name}", kind, **given | more)


def plan(*effects: Effect, **more: Any) -> Plan:
    more = {"causes": {group_of(one): (WAY,) for one in effects}} | more
    return Plan(300, 2, effects, **more)
