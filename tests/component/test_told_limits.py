"""How much may move, from data to a reader of the decisions, between two fake servers."""

from __future__ import annotations

import asyncio
from pathlib import Path

from aiohttp import web

from kube_sync.config import Labelled, Policies, Settings
from kube_sync.decisions.hub import DecisionHub
from kube_sync.decisions.records import Budget
from tests.fakes.apiserver import fake_apiserver
from tests.fakes.clients import CLUSTERS, CONFIGMAPS, REPLICASETS, key
from tests.fakes.http import Proceed, Recorded, held
from tests.fakes.opa import fake_opa, patched
from tests.fakes.replicating import replicator_between
from tests.unit.async_tools import until

DATA = {"openpolicyagent.org/data": "opa"}
SETTINGS = Settings(
    policies=Policies(namespaces=("policies",), labelled=Labelled(namespaces=("shop",)))
)


def _decisions(recorded: Recorded) -> bool:
    return recorded.raw_path.startswith("/v1/data/kube_sync/batch/decisions")


def _sale(recorded: Recorded) -> bool:
    return patched(recorded) and b'"/shop/sale"' in recorded.body


async def test_decisions_on_a_configmap_that_is_being_written_come_after_its_limits(
    tmp_path: Path,
) -> None:
    """OPA decides on it from the moment it has it, which the replicator hears of later."""
    decide, told = asyncio.Event(), asyncio.Event()
    budgets: list[Budget | None] = []
    async with fake_apiserver() as api, fake_opa() as opa:
        hub = DecisionHub("test")

        async def late(_request: web.Request, proceed: Proceed) -> web.StreamResponse:
            response = await proceed()
            opa.budget = {"moves_burst": 1}  # as a policy says that looks at it
            decide.set()
            await told.wait()
            return response

        def publish(*_: object) -> None:
            budgets.append(hub.budget)
            told.set()

        for gvr, kind in ((REPLICASETS, "ReplicaSet"), (CONFIGMAPS, "ConfigMap")):
            api.define(gvr, kind)
        api.define(CLUSTERS, "ClusterProfile", builtin=False)
        api.put(CONFIGMAPS, key("p", "policies"), data={"a.rego": "package a"})
        api.put(REPLICASETS, key("a"))
        opa.decide = lambda _object, data: {"annotations": {"sale": str("shop" in data)}}
        async with replicator_between(api, opa, tmp_path, SETTINGS, hub=hub):
            await until(lambda: not hub.held and hub.count == 1)
            assert hub.budget is None
            hub.listeners.append(publish)
            asked = opa.http.fault(_decisions, held(decide))
            api.put(CLUSTERS, key("east", "fleet"))
            await asked.met.wait()
            opa.http.fault(_sale, late)
            api.put(CONFIGMAPS, key("sale", "shop"), metadata={"labels": DATA}, data={"on": "1"})
            await told.wait()
    assert budgets == [Budget({"moves_burst": 1})]
