"""The ways of a built-in policy system: what is asked, and what becomes of the answer."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import REGISTRY
from structlog.testing import capture_logs

from kube_sync.admission.decision_client import DecisionClient
from kube_sync.admission.engine import engine_client
from kube_sync.admission.engine_formats import REQUEST
from kube_sync.admission.review import Review
from kube_sync.admission.route import Route, nobody, ruling, system_routes
from kube_sync.admission.target import Target, system_target
from kube_sync.config import SYSTEMS, Admission, Engine, Opa, Settings, System
from tests.fakes.engine import PATH, StandIn, stand_in
from tests.fakes.reviewing import Judge as PlacementJudge
from tests.fakes.reviewing import Webhook, webhook
from tests.fakes.reviews import body as review_body

SYSTEM = SYSTEMS["scheduling"]
POD: dict[str, Any] = {"metadata": {"name": "web"}, "spec": {"schedulerName": "default-scheduler"}}
POD_KIND = {"group": "", "version": "v1", "kind": "Pod"}
PODS = {"group": "", "version": "v1", "resource": "pods"}
POLICIES = {"group": "policy.kube-sync.io", "version": "v1alpha1", "resource": "schedulingpolicies"}
ADMITS = {"allowed": True, "reasons": [], "patch": [], "policies": ["restricted"]}
PATCH = [{"op": "add", "path": "/spec/nodeSelector", "value": {"arch": "amd64"}}]
ADMIT, VALIDATE = "/admit/scheduling", "/validate/scheduling"


@dataclass
class Gate:
    policy_may_exist: bool = True

    def modules(self) -> dict[str, str]:
        return {}


@dataclass
class World:
    """A webhook with the two ways, and the OPA that it asks."""

    opa: StandIn
    server: Webhook
    gate: Gate
    denied: list[tuple[str, str]]
    answer: dict[str, Any] = field(default_factory=lambda: dict(ADMITS))

    async def review(self, path: str = ADMIT, document: Any = POD, **request: Any) -> Any:
        self.opa.decide = lambda _: self.answer
        url = self.server.url.rpartition("/admit/")[0] + path
        server = replace(self.server, url=url)
        body = review_body(document, **{"resource": PODS, "kind": POD_KIND, **request})
        status, text = await server.post(body, timeout="5s")
        assert status == 200
        found = json.loads(text)["response"]
        assert found.pop("uid") == "r1"
        return found


@asynccontextmanager
async def _world(certificates: Path, system: System = SYSTEM) -> AsyncGenerator[World]:
    gate, denied = Gate(), list[tuple[str, str]]()

    def told(_: Review, outcome: str, reason: str) -> None:
        denied.append((outcome, reason))

    async with stand_in() as opa:
        target = Target(opa.http.url + PATH, REQUEST, timeout_seconds=2.0)
        async with engine_client(target) as engine:
            judge = DecisionClient(
                engine, gate, attempts=1, read=partial(ruling, explains=system.explains)
            )
            ways = system_routes(system, judge, told)
            async with _served(certificates, ways) as server:
                yield World(opa, server, gate, denied)


@asynccontextmanager
async def _metadata_world(certificates: Path) -> AsyncGenerator[World]:
    async with _world(certificates, SYSTEMS["metadata"]) as world:
        yield world


@asynccontextmanager
async def _served(certificates: Path, ways: tuple[Route, ...]) -> AsyncGenerator[Webhook]:
    async with webhook(certificates, PlacementJudge(), ways=ways) as server:
        yield server


@pytest.fixture
async def world(certificates: Path) -> AsyncGenerator[World]:
    async with _world(certificates) as found:
        yield found


async def test_the_request_is_asked_about_as_it_was_sent(world: World) -> None:
    note = {"kube-sync.io/requested": '{"a":null}'}
    old = POD | {"metadata": {"name": "web", "annotations": note | {"a": "1"}}}
    await world.review(oldObject=old, operation="UPDATE", namespace="shop")
    (found,) = world.opa.inputs
    assert found == {
        "uid": "r1",
        "operation": "UPDATE",
        "kind": POD_KIND,
        "object": POD,
        "oldObject": old,
        "namespace": "shop",
        "resource": PODS,
    }


async def test_what_is_decided_is_patched(world: World) -> None:
    world.answer["patch"] = PATCH
    response = await world.review()
    assert json.loads(base64.b64decode(response["patch"])) == PATCH
    assert response["patchType"] == "JSONPatch"
    assert response["allowed"]


async def test_without_a_patch_there_is_none(world: World) -> None:
    for path in (ADMIT, VALIDATE):
        assert await world.review(path) == {"allowed": True}


async def test_where_nothing_is_changed_any_more_what_got_lost_refuses(world: World) -> None:
    """Another webhook has taken out what a policy demands."""
    world.answer["patch"] = PATCH
    response = await world.review(VALIDATE)
    assert "patch" not in response
    assert response["status"]["code"] == 403
    assert response["status"]["message"] == (
        "/spec/nodeSelector: set by a SchedulingPolicy, and changed by another webhook since"
    )


@pytest.mark.parametrize("path", [ADMIT, VALIDATE])
async def test_a_denial_has_all_reasons(world: World, path: str) -> None:
    world.answer |= {"allowed": False, "reasons": ["no gpu", "no spot"]}
    assert await world.review(path) == {
        "allowed": False,
        "status": {"code": 403, "message": "no gpu; no spot", "reason": "Forbidden"},
    }
    assert world.denied == [("denied", "no gpu; no spot")]


@pytest.mark.parametrize("path", [ADMIT, VALIDATE])
async def test_an_answer_of_another_shape_denies(world: World, path: str) -> None:
    world.answer = {"allowed": True}
    response = await world.review(path)
    assert response["allowed"] is False
    assert response["status"]["code"] == 503
    assert response["status"]["message"].startswith(
        "there is a SchedulingPolicy, but no decision: policy engine "
    )
    ((outcome, _),) = world.denied
    assert outcome == "undecidable"


async def test_what_became_as_it_was_to_become_is_not_asked_about_again(world: World) -> None:
    world.answer["patch"] = PATCH
    await world.review(ADMIT)
    made = {**POD, "spec": POD["spec"] | {"nodeSelector": {"arch": "amd64"}}}
    assert await world.review(VALIDATE, made) == {"allowed": True}
    assert len(world.opa.inputs) == 1
    await world.review(VALIDATE, made, userInfo={"username": "another"})
    assert len(world.opa.inputs) == 2


async def test_what_was_refused_or_never_decided_is_asked_about_again(world: World) -> None:
    world.gate.policy_may_exist = False
    await world.review(ADMIT)
    world.gate.policy_may_exist = True
    world.answer |= {"allowed": False, "reasons": ["no"]}
    for path in (VALIDATE, ADMIT, VALIDATE):
        assert (await world.review(path))["allowed"] is False
    assert len(world.opa.inputs) == 3


async def test_while_there_is_no_policy_pods_are_admitted_and_nobody_is_asked(
    world: World,
) -> None:
    world.gate.policy_may_exist = False
    world.answer |= {"allowed": False, "reasons": ["no"]}
    for path in (ADMIT, VALIDATE):
        assert (await world.review(path))["allowed"]
    assert world.opa.inputs == []


async def test_the_first_policy_is_judged_although_there_is_none(world: World) -> None:
    world.gate.policy_may_exist = False
    world.answer |= {"allowed": False, "reasons": ["spec.required.tolerations: unknown"]}
    response = await world.review(VALIDATE, {"metadata": {"name": "p"}}, resource=POLICIES)
    assert response["status"]["message"] == "spec.required.tolerations: unknown"


async def test_a_resource_of_that_name_in_another_group_is_none_of_its_policies(
    world: World,
) -> None:
    world.gate.policy_may_exist = False
    other = POLICIES | {"group": "example.com"}
    assert (await world.review(VALIDATE, resource=other))["allowed"]
    assert world.opa.inputs == []


@pytest.mark.parametrize("operation", ["DELETE", "CONNECT"])
async def test_what_leaves_nothing_behind_is_admitted(world: World, operation: str) -> None:
    world.answer |= {"allowed": False, "reasons": ["no"]}
    response = await world.review(VALIDATE, None, operation=operation, oldObject=POD)
    assert response["allowed"]
    assert world.opa.inputs == []


async def test_a_subresource_is_for_the_rules_to_judge(world: World) -> None:
    world.answer |= {"allowed": False, "reasons": ["only the scheduler binds"]}
    response = await world.review(VALIDATE, {"metadata": {}}, subResource="binding")
    assert response["allowed"] is False


async def test_each_review_is_one_line_and_one_observation(world: World) -> None:
    labels = {"system": "scheduling", "outcome": "admitted"}
    name = "kube_sync_admission_system_seconds_count"
    before = REGISTRY.get_sample_value(name, labels) or 0.0
    with capture_logs() as logs:
        await world.review(namespace="shop", name="web")
    (line,) = (found for found in logs if found["event"] == "admission")
    assert (line["system"], line["outcome"], line["object"]) == (
        "scheduling",
        "admitted",
        "shop/web",
    )
    assert REGISTRY.get_sample_value(name, labels) == before + 1


def test_opa_itself_is_asked_whatever_decides_on_placement() -> None:
    settings = Settings(
        opa=Opa("https://opa:1/", token_file="/token", ca_file="/ca"),
        admission=Admission(engine=Engine(url="https://other:1", timeout_seconds=3.0)),
    )
    target = system_target(settings, SYSTEM.decision)
    assert (target.url, target.token_file, target.ca_file, target.timeout_seconds) == (
        "https://opa:1/v1/data/kube_sync/scheduling/decision",
        "/token",
        "/ca",
        3.0,
    )


def test_nobody_is_told_unless_somebody_is() -> None:
    ways = system_routes(SYSTEM, DecisionClient(_NoEngine(), Gate(), read=ruling))
    assert [way.path for way in ways] == [ADMIT, VALIDATE]
    assert all(way.denied is nobody for way in ways)


async def test_what_looks_at_metadata_is_asked_about_twice(certificates: Path) -> None:
    """What was decided of a spec says nothing of the labels beside it."""
    async with _metadata_world(certificates) as world:
        world.answer["reasons"] = ["sets a label"]
        for path in ("/admit/metadata", "/validate/metadata"):
            assert (await world.review(path))["allowed"]
        assert len(world.opa.inputs) == 2


async def test_why_something_was_set_is_for_the_log_alone(certificates: Path) -> None:
    async with _metadata_world(certificates) as world:
        world.answer |= {"patch": PATCH, "reasons": ["sets a label"]}
        with capture_logs() as logs:
            response = await world.review("/admit/metadata")
        assert response.keys() == {"allowed", "patch", "patchType"}
        (line,) = (found for found in logs if found["event"] == "admission_reasons")
        assert (line["log_level"], line["reasons"]) == ("debug", ("sets a label",))


@pytest.mark.parametrize("path", ["/admit/metadata", "/validate/metadata"])
async def test_no_namespaces_policy_is_about_a_subresource(certificates: Path, path: str) -> None:
    async with _metadata_world(certificates) as world:
        world.answer |= {"allowed": False, "reasons": ["no"]}
        assert (await world.review(path, subResource="binding"))["allowed"]
        assert (await world.review(path, operation="DELETE", document=None))["allowed"]
        assert (await world.review(path))["allowed"] is False
        assert len(world.opa.inputs) == 1


class _NoEngine:
    where = "nowhere"

    async def ask(self, *_: Any) -> Any:
        raise AssertionError

    async def probe(self) -> None:
        raise AssertionError
