"""The webhook's question to the real OPA: every dialect, every silence, what it says of itself."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from kube_sync.admission.decision_client import (
    Admitted,
    DecisionClient,
    Denied,
    Undecidable,
    Verdict,
)
from kube_sync.admission.engine import engine_client
from kube_sync.admission.policygate import PolicyGate
from kube_sync.admission.target import Target, target_of
from kube_sync.config import Admission, EnforceSchedulingPolicy, Engine, Opa, Settings
from kube_sync.decisions.decision import Decision
from kube_sync.kube.collection import Item, ResourceVersion
from kube_sync.kube.policymaps import PolicyMaps
from kube_sync.objects import ObjectKey
from kube_sync.opa.client import OpaClient, opa_client
from kube_sync.policies.bundle import build
from tests.fakes.engine import review
from tests.fakes.listing import Listing, listed
from tools.servers.binaries import ensure_binary
from tools.servers.processes import ProcessLauncher
from tools.servers.running import Launcher, ServerSpec, free_port
from tools.servers.secured_opa import RunningOpa, start_opa

PACKAGE = "package io.k8s.federation.admission\n\n"
PLACED = PACKAGE + (
    'annotations["placed"] := input.metadata.name if input.metadata.name != "nowhere"\n'
    'errors contains "no place" if input.metadata.name == "nowhere"\n'
)
BY_REQUEST = PACKAGE + (
    'annotations["by"] := {"user": input.userInfo.username, "old": input.oldObject.metadata.name}\n'
    "warnings contains input.operation\n"
)


_LOGGED = "--set=decision_logs.console=true"


@pytest.fixture
def opa(launcher: Launcher, tmp_path: Path) -> Iterator[RunningOpa]:
    """An OPA that takes policies one by one, so that the test says which."""
    running = start_opa(launcher, tmp_path / "opa", by_bundle=False)
    yield running
    running.server.stop()


@pytest.fixture
def plain_opa(launcher: Launcher, tmp_path: Path) -> Iterator[str]:
    """The address of an OPA that anybody may ask anything."""
    assert launcher.form  # which has the program prepared
    port = free_port()
    running = ProcessLauncher().launch(
        ServerSpec(
            name="plain-opa",
            program=str(ensure_binary("opa")),
            arguments=("run", "--server", f"--addr=127.0.0.1:{port}", _LOGGED),
            folder=tmp_path,
            url=f"http://127.0.0.1:{port}",
            ready_paths=("/health",),
        )
    )
    yield running.url
    running.stop()


@pytest.fixture
async def writer(opa: RunningOpa) -> AsyncGenerator[OpaClient]:
    async with opa_client(_opa(opa, "replicator")) as client:
        yield client


def _opa(opa: RunningOpa, role: str) -> Opa:
    return Opa(opa.url, str(opa.token_files[role]), str(opa.ca_file))


def _known(modules: dict[str, str]) -> PolicyMaps:
    """Return what the webhook's watch holds of these modules."""
    maps = PolicyMaps("policies", lambda: None)
    version, items = ResourceVersion("1"), []
    for module, source in modules.items():
        namespace, name, key = module.split("/")
        body = json.dumps({"metadata": {}, "data": {key: source}}).encode()
        items.append(Item(ObjectKey(namespace, name), "u", version, body))
    listed(maps, Listing(items, version))
    return maps


@asynccontextmanager
async def _judge(
    target: Target, modules: dict[str, str] | None = None, **judging: Any
) -> AsyncGenerator[DecisionClient]:
    async with engine_client(target) as client:
        gate = PolicyGate([_known(modules or {"policies/p/a.rego": PACKAGE})], static=False)
        yield DecisionClient(client, gate, **judging)


def _target(opa: RunningOpa, role: str = "admission", **engine: Any) -> Target:
    admission = Admission(engine=Engine(**engine))
    return target_of(Settings(opa=_opa(opa, role), admission=admission))


async def _said(target: Target, name: str = "web", **request: Any) -> Verdict:
    async with _judge(target) as judge:
        return await judge.verdict(review({"metadata": {"name": name}}, **request), 5.0)


async def test_the_policy_decides_and_the_review_can_be_found_by_its_uid(
    opa: RunningOpa, writer: OpaClient
) -> None:
    await writer.put_policy("policies/p/a.rego", PLACED)
    admitted = await _said(_target(opa))
    assert isinstance(admitted, Admitted)
    assert admitted.decision == Decision({"placed": "web"})
    assert admitted.asked.decision_id == "r1"
    denied = await _said(_target(opa), "nowhere")
    assert isinstance(denied, Denied)
    assert denied.reasons == ("no place",)


