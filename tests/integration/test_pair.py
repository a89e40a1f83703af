"""Replicator, remediator and webhook as processes, on real servers, with exactly their roles."""

from __future__ import annotations

import asyncio
import json
import re
import secrets
import subprocess
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kube_sync.config import Decisions, Kubernetes, Opa, Settings
from kube_sync.decisions.records import DecisionRecord, Record, StatusRecord
from kube_sync.decisions.streamclient import stream_client
from kube_sync.guard import HISTORY
from kube_sync.inspect.why import command as why
from kube_sync.inspect.why.command import Question
from kube_sync.kube.naming import reference
from tests.eventually import eventually
from tests.parts import quickly
from tools.demo.components import Components, start_components
from tools.demo.fleet import (
    FLEET,
    LEVEL,
    PCI,
    POLICIES,
    PREFERENCES,
    cluster,
    namespace,
    replica_set,
)
from tools.demo.webhook import register_webhook
from tools.servers.binaries import ensure_binary
from tools.servers.errors import ToolError
from tools.servers.http import Answer, get, request
from tools.servers.running import Launcher
from tools.servers.stack import RunningStack, furnished_stack

ROOT = Path(__file__).resolve().parents[2]
STATUS = "openpolicyagent.org/kube-mgmt-status"
PLACED = """
package io.k8s.federation.admission

annotations["federation.kubernetes.io/replica-set-preferences"] := {
	"clusters": {name: {"weight": 1} | some name, _ in data.kubernetes.clusters.fleet},
} if input.kind == "ReplicaSet"
"""

LEVELLED = f"""
package io.k8s.federation.admission

annotations["federation.kubernetes.io/replica-set-preferences"] := {{
	"clusters": {{name: {{"weight": 1}} |
		some name, cluster in data.kubernetes.clusters.fleet
		_level(cluster.metadata.labels, "{LEVEL}") >= _level(input.metadata.annotations, "{PCI}")
	}},
}} if input.kind == "ReplicaSet"

_level(texts, key) := to_number(object.get(texts, key, "0"))
"""


@dataclass
class Pair:
    """A stack with all three services on it, and what the tests ask of it."""

    stack: RunningStack
    components: Components

    def apply(self, manifest: dict[str, Any]) -> None:
        self.stack.api.apply(manifest, manager="test", force=True)

    def policy(self, name: str, **modules: str) -> None:
        data = {f"{key}.rego": source for key, source in modules.items()}
        self.configmap(name, data)

    def configmap(self, name: str, data: dict[str, str]) -> None:
        self.apply(
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": name, "namespace": POLICIES},
                "data": data,
            }
        )

    def kube(self, path: str, role: str = "admin") -> Any:
        url, token = self.stack.apiserver_url + path, self.stack.kube_tokens[role]
        return json.loads(get(url, ca_file=self.stack.apiserver_ca_file, token=token).body)

    def opa(self, method: str, path: str, body: str | None = None) -> Answer:
        token = self.stack.opa_token_files["replicator"].read_text(encoding="utf-8")
        url = self.stack.opa_url + path
        return request(method, url, ca_file=self.stack.opa_ca_file, token=token, body=body)

    def data(self, path: str) -> Any:
        return json.loads(self.opa("GET", f"/v1/data/{path}").body).get("result")

    def status(self, name: str) -> Any:
        found = self.kube(f"/api/v1/namespaces/{POLICIES}/configmaps/{name}")
        text = (found["metadata"].get("annotations") or {}).get(STATUS)
        return json.loads(text) if text else None

    def modules(self) -> set[str]:
        found = json.loads(self.opa("GET", "/v1/policies").body)["result"]
        ids = {policy["id"].removeprefix("kube-sync/") for policy in found}  # the bundle's name
        return {policy_id for policy_id in ids if policy_id.startswith(f"{POLICIES}/")}

    def placement(self, name: str) -> Any:
        found = self.kube(f"/apis/apps/v1/namespaces/shop/replicasets/{name}")
        text = (found["metadata"].get("annotations") or {}).get(PREFERENCES)
        return sorted(json.loads(text)["clusters"]) if text else None

    def label(self, name: str, maintenance: str) -> None:
        self.stack.api.label("clusterprofiles", name, FLEET, maintenance=maintenance)

    def decisions(self) -> str:
        """Return the decision stream as it begins now."""
        endpoint = self.stack.endpoint
        url = f"{endpoint.url}/v1/decisions/io/k8s/federation/admission"
        token = endpoint.token_file.read_text(encoding="utf-8")
        return get(url, ca_file=endpoint.ca_file, token=token).body.decode()

    async def stream(self) -> AsyncGenerator[Record | None]:
        """Yield what a reader of the decision stream is told."""
        endpoint = self.stack.endpoint
        settings = Decisions(
            url=f"{endpoint.url}/v1/decisions",
            token_file=str(endpoint.token_file),
            ca_file=str(endpoint.ca_file),
        )
        async with (
            stream_client(settings, lambda _: None) as client,
            aclosing(client.records()) as records,
        ):
            async for record in records:
                yield record

    def sample(self, command: str, name: str) -> float | None:
        """Return a metric of a service."""
        page = get(self.components.services[command].url + "/metrics").body.decode()
        lines = [line for line in page.splitlines() if line.startswith(f"{name} ")]
        return float(lines[0].split()[1]) if lines else None

    def waiting(self, reason: str) -> float | None:
        """Return how many objects wait for this."""
        return self.sample("remediate", f'kube_sync_remediation_held{{reason="{reason}"}}')

    def readiness(self, command: str) -> str:
        return get(self.components.services[command].url + "/readyz").body.decode()


