"""What Federation v1's own admission plugin was tested for, said of the webhook.

Its table: the configuration, what the query holds, who is admitted and denied, when it asks again,
how annotations are merged. The engine is a stand-in, so any that answers the call will do.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp.test_utils import TestClient, TestServer

from kube_sync.admission.decision_client import DecisionClient
from kube_sync.admission.engine import engine_client
from kube_sync.admission.policygate import PolicyGate
from kube_sync.admission.server import PATH, webhook_app
from kube_sync.admission.target import target_of
from kube_sync.config import load_settings
from kube_sync.decisions.decision import REQUESTED
from kube_sync.errors import Misconfigured
from kube_sync.kube.collection import Item, ResourceVersion
from kube_sync.kube.policymaps import PolicyMaps
from kube_sync.objects import ObjectKey
from tests.fakes.engine import StandIn, stand_in
from tests.fakes.http import Handler, answer
from tests.fakes.listing import Listing, listed
from tests.fakes.reviews import patched
from tests.unit.async_tools import PATIENCE, Waits

REPLICASET: dict[str, Any] = {
    "apiVersion": "apps/v1",
    "kind": "ReplicaSet",
    "metadata": {"name": "web", "namespace": "shop"},
    "spec": {"replicas": 3, "template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}},
}


def _policies(*names: str) -> PolicyMaps:
    body = json.dumps({"metadata": {}, "data": {"policy.rego": "package a"}}).encode()
    version = ResourceVersion("1")
    items = [Item(ObjectKey("policies", name), "u", version, body) for name in names]
    maps = PolicyMaps("policies", lambda: None)
    listed(maps, Listing(items, version))
    return maps


class Plugin:
    """The webhook as a whole, with an engine behind it."""

    def __init__(self, client: TestClient[Any, Any], engine: StandIn, waits: Waits) -> None:
        self.engine = engine
        self.waits = waits
        self._client = client

    async def admit(self, resource: object = REPLICASET) -> dict[str, Any]:
        """Return the response to a create, with the patch read."""
        request = {"uid": "r1", "operation": "CREATE", "object": resource}
        review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}
        async with self._client.post(PATH, json=review | {"request": request}) as answered:
            response: dict[str, Any] = (await answered.json())["response"]
        response["patch"] = json.loads(base64.b64decode(response.get("patch", "W10=")))
        return response


@asynccontextmanager
async def _plugin(decision: object, maps: PolicyMaps | None = None) -> AsyncGenerator[Plugin]:
    waits = Waits()
    gate = PolicyGate([_policies("p") if maps is None else maps], static=False)
    async with (
        asyncio.timeout(PATIENCE),
        stand_in(lambda _: decision) as engine,
        engine_client(engine.target()) as asked,
        TestClient(
            TestServer(webhook_app(DecisionClient(asked, gate, backoff=waits.backoff)))
        ) as client,
    ):
        yield Plugin(client, engine, waits)


URL = "https://opa:8181/v1/data/io/k8s/federation/annotations"


@pytest.mark.parametrize(
    "text",
    [
        "{",
        '{"EnforceSchedulingPolicy": ',
        "EnforceSchedulingPolicy: [",
        "EnforceSchedulingPolicy: {token: t}",
        "EnforceSchedulingPolicy: {url: 7}",
        "EnforceSchedulingPolicy: {url: opa}",
        f"EnforceSchedulingPolicy: {{url: '{URL}', retry: 1}}",
        "admission: {engine: {backoff_seconds: -1}}",
        "admission: {engine: {backoff_seconds: 0}}",
    ],
)
def test_a_configuration_that_means_nothing_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "config"
    file.write_text(text)
    with pytest.raises(Misconfigured):
        load_settings(str(file), {})


@pytest.mark.parametrize(
    "text",
    [
        json.dumps({"EnforceSchedulingPolicy": {"url": URL, "token": "t"}}),
        f"EnforceSchedulingPolicy:\n  url: {URL}\n  token: t\n",
        f"EnforceSchedulingPolicy: {{url: {URL}}}\nadmission: {{engine: {{backoff_seconds: 0.2}}}}",
    ],
)
def test_a_configuration_in_either_form_is_read(tmp_path: Path, text: str) -> None:
    file = tmp_path / "config"
    file.write_text(text)
    assert target_of(load_settings(str(file), {})).url == URL


async def test_the_query_holds_the_resources_metadata_and_spec() -> None:
    async with _plugin({}) as plugin:
        await plugin.admit()
        assert plugin.engine.inputs == [REPLICASET]


async def test_a_decision_that_says_nothing_admits_unchanged() -> None:
    async with _plugin({}) as plugin:
        assert await plugin.admit() == {"uid": "r1", "allowed": True, "patch": []}


async def test_policies_that_cannot_be_listed_deny() -> None:
    unlisted = PolicyMaps("policies", lambda: None)
    async with _plugin({}, unlisted) as plugin:
        plugin.engine.http.fault(lambda _: True, answer(404))
        assert not (await plugin.admit())["allowed"]


async def test_without_policies_an_undefined_decision_admits() -> None:
    async with _plugin({}, _policies()) as plugin:
        plugin.engine.http.fault(lambda _: True, answer(404))
        assert (await plugin.admit())["allowed"]


@pytest.mark.parametrize(
    "failing",
    [answer(500), answer(200, b"{"), answer(404), answer(200, b'{"result":{"errors":["no"]}}')],
    ids=["500", "truncated", "404", "errors"],
)
async def test_with_policies_whatever_is_no_admission_denies(failing: Handler) -> None:
    async with _plugin({}) as plugin:
        plugin.engine.http.fault(lambda _: True, failing, times=9)
        response = await plugin.admit()
        assert not response["allowed"]
        assert response["status"]["message"]


async def test_an_engine_that_always_fails_is_asked_more_than_once() -> None:
    async with _plugin({}) as plugin:
        plugin.engine.http.fault(lambda _: True, answer(500), times=9)
        await plugin.admit()
        assert len(plugin.engine.http.requests) == 5
        assert plugin.waits.seconds == [0.1, 0.2, 0.4, 0.8]


@pytest.mark.parametrize(
    ("has", "decided", "merged"),
    [
        (None, {}, None),
        ({}, {}, {}),
        (None, {"foo": "bar"}, {"foo": "bar"}),
        ({}, {"foo": "bar"}, {"foo": "bar"}),
        ({"foo": "bar"}, {}, {"foo": "bar"}),
        ({"foo": "bar"}, {"foo": "bar"}, {"foo": "bar"}),
        ({"foo": "bar"}, {"bar": "baz"}, {"foo": "bar", "bar": "baz"}),
        ({"foo": "bar", "bar": "baz"}, {"foo": "bar-2"}, {"foo": "bar-2", "bar": "baz"}),
    ],
)
async def test_decided_annotations_replace_their_own_keys_and_no_others(
    has: dict[str, str] | None, decided: dict[str, str], merged: dict[str, str] | None
) -> None:
    metadata = REPLICASET["metadata"] | ({} if has is None else {"annotations": has})
    async with _plugin({"annotations": decided}) as plugin:
        response = await plugin.admit(REPLICASET | {"metadata": metadata})
    assert response["allowed"]
    document: dict[str, Any] = {"metadata": {} if has is None else {"annotations": dict(has)}}
    annotations = patched(document, response["patch"])["metadata"].get("annotations")
    if annotations is not None:
        annotations.pop(REQUESTED, None)  # beside what was decided, and nothing of the old plugin's
    assert annotations == merged
