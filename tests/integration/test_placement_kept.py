"""Placement and note, written past the main resource: status writes, other webhooks, no webhook."""

from __future__ import annotations

import json
import secrets
from collections.abc import AsyncGenerator, Iterator
from typing import Any

import pytest

from benchmarks.bare import Bare, bare_client
from kube_sync.decisions.decision import PLACEMENT, REQUESTED
from tests.eventually import eventually
from tests.integration.webhook_world import World, deeply_managed, webhook_world
from tools.demo.fleet import replica_set
from tools.servers.errors import ToolError
from tools.servers.files import write_file
from tools.servers.running import Launcher
from tools.servers.stack import RunningStack

POLICY = f"""
package io.k8s.federation.admission

annotations["{PLACEMENT}"] := {{"clusters": {{input.metadata.labels.zone: {{}}}}}}

errors contains "danger is not allowed" if input.metadata.annotations.danger == "true"
"""
PLACED = '{"clusters":{"eu":{}}}'
FORBIDDEN = '{"clusters":{"moon":{}}}'
MERGE = "merge-patch+json"
ADMISSION = "/apis/admissionregistration.k8s.io/v1"


@pytest.fixture(scope="module")
def world(
    launcher: Launcher, stack: RunningStack, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("kept")
    key_file = write_file(folder / "key", secrets.token_urlsafe(32).encode())
    with webhook_world(launcher, stack, folder, key_file) as running:
        running.policy()
        running.opa("PUT", POLICY)
        running.register()
        yield running


@pytest.fixture
async def bare(world: World) -> AsyncGenerator[Bare]:
    async with bare_client(world.stack) as client:
        await eventually(world.failure_policies, {"Fail"})
        yield client


def _path(namespace: str, part: str = "") -> str:
    return f"/apis/apps/v1/namespaces/{namespace}/replicasets" + (
        part and f"/web{part.rstrip('/')}"
    )


def _workload(namespace: str, **annotations: str) -> dict[str, Any]:
    manifest = replica_set("web")
    manifest["metadata"] |= {"namespace": namespace, "annotations": annotations}
    manifest["metadata"]["labels"] = {"app": "web", "zone": "eu"}
    return manifest


def _annotated(**annotations: str | None) -> dict[str, Any]:
    return {"metadata": {"annotations": annotations}}


async def _metadata(bare: Bare, namespace: str) -> dict[str, Any]:
    found = json.loads(await bare.kube("GET", _path(namespace, "/")))
    metadata: dict[str, Any] = found["metadata"]
    return metadata


async def _annotations(bare: Bare, namespace: str) -> dict[str, str]:
    annotations: dict[str, str] = (await _metadata(bare, namespace)).get("annotations") or {}
    return annotations


def _reviews(world: World) -> int:
    names = ("kube_sync_admission_seconds_count", "kube_sync_admission_system_seconds_count")
    lines = (line for line in world.metrics().splitlines() if line.startswith(names))
    return int(sum(float(line.rpartition(" ")[2]) for line in lines))


async def test_a_status_write_of_placement_or_note_is_put_back_and_others_pass(
    bare: Bare, namespace: str
) -> None:
    await bare.kube("POST", _path(namespace), _workload(namespace))
    before = await _annotations(bare, namespace)
    forged = json.dumps({"danger": None})
    for change in (
        {PLACEMENT: FORBIDDEN},
        {PLACEMENT: None},
        {REQUESTED: forged},
        {REQUESTED: None},
        {PLACEMENT: FORBIDDEN, REQUESTED: forged, "other": "1"},
    ):
        body = {"status": {"replicas": 1}, **_annotated(**change)}
        answer = await bare.kube("PATCH", _path(namespace, "/status"), body, MERGE)
        assert json.loads(answer)["status"]["replicas"] == 1
    assert await _annotations(bare, namespace) == {**before, "other": "1"}


async def test_a_status_write_that_the_policy_refuses_is_refused(
    bare: Bare, namespace: str
) -> None:
    """An object that a policy objects to would not be moved any more."""
    await bare.kube("POST", _path(namespace), _workload(namespace))
    before = await _metadata(bare, namespace)
    change = _annotated(danger="true")
    status, text = await bare.answer("PATCH", _path(namespace, "/status"), change, MERGE)
    assert (status, "danger is not allowed" in text) == (403, True)
    assert (await _metadata(bare, namespace)) == before


async def test_a_status_write_that_changes_no_metadata_is_not_sent(
    world: World, bare: Bare, namespace: str
) -> None:
    await bare.kube("POST", _path(namespace), _workload(namespace))
    before = _reviews(world)
    for count in range(1, 4):
        status = {"status": {"replicas": count}, "spec": {"replicas": 7}}
        await bare.kube("PATCH", _path(namespace, "/status"), status, MERGE)
    await bare.kube("PATCH", _path(namespace, "/scale"), {"spec": {"replicas": 2}}, MERGE)
    assert _reviews(world) == before
    await bare.kube("PATCH", _path(namespace, "/status"), _annotated(other="1"), MERGE)
    assert _reviews(world) == before + 2  # to change it, and to check it


async def test_a_note_that_was_planted_without_a_webhook_counts_for_nothing(
    world: World, bare: Bare, namespace: str
) -> None:
    """It would hide from the policy what is stored."""
    world.unregister()
    try:
        forged = {"danger": "true", REQUESTED: json.dumps({"danger": None})}
        await bare.kube("POST", _path(namespace), _workload(namespace, **forged))
    finally:
        world.register()
    await eventually(world.failure_policies, {"Fail"})

    async def said() -> tuple[int, bool]:
        status, text = await bare.answer("PATCH", _path(namespace, "/"), _annotated(a="1"), MERGE)
        return status, "danger is not allowed" in text

    assert await said() == (403, True)
    await bare.kube("PATCH", _path(namespace, "/"), _annotated(danger=None), MERGE)
    sealed = (await _annotations(bare, namespace))[REQUESTED]
    assert json.loads(sealed).keys() == {PLACEMENT, REQUESTED}


@pytest.mark.parametrize(
    ("key", "value"),
    [(PLACEMENT, FORBIDDEN), (REQUESTED, '{"danger":null}'), ("other", "by-another")],
)
async def test_what_another_changes_afterwards_of_placement_is_refused_and_of_others_is_not(
    world: World, bare: Bare, namespace: str, key: str, value: str
) -> None:
    """A MutatingAdmissionPolicy that is called again after the webhook has its way last."""
    name = f"late-{secrets.token_hex(4)}"
    await bare.kube("POST", f"{ADMISSION}/mutatingadmissionpolicies", _late(name, key, value))
    binding = {"metadata": {"name": name}, "spec": {"policyName": name}}
    await bare.kube("POST", f"{ADMISSION}/mutatingadmissionpolicybindings", binding)
    manifest = _workload(namespace)
    manifest["metadata"]["labels"]["late"] = name
    said = value if key == "other" else f"annotation {key}: decided by the placement policy"

    def answered() -> bool:
        create = ("create", "--dry-run=server", "-f", "-", "--output=jsonpath={.metadata}")
        try:
            return said in world.stack.kubectl(*create, stdin=json.dumps(manifest))
        except ToolError as error:
            return said in str(error)

    try:
        await eventually(answered, expected=True)
        # Who is not changed afterwards, is stored.
        del manifest["metadata"]["labels"]["late"]
        await bare.kube("POST", _path(namespace), manifest)
    finally:
        for kind in ("mutatingadmissionpolicybindings", "mutatingadmissionpolicies"):
            await bare.kube("DELETE", f"{ADMISSION}/{kind}/{name}")


def _late(name: str, key: str, value: str) -> dict[str, Any]:
    """Return what changes an annotation once the webhook has decided, and not before."""
    pointer = key.replace("~", "~0").replace("/", "~1")
    rule = {"apiGroups": ["apps"], "apiVersions": ["v1"], "resources": ["replicasets"]}
    expression = (
        f"has(object.metadata.annotations) && '{PLACEMENT}' in object.metadata.annotations"
        f" ? [JSONPatch{{op: 'add', path: '/metadata/annotations/{pointer}',"
        f" value: {json.dumps(value)}}}] : []"
    )
    return {
        "metadata": {"name": name},
        "spec": {
            "reinvocationPolicy": "IfNeeded",
            "failurePolicy": "Fail",
            "matchConstraints": {
                "objectSelector": {"matchLabels": {"late": name}},
                "resourceRules": [{**rule, "operations": ["CREATE"]}],
            },
            "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": expression}}],
        },
    }