@pytest.fixture(scope="module")
def pair(launcher: Launcher, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """One stack with all three services, for the tests of this module."""
    folder = tmp_path_factory.mktemp("pair")
    with furnished_stack(launcher, folder / "stack", audit=True) as stack:
        components = start_components(stack, folder / "components")
        try:
            register_webhook(stack, components.webhook_url, components.webhook_ca)
            running = Pair(stack, components)
            for name in (FLEET, "shop"):
                running.apply(namespace(name))
            for name in ("west", "east"):
                running.apply(cluster(name, "europe-west1", "2"))
            yield running
        finally:
            components.stop()


@pytest.fixture(autouse=True)
def no_policies(pair: Pair) -> Iterator[None]:
    """Every test begins without policies."""
    yield
    pair.stack.api.delete_all("configmaps", POLICIES)


def fresh() -> str:
    return f"app-{secrets.token_hex(4)}"


def answering(preferences: str) -> str:
    """Return a policy whose answer is the same for every workload."""
    return f"""
package io.k8s.federation.admission

annotations["{PREFERENCES}"] := {preferences}
"""


async def test_opa_holds_what_the_api_server_holds(pair: Pair) -> None:
    """Invariant 1, by a comparison of its own: objects one by one, without the projection."""
    name = fresh()
    pair.apply(replica_set(name))
    path = f"/apis/apps/v1/namespaces/shop/replicasets/{name}"

    def difference() -> Any:
        held = pair.data(f"kubernetes/replicasets/shop/{name}")
        real = pair.kube(path)
        real["metadata"].pop("managedFields")
        return None if held == real else (held, real)

    await eventually(difference, None)
    pair.stack.api.delete("replicasets", name, "shop")
    await eventually(lambda: pair.data(f"kubernetes/replicasets/shop/{name}"), None)


async def test_changes_reach_opa_while_it_is_wiped_or_taken_over(pair: Pair) -> None:
    """Invariant 3: each of these looks like an OPA that answers, and holds nothing of ours."""
    for document in ("{}", '{"another-replicator": "loaded"}'):
        pair.opa("PUT", "/v1/data/kubernetes/clusters", "{}")
        pair.opa("PUT", "/v1/data/kube_sync/epoch", document)
        await eventually(
            lambda: sorted(pair.data("kubernetes/clusters/fleet") or ()), ["east", "west"]
        )


async def test_configmap_without_rego_key_is_no_policy(pair: Pair) -> None:
    """Every namespace of a real cluster has kube-root-ca.crt: it must not close the door."""
    pair.configmap("kube-root-ca.crt", {"ca.crt": "-----BEGIN CERTIFICATE-----"})
    name = fresh()
    pair.apply(replica_set(name))
    assert pair.placement(name) is None
    assert pair.status("kube-root-ca.crt") is None
    assert pair.modules() == set()


async def test_policy_without_answer_denies(pair: Pair) -> None:
    """Invariant 5: undefined is never permission, once a policy exists."""
    pair.policy("elsewhere", unrelated="package unrelated\nx := 1")
    await eventually(lambda: pair.status("elsewhere"), {"status": "ok"})
    # The webhook has a watch of its own, by which it knows that there is a policy.
    await eventually(lambda: refusal(pair), lambda said: "is undefined" in said)


async def test_modules_are_reloaded_and_dropped_with_their_keys(pair: Pair) -> None:
    pair.policy("placement", one=PLACED, two="package two\nx := 1")
    prefix = f"{POLICIES}/placement"
    await eventually(pair.modules, {f"{prefix}/one.rego", f"{prefix}/two.rego"})
    pair.policy("placement", one=PLACED, two="package two\nx := 2")
    await eventually(lambda: pair.data("two/x"), 2)
    pair.configmap("placement", {"one.rego": PLACED, "readme": "no policy"})
    await eventually(pair.modules, {f"{prefix}/one.rego"})
    pair.stack.api.delete("configmaps", "placement", POLICIES)
    await eventually(pair.modules, set())


async def test_modules_that_need_each_other_are_loaded_in_any_order(pair: Pair) -> None:
    """Sorted by name, the one that calls comes before the one that is called."""
    pair.policy("a-caller", main="package caller\nimport data.lib\nx := lib.double(2)")
    pair.policy("b-called", lib="package lib\ndouble(n) := n * 2")
    await eventually(
        lambda: (pair.status("a-caller"), pair.data("caller/x")), ({"status": "ok"}, 4)
    )


async def test_broken_module_says_where_and_delays_no_other(pair: Pair) -> None:
    pair.policy("broken", bad="package bad\n\nallow if {")
    pair.policy("good", placement=PLACED)
    await eventually(lambda: pair.status("good"), {"status": "ok"})

    def complaint() -> Any:
        found = pair.status("broken") or {}
        location = found.get("error", {}).get("errors", [{}])[0].get("location", {})
        return found.get("status"), location.get("file"), location.get("row")

    await eventually(complaint, ("error", f"{POLICIES}/broken/bad.rego", 3))
    name = fresh()
    pair.apply(replica_set(name))
    assert pair.placement(name) == ["east", "west"]


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("package system.authz\nallow := true", "package system.authz is reserved"),
        ("package kube_sync.batch\ndecisions := {}", "package kube_sync.batch is reserved"),
        ("package kubernetes.clusters.fleet\nwest := {}", "is where replicated data lies"),
        ('package p\nx := http.send({"url": "https://example.com"})', "http.send is not allowed"),
        ("package p\nx := opa.runtime().env", "opa.runtime is not allowed"),
    ],
)
async def test_policy_cannot_open_the_door(pair: Pair, source: str, reason: str) -> None:
    """Invariant 9."""
    pair.policy("hostile", module=source)
    await eventually(lambda: reason in json.dumps(pair.status("hostile")), expected=True)
    assert pair.modules() == set()