async def test_a_policy_of_whole_requests_sees_them(opa: RunningOpa, writer: OpaClient) -> None:
    await writer.put_policy("policies/p/a.rego", BY_REQUEST)
    request: dict[str, Any] = {
        "operation": "UPDATE",
        "userInfo": {"username": "eve"},
        "oldObject": {"metadata": {"name": "was"}},
    }
    verdict = await _said(_target(opa, dialect="review"), **request)
    assert isinstance(verdict, Admitted)
    assert verdict.decision.annotations == {"by": '{"old":"was","user":"eve"}'}


@pytest.mark.parametrize(
    "url",
    [
        "/v0/data/io/k8s/federation/admission",  # as it once was shipped
        "/v1/data/io/k8s/federation/admission",
        "/v1/data/io/k8s/federation/admission/annotations",  # as the design's own file has it
    ],
)
async def test_the_designs_own_configuration_asks_opa_by_its_path(plain_opa: str, url: str) -> None:
    """An OPA without authorization: ours lets the webhook ask for one path of v1 alone."""
    async with opa_client(Opa(plain_opa)) as writer:
        target = target_of(
            Settings(enforce_scheduling_policy=EnforceSchedulingPolicy(plain_opa + url))
        )
        undefined = await _said(target)
        assert isinstance(undefined, Undecidable)
        assert undefined.why == "undefined"
        await writer.put_policy("policies/p/a.rego", PLACED)
    admitted = await _said(target)
    assert isinstance(admitted, Admitted)
    assert admitted.decision == Decision({"placed": "web"})


async def test_a_decision_that_opa_logs_is_known_by_opas_own_id(plain_opa: str) -> None:
    async with opa_client(Opa(plain_opa)) as writer:
        await writer.put_policy("policies/p/a.rego", PLACED)
    verdict = await _said(target_of(Settings(opa=Opa(plain_opa))))
    assert len(verdict.asked.decision_id) == 36  # a UUID, and not the review's


async def test_an_empty_opa_and_one_that_refuses_deny_for_different_reasons(
    opa: RunningOpa,
) -> None:
    undefined, refused = await _said(_target(opa)), await _said(_target(opa, "metrics"))
    assert isinstance(undefined, Undecidable)
    assert isinstance(refused, Undecidable)
    assert (undefined.why, refused.why) == ("undefined", "unauthorized")


async def test_policies_that_disagree_are_named_with_their_configmaps(
    opa: RunningOpa, writer: OpaClient
) -> None:
    rule = PACKAGE + 'annotations["placed"] := "{}"\n'
    modules = {"policies/one/a.rego": rule.format(1), "policies/two/b.rego": rule.format(2)}
    for module, source in modules.items():
        await writer.put_policy(module, source)
    async with _judge(_target(opa), modules) as judge:
        verdict = await judge.verdict(review(), 5.0)
    assert isinstance(verdict, Undecidable)
    assert verdict.why == "evaluation-error"
    assert verdict.reason == (
        "policies give the rule data.io.k8s.federation.admission.annotations.placed different "
        "values: a.rego row 3 of ConfigMap policies/one and b.rego row 3 of ConfigMap "
        "policies/two; the policy has to be mended"
    )


async def test_an_opa_that_was_killed_denies_at_once_and_admits_as_soon_as_it_is_back(
    opa: RunningOpa, writer: OpaClient
) -> None:
    await writer.put_policy("policies/p/a.rego", PLACED)
    clock = asyncio.get_running_loop().time
    async with _judge(_target(opa), attempts=20) as judge:
        opa.server.kill()
        slow = await judge.verdict(review(), 3.0)
        assert isinstance(slow, Undecidable)
        assert slow.why == "unreachable"
        assert judge.engine_is_down
        began = clock()
        assert isinstance(await judge.verdict(review(), 3.0), Undecidable)
        assert clock() - began < 1.5, "half of what it might take"
        opa.server.start()
        restarted = await judge.verdict(review(), 3.0)
        assert isinstance(restarted, Undecidable)
        assert restarted.why == "undefined"  # it is empty, and empty is not permission
        await writer.put_policy("policies/p/a.rego", PLACED)
        assert isinstance(await judge.verdict(review(), 3.0), Admitted)


async def test_the_revision_of_the_policies_in_force_is_told(
    launcher: Launcher, tmp_path: Path
) -> None:
    """OPA names it in the very answer, so that it cannot be that of another set."""
    modules = {"policies/p/a.rego": PLACED}
    bundle = build(modules, {"policies/p/a.rego": ("io", "k8s", "federation", "admission")})
    file = tmp_path / "opa/opa/policies.tar.gz"  # a folder that OPA sees, as a container too
    file.parent.mkdir(parents=True)
    file.write_bytes(bundle.body)
    opa = start_opa(launcher, tmp_path / "opa", ("--bundle", str(file)), by_bundle=False)
    try:
        verdict = await _said(_target(opa))
    finally:
        opa.server.stop()
    assert isinstance(verdict, Admitted)
    assert verdict.asked.policies.endswith(f"={bundle.revision}")
