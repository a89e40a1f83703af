"""What a real OPA answers about policies whose rules are there, are not, or fail."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kube_sync.config import Opa
from kube_sync.errors import Retriable, Undecided
from kube_sync.objects import ObjectKey
from kube_sync.opa.client import OpaClient, opa_client
from kube_sync.opa.system_modules import builtin_modules
from kube_sync.policykinds.kinds import METADATA, SCHEDULING, PolicyKind
from kube_sync.policykinds.opa_checker import OpaPolicyChecker
from kube_sync.policykinds.policy_cache import HeldPolicy
from tests.analysis.opa import plain_spec
from tools.servers.running import Launcher, ServerSpec, free_port, launch_on_free_port

CONFLICT = """package kube_sync.scheduling.validation

report := {"problems": [], "findings": [value]} if some value in input.object.spec.values
"""
PARTLY = """package kube_sync.scheduling.validation

report := {"problems": [], "findings": []} if not input.object.spec.undefined
"""


@pytest.fixture
async def opa(launcher: Launcher, tmp_path: Path) -> AsyncGenerator[OpaClient]:
    server = launch_on_free_port(launcher, lambda: plain_spec(tmp_path, free_port()))
    try:
        async with opa_client(Opa(url=server.url)) as client:
            yield client
    finally:
        server.stop()


def policy(spec: Any, namespace: str = "") -> HeldPolicy:
    metadata = {"name": "it", "namespace": namespace}
    body = json.dumps({"metadata": metadata, "spec": spec}).encode()
    return HeldPolicy(ObjectKey(namespace, "it"), "u", 1, (), body)


def judge(kind: PolicyKind, opa: OpaClient) -> OpaPolicyChecker:
    return OpaPolicyChecker(kind, opa, "kubernetes")


@pytest.mark.parametrize("kind", [SCHEDULING, METADATA], ids=lambda kind: kind.system)
async def test_rules_of_decisions_have_a_report(
    launcher: Launcher, tmp_path: Path, kind: PolicyKind
) -> None:
    for name, source in builtin_modules([kind.system]).items():
        path = tmp_path / "rules" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source, encoding="utf-8")

    def spec() -> ServerSpec:
        plain = plain_spec(tmp_path, free_port())
        return replace(plain, arguments=(*plain.arguments, str(tmp_path / "rules")))

    server = launch_on_free_port(launcher, spec)
    try:
        async with opa_client(Opa(url=server.url)) as client:
            assert (await judge(kind, client).report_on(policy({}))).problems == ()
            assert (await judge(kind, client).report_on(policy({"rulez": 1}))).problems != ()
    finally:
        server.stop()


async def test_rules_that_are_not_there_judge_nothing(opa: OpaClient) -> None:
    with pytest.raises(Retriable, match="OPA does not know"):
        await judge(METADATA, opa).report_on(policy({}))


async def test_rules_that_contradict_themselves_cannot_judge_a_policy(opa: OpaClient) -> None:
    await opa.put_policy("conflict.rego", CONFLICT)
    found = await judge(SCHEDULING, opa).report_on(policy({"values": ["a"]}))
    assert found.findings == ("a",)
    with pytest.raises(Undecided, match="produced conflicting values"):
        await judge(SCHEDULING, opa).report_on(policy({"values": ["a", "b"]}))


async def test_rules_that_say_nothing_of_one_policy_cannot_judge_it(opa: OpaClient) -> None:
    await opa.put_policy("partly.rego", PARTLY)
    assert (await judge(SCHEDULING, opa).report_on(policy({}))).problems == ()
    with pytest.raises(Undecided, match="is undefined for it"):
        await judge(SCHEDULING, opa).report_on(policy({"undefined": True}))


async def test_policies_of_a_namespace_are_the_ones_that_opa_has(opa: OpaClient) -> None:
    held = policy({"rules": [1.5, 10**20, {"a": None}]}, "shop")
    with pytest.raises(Retriable, match="of shop as they are yet"):
        await judge(METADATA, opa).ready("shop", [held])
    tree = {"it": {"spec": held.spec}}
    await opa.put_data(("kubernetes", "metadatapolicies", "shop"), json.dumps(tree).encode())
    await judge(METADATA, opa).ready("shop", [held])