async def test_cluster_that_joins_and_leaves_moves_annotations_and_touches_nothing_else(
    pair: Pair,
) -> None:
    pair.policy("placement", one=PLACED)
    await eventually(lambda: pair.status("placement"), {"status": "ok"})
    name, other = fresh(), fresh()
    pair.apply(replica_set(name))
    pair.apply(replica_set(other))
    before = pair.kube(f"/apis/apps/v1/namespaces/shop/replicasets/{other}")
    pair.apply(cluster("north", "europe-north1", "1"))
    for placed in (name, other):
        await eventually(lambda placed=placed: pair.placement(placed), ["east", "north", "west"])  # type: ignore[misc]
    pair.stack.api.delete("clusterprofiles", "north", FLEET)
    await eventually(lambda: pair.placement(other), ["east", "west"])
    after = pair.kube(f"/apis/apps/v1/namespaces/shop/replicasets/{other}")
    before["metadata"].pop("managedFields")
    after["metadata"].pop("managedFields")
    assert after["metadata"]["annotations"].pop(HISTORY)
    after["metadata"]["resourceVersion"] = before["metadata"]["resourceVersion"]
    assert after == before


async def test_change_that_why_not_finds_turns_the_decision_once_it_is_made(pair: Pair) -> None:
    """What was found in a scratch OPA, made where it is real: by hand, in the API server."""
    pair.policy("placement", one=LEVELLED)
    await eventually(lambda: pair.status("placement"), {"status": "ok"})
    name = fresh()
    pair.apply(cluster("low", "europe-west1", "1"))
    pair.apply(replica_set(name, pci="2"))
    assert pair.placement(name) == ["east", "west"]
    settings = Settings(
        opa=Opa(binary=str(ensure_binary("opa"))),
        kubernetes=Kubernetes(kubeconfig=str(pair.stack.kubeconfigs["admin"])),
    )
    question = Question(reference(f"replicaset/{name}"), "shop", "low", form="json")
    found = json.loads((await why.run(question, settings, print)).text)
    turn = found["search"]["found"][0]
    assert (turn["of"], turn["path"], turn["after"]) == (
        "cluster",
        ["metadata", "labels", LEVEL],
        "2",
    )
    pair.stack.kubectl(
        "label", "clusterprofile", "low", f"--namespace={FLEET}", "--overwrite", f"{LEVEL}=2"
    )
    await eventually(lambda: pair.placement(name), turn["decided"])
    pair.stack.api.delete("clusterprofiles", "low", FLEET)
    await eventually(lambda: pair.placement(name), ["east", "west"])