async def test_a_finalizer_is_removed_without_a_decision_and_an_edit_beside_it_is_not(
    world: World, bare: Bare, namespace: str
) -> None:
    manifest = _workload(namespace)
    manifest["metadata"]["finalizers"] = ["example.com/mine"]
    await bare.kube("POST", _path(namespace), manifest)
    await bare.kube("DELETE", _path(namespace, "/"))
    assert (await _metadata(bare, namespace))["deletionTimestamp"]
    await bare.kube("PATCH", _path(namespace, "/"), _annotated(**{PLACEMENT: FORBIDDEN}), MERGE)
    assert (await _annotations(bare, namespace))[PLACEMENT] == PLACED
    world.opa("PUT", "package elsewhere")  # from here on every decision is undefined
    try:
        edit = {"metadata": {"finalizers": None, "annotations": {"a": "1"}}}
        assert (await bare.answer("PATCH", _path(namespace, "/"), edit, MERGE))[0] == 503
        only = {"metadata": {"finalizers": None}}
        assert (await bare.answer("PATCH", _path(namespace, "/"), only, MERGE))[0] == 200
    finally:
        world.opa("PUT", POLICY)
    assert (await bare.answer("GET", _path(namespace, "/")))[0] == 404


async def test_a_generated_name_has_a_sealed_note_too(bare: Bare, namespace: str) -> None:
    """At its creation an object with generateName has no name yet."""
    manifest = _workload(namespace)
    manifest["metadata"] |= {"generateName": "web-"}
    del manifest["metadata"]["name"]
    made = json.loads(await bare.kube("POST", _path(namespace), manifest))
    path = f"{_path(namespace)}/{made['metadata']['name']}"
    changed = json.loads(await bare.kube("PATCH", path, _annotated(a="1"), MERGE))
    noted = [found["metadata"]["annotations"][REQUESTED] for found in (made, changed)]
    assert [json.loads(note)[PLACEMENT] for note in noted] == [None, None]
    assert noted[0] == noted[1]  # proven, and so not written anew


async def test_deep_managed_fields_take_no_object_out_of_the_reach_of_a_policy(
    world: World, bare: Bare, namespace: str
) -> None:
    """The API server stores 9,000 levels of them, which Python's stack does not read."""
    deep = deeply_managed(_workload(namespace, **{PLACEMENT: FORBIDDEN}))
    world.stack.kubectl("create", f"--raw={_path(namespace)}", "-f", "-", stdin=deep)
    stored = await bare.kube("GET", _path(namespace, "/"))
    assert stored.count(b'"f:a"') == 9_000
    forbidden = _annotated(**{PLACEMENT: FORBIDDEN})
    patched = await bare.kube("PATCH", _path(namespace, "/"), forbidden, MERGE)
    assert json.dumps(PLACED).encode() in stored
    assert json.dumps(PLACED).encode() in patched