async def test_decision_that_changes_nothing_writes_nothing(pair: Pair) -> None:
    """Invariant 7; the API server's audit log is the witness."""
    pair.policy("placement", one=PLACED)
    await eventually(lambda: pair.status("placement"), {"status": "ok"})
    name = fresh()
    pair.apply(replica_set(name))
    pair.stack.kubectl(
        "label", "clusterprofile", "west", f"--namespace={FLEET}", "--overwrite", f"{LEVEL}=5"
    )
    await eventually(
        lambda: pair.data("kubernetes/clusters/fleet/west/metadata/labels")[LEVEL], "5"
    )
    # A decision that does change is what tells that the one before it has been dealt with.
    pair.policy("placement", one=PLACED.replace('"weight": 1', '"weight": 2'))
    await eventually(lambda: pair.status("placement"), {"status": "ok"})

    def patches() -> int:
        return sum(
            line["verb"] == "patch"
            and line["objectRef"].get("name") == name
            and line["user"]["username"].endswith("kube-sync-remediator")
            for line in pair.stack.audited("kube-sync-remediator")
        )

    await eventually(patches, 1)


@pytest.mark.slow
async def test_missing_kind_is_named_and_holds_remediation(pair: Pair) -> None:
    """Invariant 8: with the clusters' kind goes the fleet, and no workload may be moved for it."""
    pair.policy("placement", one=PLACED)
    await eventually(lambda: pair.status("placement"), {"status": "ok"})
    name = fresh()
    pair.apply(replica_set(name))
    crd = "clusterprofiles.multicluster.x-k8s.io"
    pair.stack.kubectl("delete", "crd", crd)
    try:
        await eventually(lambda: "is its CRD there?" in pair.readiness("replicate"), expected=True)
        await eventually(lambda: pair.data("kubernetes/clusters"), {})
        assert pair.placement(name)
    finally:
        pair.stack.install_kinds(ROOT / "tests/crds")
        for restored in ("east", "west"):
            pair.apply(cluster(restored, "europe-west1", "2"))
    await eventually(lambda: sorted(pair.data("kubernetes/clusters/fleet") or ()), ["east", "west"])
    await eventually(lambda: pair.readiness("replicate").endswith("\nready\n"), expected=True)
    await eventually(lambda: pair.placement(name), ["east", "west"])


@pytest.mark.slow
async def test_restarted_replicator_unloads_policies_that_went_meanwhile(pair: Pair) -> None:
    pair.policy("placement", one=PLACED)
    await eventually(lambda: len(pair.modules()), 1)
    service = pair.components.services["replicate"]
    service.stop()
    pair.stack.api.delete("configmaps", "placement", POLICIES)
    service.start()
    await eventually(pair.modules, set())


LIMITS = """
package kube_sync_budget

not_before[name] := 4102444800 if {
	some name in {"shop/NAME"}
	some found in data.kubernetes.clusters.fleet
	_is_in_maintenance(found)
}

_is_in_maintenance(found) if found.metadata.labels.maintenance == "true"
"""


@pytest.mark.slow
async def test_policy_lets_a_move_wait_until_its_limits_are_gone(pair: Pair) -> None:
    name, leaving = fresh(), f"leaving-{secrets.token_hex(4)}"
    pair.policy("placed", placed=PLACED)
    pair.policy("limits", limits=LIMITS.replace("NAME", name))
    await eventually(lambda: len(pair.modules()), 2)
    pair.apply(cluster(leaving, "europe-west1", "2"))
    for found in (name, free := fresh()):
        manifest = replica_set(found)
        manifest["metadata"]["namespace"] = "shop"
        pair.apply(manifest)
        await eventually(partial(pair.placement, found), sorted(["east", leaving, "west"]))
    pair.label("east", "true")
    where = f"--namespace={FLEET}"
    pair.stack.kubectl("delete", "clusterprofile", leaving, where)
    # Those of one decision, but for what only the limits tell apart.
    await eventually(lambda: pair.placement(free), ["east", "west"])
    await eventually(lambda: pair.waiting("not_before"), 1.0)
    assert pair.placement(name) == sorted(["east", leaving, "west"])
    pair.label("east", "false")
    await eventually(lambda: pair.placement(name), ["east", "west"])
    await eventually(lambda: pair.waiting("not_before"), 0.0)  # it is told after the PATCH


WHILE = """
package kube_sync_budget

moves_burst := 1 if {
	some found in data.kubernetes.clusters.fleet
	found.metadata.labels.maintenance == "true"
}
"""


@pytest.mark.slow
async def test_the_end_of_limits_is_told_after_what_is_decided_by_their_end(pair: Pair) -> None:
    pair.label("east", "true")
    in_use = "some name, found in data.kubernetes.clusters.fleet\n"
    in_use += '\t\tfound.metadata.labels.maintenance == "false"'
    pair.label("west", "false")
    pair.policy("limits", limits=WHILE)
    placed = PLACED.replace("some name, _ in data.kubernetes.clusters.fleet", in_use)
    pair.policy("placed", placed=placed)
    await eventually(lambda: len(pair.modules()), 2)
    manifest = replica_set(name := fresh())
    manifest["metadata"]["namespace"] = "shop"
    pair.apply(manifest)
    await eventually(lambda: pair.placement(name), ["west"])
    # The webhook may have placed it, before the replicator decided anything by these policies.
    await eventually(lambda: name in pair.decisions(), expected=True)
    told: list[str] = []
    async with asyncio.timeout(20), aclosing(pair.stream()) as records:
        async for record in records:
            if isinstance(record, DecisionRecord) and record.object.name == name:
                told.append("decision")
            elif isinstance(record, StatusRecord) and not record.held:
                limited = record.budget is not None and record.budget.document
                told.append("limit" if limited else "end")
            if told == ["decision", "limit"]:
                pair.label("east", "false")
            if "end" in told:
                break
    assert told == ["decision", "limit", "decision", "end"]


async def test_limits_that_cannot_be_used_are_told_and_hold_nothing_else(pair: Pair) -> None:
    pair.policy("limits", limits="package kube_sync_budget\n\nmove_per_minute := 1")
    trouble = "limits of policies are not in force as they are: data.kube_sync_budget: Object"
    await eventually(lambda: min(1, pair.decisions().count(trouble)), 1)
    await eventually(lambda: pair.sample("replicate", "kube_sync_budget_unusable"), 1.0)
    await eventually(lambda: pair.sample("remediate", "kube_sync_budget_unusable"), 1.0)
    name = fresh()
    pair.policy("placed", placed=PLACED)
    await eventually(lambda: len(pair.modules()), 2)
    manifest = replica_set(name)
    manifest["metadata"]["namespace"] = "shop"
    pair.apply(manifest)
    await eventually(lambda: pair.placement(name), ["east", "west"])
    pair.stack.api.delete("configmaps", "limits", POLICIES)
    await eventually(lambda: pair.sample("remediate", "kube_sync_budget_unusable"), 0.0)


async def test_placement_on_clusters_that_do_not_exist_moves_nobody_and_says_why(
    pair: Pair,
) -> None:
    names = [fresh(), fresh()]
    for name in names:
        pair.apply(replica_set(name))
    pair.policy("placement", main=PLACED)
    for name in names:
        await eventually(partial(pair.placement, name), ["east", "west"])
    pair.policy("placement", main=answering('{"clusters": {"eats": {"weight": 1}}}'))
    await eventually(lambda: (pair.waiting("nowhere") or 0) >= len(names), expected=True)
    near = "the fleet has no cluster 'eats' (nearest: east, west)"
    warning = f"main.rego row 4: {near}; workloads that get no other cluster are not moved there"

    def warnings() -> list[str]:
        return [one["message"] for one in (pair.status("placement") or {}).get("warnings", ())]

    await eventually(warnings, [warning])
    # Other tests have left workloads, too.
    note = (
        rf"placements name clusters that are unknown, \d+ of them no other ones: {re.escape(near)}"
    )
    await eventually(lambda: re.search(note, pair.decisions()) is not None, expected=True)

    def told() -> dict[str, str]:
        found = pair.kube("/apis/events.k8s.io/v1/namespaces/shop/events")["items"]
        nowhere = [one for one in found if one["reason"] == "RemediationNowhere"]
        notes = {one["regarding"]["name"]: one["note"] for one in nowhere}
        return {name: notes.get(name, "").partition(" (the policy")[0] for name in names}

    await eventually(told, dict.fromkeys(names, f"it would run on no cluster: {near}"))
    said = create(pair, new := fresh())
    assert f"Warning: the policy places this on no cluster: {near}" in said
    assert pair.placement(new) == ["eats"], "nothing ran there before"
    pair.stack.kubectl("label", "replicaset", names[0], "--namespace=shop", "touched=yes")
    assert [pair.placement(name) for name in names] == [["east", "west"]] * 2
    pair.policy("placement", main=answering('{"clusters": {"eats": {}, "east": {}}}'))
    for name in (*names, new):
        await eventually(partial(pair.placement, name), ["east", "eats"])
    await eventually(lambda: pair.waiting("nowhere"), 0.0)

    def warned() -> set[str]:
        found = pair.kube("/apis/events.k8s.io/v1/namespaces/shop/events")["items"]
        told = [e for e in found if e["reason"] == "RemediationUnknownClusters"]
        return {e["regarding"]["name"] for e in told} & set(names)

    await eventually(warned)


@pytest.mark.parametrize(
    ("preferences", "found"),
    quickly(
        1,
        [
            ('{"clustrs": {"east": {}}}', "found the key `clustrs` instead of `clusters`"),
            ('["east"]', "found an array"),
        ],
    ),
)
async def test_placement_that_nobody_can_read_is_no_decision_anywhere(
    pair: Pair, preferences: str, found: str
) -> None:
    name = fresh()
    pair.apply(replica_set(name))
    pair.policy("placement", main=PLACED)
    await eventually(lambda: pair.placement(name), ["east", "west"])
    pair.policy("placement", main=answering(preferences))
    where = "main.rego row 4 of ConfigMap " + f"{POLICIES}/placement: annotation {PREFERENCES}"

    def warnings() -> str:
        found = (pair.status("placement") or {}).get("warnings", ())
        return "".join(one["message"] for one in found)

    await eventually(lambda: f"{where}: expected" in warnings() and found in warnings(), True)  # noqa: FBT003
    await eventually(lambda: (pair.waiting("failed") or 0) >= 1, True)  # noqa: FBT003
    with pytest.raises(ToolError) as refused:
        pair.apply(replica_set(fresh()))
    assert f"{where}: expected" in str(refused.value)
    assert found in str(refused.value)
    assert pair.placement(name) == ["east", "west"]


def refusal(pair: Pair) -> str:
    """Return why a workload that is tried is refused, "" if it is not."""
    try:
        pair.stack.api.apply(replica_set(fresh()), dry_run=True)
    except ToolError as error:
        return str(error)
    return ""


def create(pair: Pair, name: str) -> str:
    """Create a workload, and return what kubectl prints, warnings among it."""
    kubeconfig = f"--kubeconfig={pair.stack.kubeconfigs['admin']}"
    done = subprocess.run(
        [str(ensure_binary("kubectl")), kubeconfig, "create", "-f", "-"],
        input=json.dumps(replica_set(name)),
        capture_output=True,
        check=True,
        text=True,
    )
    return f"{done.stdout}{done.stderr}"
