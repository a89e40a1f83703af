"""Plans over exported objects and over a fake API server, decided by a real OPA."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kube_sync.config import (
    Guard,
    Kubernetes,
    Opa,
    Placement,
    Policies,
    Remediate,
    Replicate,
    Resource,
    Settings,
    Target,
)
from kube_sync.errors import Broken, Misconfigured, SyncError
from kube_sync.inspect.plan import command
from kube_sync.inspect.plan.promotion_preview import preview
from kube_sync.inspect.plan.request import Form, Request
from kube_sync.kube.naming import reference
from kube_sync.kube.placementpolicies import KIND, PLACEMENT_POLICIES
from kube_sync.objects import ObjectKey
from kube_sync.policykinds.printing import Answer
from tests.fakes.apiserver import FakeApiServer, fake_apiserver
from tests.fakes.clients import CLUSTERS, CONFIGMAPS, REPLICASETS
from tests.unit.inspect.plan.fleets import (
    FLEET,
    NAMESPACE,
    POLICY,
    WORKLOADS,
    ZONE,
    canary,
    policy,
    policy_object,
    replicaset,
    write,
    zoned,
)
from tools.servers.binaries import ensure_binary

SETTINGS = Settings(opa=Opa(binary=str(ensure_binary("opa"))))
BROKEN = "package io.k8s.federation.admission\n\nx := y\n"


@pytest.fixture
def fleet(tmp_path: Path) -> str:
    return write(tmp_path / "fleet.jsonl", policy(), *FLEET, *WORKLOADS)


async def planned(request: Request, settings: Settings = SETTINGS) -> tuple[Answer, Any]:
    said: list[str] = []
    answer = await command.run(request, settings, said.append)
    return answer, json.loads(answer.text)


def ways(document: Mapping[str, Any]) -> dict[str, tuple[str, list[str]]]:
    return {one["name"]: (one["effect"], one["to"]) for one in document["workloads"]}


def asking(fleet: str | None, *fields: str, **more: Any) -> Request:
    return Request(exported=fleet, form="json", fields=fields, **more)


async def test_nothing_moves_by_an_edit_that_changes_nothing(fleet: str) -> None:
    answer, document = await planned(asking(fleet, f"c1.labels.{ZONE}=eu", "c1.labels.other=1"))
    assert (answer.status, document["workloads"]) == (0, [])
    assert document["summary"]["workloads"] == 3


async def test_cluster_that_changes_moves_what_no_longer_fits_and_adds_what_does(
    fleet: str,
) -> None:
    answer, document = await planned(asking(fleet, f"c2.labels.{ZONE}=us"))
    assert answer.status == 2
    assert ways(document) == {
        "web": ("moves", ["c1"]),
        "shop": ("moves", ["c1"]),
        "ads": ("adds", ["c2", "c3"]),
    }
    assert document["summary"]["classes"] == 2  # two zones, three workloads
    (rule,) = {r["rule"]: r for w in document["workloads"] for r in w["rules"]}.values()
    assert rule["file"] == f"{NAMESPACE}/placement/policy.rego"
    assert (rule["row"], rule["when"]) == (3, "both")


async def test_what_other_sinks_place_counts_as_placed_where_it_is_decided(tmp_path: Path) -> None:
    """Its annotations, which are not ours, say nothing."""
    target = Target("replicasets", ("placement_decisions",))
    settings = msgspec.structs.replace(SETTINGS, placement=Placement(resources=(target,)))
    elsewhere = replicaset("web", "eu", "c3")
    fleet = write(tmp_path / "fleet.jsonl", policy(), *FLEET, elsewhere)
    _, document = await planned(asking(fleet, f"c1.labels.{ZONE}=eu"), settings)
    assert document["workloads"] == []
    answer, document = await planned(asking(fleet, f"c2.labels.{ZONE}=us"), settings)
    assert (answer.status, ways(document)) == (2, {"web": ("moves", ["c1"])})


async def test_named_workload_is_all_that_is_printed_and_the_brakes_count_all(fleet: str) -> None:
    request = asking(fleet, f"c2.labels.{ZONE}=us", of=(reference("rs/ads"),), namespace="shop")
    answer, document = await planned(request)
    assert (answer.status, ways(document)) == (2, {"ads": ("adds", ["c2", "c3"])})
    assert document["summary"]["workloads"] == 1
    assert "2 other workloads are affected too, and not shown" in document["notes"]
    named = await command.run(replace(request, form="name"), SETTINGS, print)
    assert named.text == "replicasets.apps/ads"


async def test_last_cluster_that_leaves_refuses_workloads_and_breaks_the_plan(fleet: str) -> None:
    answer, document = await planned(asking(fleet, removed=("c3",)))
    assert (answer.status, ways(document)) == (3, {"ads": ("refused", ["c3"])})
    (workload,) = document["workloads"]
    assert workload["reason"] == "the policy objects: no cluster fits"
    places = {(rule["row"], rule["when"]) for rule in workload["rules"]}
    assert places >= {(9, "then"), (3, "now")}


async def test_cluster_that_joins_is_in_a_file(fleet: str, tmp_path: Path) -> None:
    joins = write(tmp_path / "c4.json", zoned("c4", "us"))
    answer, document = await planned(asking(fleet, clusters=(joins,)))
    assert (answer.status, ways(document)) == (2, {"ads": ("adds", ["c3", "c4"])})


@pytest.mark.parametrize(
    ("preferences", "effect", "reason"),
    [
        (
            '"clusters": {"c0001": {"weight": 1}}',
            "nowhere",
            "the fleet has no cluster 'c0001' (nearest: c1, c2, c3)",
        ),
        (
            '"clustrs": {name: {"weight": 1} | some name in _fit}',
            "failed",
            "found the key `clustrs` instead of `clusters`",
        ),
        ('"clusters": [name | some name in _fit]', "failed", "found `clusters` as an array"),
    ],
)
async def test_placement_on_no_cluster_or_in_no_readable_form_breaks_the_plan(
    fleet: str, tmp_path: Path, preferences: str, effect: str, reason: str
) -> None:
    candidate = tmp_path / "policy.rego"
    right = '"clusters": {name: {"weight": 1} | some name in _fit}'
    candidate.write_text(POLICY.replace(right, preferences), encoding="utf-8")
    answer, document = await planned(asking(fleet, files=(str(candidate),)))
    assert answer.status == 3
    assert document["summary"][effect] == len(document["workloads"]) == 3
    for workload in document["workloads"]:
        assert reason in workload["reason"]
        if effect == "failed":
            assert workload["reason"].startswith(f"no usable decision: {candidate} row ")
            assert '{"clusters": {NAME: {"weight": 1}}}' in workload["reason"]
        else:
            assert workload["held"]["kind"] == "nowhere"


async def test_canary_is_noted_with_the_objects_of_its_side(tmp_path: Path) -> None:
    canaried = canary(POLICY.replace("in _fit}", 'in _fit | {"c1"}}'), "0.5")
    fleet = write(tmp_path / "fleet.jsonl", policy(), canaried, *FLEET, *WORKLOADS)
    answer, document = await planned(asking(fleet, f"c2.labels.{ZONE}=eu"))
    assert (answer.status, document["workloads"]) == (0, [])  # by what is in force
    (note,) = document["notes"]
    assert note.startswith(f"ConfigMap {NAMESPACE}/placement-candidate, a canary of 50 % of all")
    assert "decides on 1 of these workloads" in note


async def test_value_of_a_secret_that_a_candidate_would_read_is_noted_and_not_had(
    tmp_path: Path,
) -> None:
    """It is in a file of the author's own making, and would not be in OPA."""
    values = [f"data.kubernetes.secrets[_][_].data.{name}" for name in ("zone", "other")]
    text = POLICY + "".join(f'errors contains "told" if {v} == "c2VjcmV0"\n\n' for v in values)
    candidate = tmp_path / "policy.rego"
    candidate.write_text(text, encoding="utf-8")
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "s", "namespace": "shop"},
        "data": {"zone": "c2VjcmV0"},
    }
    secretive = write(tmp_path / "all.jsonl", policy(), *FLEET, *WORKLOADS, secret)
    found = []
    for allowed in (False, True):
        resources = (*Replicate().resources, Resource("", "v1", "secrets", secrets=allowed))
        settings = Settings(opa=SETTINGS.opa, replicate=Replicate(resources=resources))
        answer, document = await planned(asking(secretive, files=(str(candidate),)), settings)
        notes = [note.partition(" is undefined")[0] for note in document["notes"]]
        found.append((answer.status, notes))
    module = f"{NAMESPACE}/placement/policy.rego"
    out = [f"{module}: data.{name} of secrets" for name in ("other", "zone")]
    assert found == [(0, out), (3, [])]


async def test_policy_takes_the_place_of_its_configmap(fleet: str, tmp_path: Path) -> None:
    file = tmp_path / "policy.rego"
    file.write_text(
        POLICY.replace("count(_fit) > 0", 'count(_fit) > 0\n\tinput.metadata.name != ""')
    )
    answer, _ = await planned(asking(fleet, files=(str(file),)))
    assert answer.status == 0
    manifest = write(tmp_path / "cm.json", policy(POLICY.replace("_fit}", '_fit - {"c1"}}')))
    answer, document = await planned(asking(fleet, files=(manifest,)))
    assert ways(document) == {"web": ("moves", ["c2"]), "shop": ("moves", ["c2"])}
    rules = [rule["file"] for one in document["workloads"] for rule in one["rules"]]
    assert {*rules} >= {f"{manifest} ({NAMESPACE}/placement/policy.rego)"}


@pytest.mark.slow
async def test_staged_configmap_is_no_policy_until_it_is_planned_with(tmp_path: Path) -> None:
    staged = policy(
        POLICY.replace("_fit}", '_fit - {"c1"}}'),
        name="placement-candidate",
        labels={"kube-sync.io/stage": "candidate"},
    )
    fleet = write(tmp_path / "fleet.jsonl", policy(), staged, *FLEET, *WORKLOADS)
    answer, _ = await planned(asking(fleet, "c1.labels.other=1"))
    assert answer.status == 0
    answer, document = await planned(asking(fleet, staged=True))
    assert (answer.status, document["summary"]["moves"]) == (2, 2)


@pytest.mark.parametrize("stage", ["shadow", "canary"])
async def test_policy_of_another_stage_is_planned_with_where_it_is_to_be_promoted(
    tmp_path: Path, stage: str
) -> None:
    source = POLICY.replace("_fit}", '_fit - {"c1"}}')
    labels = {"kube-sync.io/stage": stage}
    staged = policy(source, name="placement-candidate", labels=labels)
    fleet = write(tmp_path / "fleet.jsonl", policy(), staged, *FLEET, *WORKLOADS)
    name = f"{NAMESPACE}/placement-candidate"
    asked = asking(fleet, staged=True, candidates=(name,))
    with pytest.raises(Broken, match="--candidate: there is no candidate"):
        await planned(asked)
    answer, document = await planned(replace(asked, stages=("candidate", "shadow", "canary")))
    assert (answer.status, document["summary"]["moves"]) == (2, 2)


@pytest.mark.slow
async def test_only_the_candidates_that_are_named_are_planned_with(tmp_path: Path) -> None:
    labels = {"kube-sync.io/stage": "candidate"}
    moving = policy(POLICY.replace("_fit}", '_fit - {"c1"}}'), name="placement-candidate")
    broken = policy_object(BROKEN, name="broken", stage="candidate")
    moving["metadata"]["labels"] = labels
    fleet = write(tmp_path / "fleet.jsonl", policy(), moving, broken, *FLEET, *WORKLOADS)
    with pytest.raises(Broken, match="var y is unsafe"):
        await planned(asking(fleet, staged=True))
    name = f"{NAMESPACE}/placement-candidate"
    answer, document = await planned(asking(fleet, staged=True, candidates=(name,)))
    assert (answer.status, [one["name"] for one in document["candidates"]]) == (2, [name])
    short = await command.run(
        replace(asking(fleet, staged=True, candidates=(name,)), form="summary"), SETTINGS, print
    )
    del document["workloads"]
    assert json.loads(short.text) == document
    for gone in ("elsewhere/x", f"{NAMESPACE}/broken", f"{NAMESPACE}/placement"):
        with pytest.raises(Broken, match="--candidate: there is no candidate"):
            await planned(asking(fleet, staged=True, candidates=(gone,)))
    broken_too = (name, f"{NAMESPACE}/broken.PlacementPolicy")
    with pytest.raises(Broken, match="var y is unsafe"):
        await planned(asking(fleet, staged=True, candidates=broken_too))


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (BROKEN, "policy.rego:3: rego_unsafe_var_error: var y is unsafe"),
        ("package", "policy.rego:1: rego_parse_error: "),
        ("package system.a", "policy.rego: forbidden: package system.a is reserved"),
        ("package kubernetes.clusters.x", "where replicated data lies"),
        ("package a\nb := http.send({})", "builtin http.send is not allowed"),
    ],
)
async def test_candidate_that_no_policy_may_be_is_no_plan(
    fleet: str, tmp_path: Path, source: str, said: str
) -> None:
    file = tmp_path / "policy.rego"
    file.write_text(source)
    with pytest.raises(Broken) as raised:
        await planned(asking(fleet, files=(str(file),)))
    assert said in str(raised.value)
    assert str(raised.value).startswith(str(tmp_path))


async def test_candidate_that_puts_another_policy_at_fault_is_no_plan(
    fleet: str, tmp_path: Path
) -> None:
    file = tmp_path / "new.rego"
    file.write_text("package io.k8s.federation.admission\n\n_fit(x) := x\n")
    with pytest.raises(Broken, match="_fit"):
        await planned(asking(fleet, files=(str(file),)))


async def test_answer_that_conflicts_with_another_policy_fails_its_workloads_alone(
    fleet: str, tmp_path: Path
) -> None:
    file = tmp_path / "new.rego"
    head = "package io.k8s.federation.admission\n\n"
    rule = 'annotations["federation.kubernetes.io/replica-set-preferences"] := "x"'
    file.write_text(f'{head}{rule} if input.metadata.name == "web"\n')
    answer, document = await planned(asking(fleet, files=(str(file),)))
    assert (answer.status, document["summary"]["failed"]) == (3, 1)
    (workload,) = document["workloads"]
    assert "candidates/new.rego:3" in workload["reason"]


async def test_policy_that_counts_workloads_counts_those_that_share_a_decision(
    fleet: str, tmp_path: Path
) -> None:
    file = tmp_path / "crowd.rego"
    zones = "_zone(one.metadata.annotations) == _zone(input.metadata.annotations)"
    crowd = f"[one | some one in data.kubernetes.replicasets.shop; {zones}]"
    head = "package io.k8s.federation.admission\n\n"
    file.write_text(f'{head}errors contains "crowded" if count({crowd}) > 1\n')
    answer, document = await planned(asking(fleet, files=(str(file),)))
    assert ways(document) == {name: ("refused", ["c1", "c2"]) for name in ("web", "shop")}
    assert (answer.status, document["summary"]["classes"]) == (3, 2)


async def test_policy_that_does_not_compile_today_is_noted_and_left_out(tmp_path: Path) -> None:
    also = policy(BROKEN, name="broken")
    fleet = write(tmp_path / "fleet.jsonl", policy(), also, *FLEET, *WORKLOADS)
    answer, document = await planned(asking(fleet, removed=("c2",)))
    assert answer.status == 2
    (note,) = document["notes"]
    assert f"{NAMESPACE}/broken" in note
    assert "policy.rego:3" in note


async def test_what_was_asked_for_is_put_back_before_the_policy_sees_it(tmp_path: Path) -> None:
    wrote = replicaset("web", "mars", "c1", "c2")
    asked = json.dumps({ZONE: "eu"})
    wrote["metadata"]["annotations"]["kube-sync.io/requested"] = asked
    fleet = write(tmp_path / "fleet.jsonl", policy(), *FLEET, wrote)
    _, document = await planned(asking(fleet, removed=("c2",)))
    assert ways(document) == {"web": ("moves", ["c1"])}


async def test_brakes_of_the_configuration_and_of_policies_say_when(tmp_path: Path) -> None:
    budget = "package kube_sync_budget\n\nmoves_per_minute := 6\n\nmoves_burst := 1\n"
    many = [replicaset(f"w{n}", "eu", "c1", "c2") for n in range(4)]
    limits = policy(budget, name="limits")
    fleet = write(tmp_path / "fleet.jsonl", policy(), limits, *FLEET, *many)
    settings = Settings(opa=SETTINGS.opa, remediate=Remediate(guard=Guard(shrink_share=1)))
    _, document = await planned(asking(fleet, removed=("c2",)), settings)
    times = sorted(one["after_seconds"] for one in document["workloads"])
    assert times == pytest.approx([0, 10, 20, 30], abs=0.1)
    dry = Settings(opa=SETTINGS.opa, remediate=Remediate(mode="dry-run"))
    _, document = await planned(asking(fleet, removed=("c2",)), dry)
    assert {one["after_seconds"] for one in document["workloads"]} == {None}
    assert "does not write" in document["notes"][0]


async def test_limits_that_cannot_be_used_are_noted_and_no_time_is_told(tmp_path: Path) -> None:
    limits = policy("package kube_sync_budget\n\nmoves_per_minit := 6\n", name="limits")
    fleet = write(tmp_path / "fleet.jsonl", policy(), limits, *FLEET, *WORKLOADS)
    _, document = await planned(asking(fleet, removed=("c2",)))
    assert "moves_per_minit" in document["notes"][0]
    assert {one["after_seconds"] for one in document["workloads"]} == {None}


async def test_fleet_without_a_policy_is_noted(tmp_path: Path) -> None:
    fleet = write(tmp_path / "fleet.jsonl", *FLEET, *WORKLOADS)
    answer, document = await planned(asking(fleet, removed=("c2",)))
    assert answer.status == 0
    assert "are all policies here?" in document["notes"][0]


async def test_export_without_workloads_is_no_plan(tmp_path: Path) -> None:
    fleet = write(tmp_path / "fleet.jsonl", policy(), *FLEET)
    with pytest.raises(Broken, match="there are no replicasets in it"):
        await planned(asking(fleet, removed=("c2",)))


async def test_facts_of_clusters_need_clusters(fleet: str) -> None:
    alone = Replicate(resources=(Resource("apps", "v1", "replicasets"),))
    settings = Settings(opa=SETTINGS.opa, replicate=alone)
    with pytest.raises(Broken, match='there is no collection "clusters"'):
        await planned(asking(fleet, removed=("c2",)), settings)


@pytest.mark.slow
async def test_plan_is_a_table_or_markdown_too(fleet: str) -> None:
    forms: dict[Form, str] = {"text": "EFFECT ", "markdown": "### Plan: 2 to move"}
    for form, begin in forms.items():
        request = replace(asking(fleet, removed=("c2",)), form=form)
        answer = await command.run(request, SETTINGS, print)
        assert (answer.status, answer.text[: len(begin)]) == (2, begin)


async def test_what_the_plan_cannot_know_is_noted(fleet: str, tmp_path: Path) -> None:
    file = tmp_path / "policy.rego"
    file.write_text(POLICY.replace("count(_fit) > 0", "count(_fit) > 0\n\ttime.now_ns() > 0"))
    settings = Settings(
        opa=SETTINGS.opa, policies=Policies(static=True), replicate=Replicate(topology=True)
    )
    answer, document = await planned(asking(fleet, files=(str(file),)), settings)
    assert (answer.status, document["summary"]["classes"]) == (0, 3)
    alone, static, topology = document["notes"]
    assert "time.now_ns" in alone
    assert "policies.static" in static
    assert "replicate.topology" in topology  # of which there is none in the export


async def test_file_that_is_no_export_is_no_plan(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match=r"--from: .*gone: there is no such file"):
        await planned(asking(str(tmp_path / "gone"), removed=("c2",)))
    (tmp_path / "words").write_text("words")
    with pytest.raises(SyncError, match=r"words, line 1: not a Kubernetes object"):
        await planned(asking(str(tmp_path / "words"), removed=("c2",)))


async def live(api: FakeApiServer, folder: Path) -> Settings:
    api.define(REPLICASETS, "ReplicaSet")
    api.define(CLUSTERS, "ClusterProfile")
    api.define(CONFIGMAPS, "ConfigMap")
    kinds = {"ReplicaSet": REPLICASETS, "ClusterProfile": CLUSTERS, "ConfigMap": CONFIGMAPS}
    for found in map(deepcopy, (policy(), *FLEET, *WORKLOADS)):
        metadata = found["metadata"]
        key = ObjectKey(metadata["namespace"], metadata["name"])
        content = {name: part for name, part in found.items() if name in ("metadata", "data")}
        api.put(kinds[found["kind"]], key, **content)
    return Settings(
        opa=SETTINGS.opa, kubernetes=Kubernetes(kubeconfig=api.kubeconfig(folder / "kubeconfig"))
    )


async def test_cluster_is_planned_over_as_its_export_is_and_only_read(tmp_path: Path) -> None:
    lines: list[str] = []
    async with fake_apiserver() as api:
        settings = await live(api, tmp_path)
        _, of_cluster = await planned(asking(None, removed=("c2",)), settings)
        await command.export(settings, print, lines.append)
        methods = {request.method for request in api.http.requests}
    exported = tmp_path / "fleet.jsonl"
    exported.write_text("\n".join(lines))
    _, of_file = await planned(asking(str(exported), removed=("c2",)))
    assert of_cluster == of_file
    assert ways(of_file) == {"web": ("moves", ["c1"]), "shop": ("moves", ["c1"])}
    assert methods == {"GET"}


async def test_promotion_is_previewed_over_the_cluster_and_only_read(tmp_path: Path) -> None:
    async with fake_apiserver() as api:
        settings = await live(api, tmp_path)
        staged = ObjectKey(NAMESPACE, "placement-candidate")
        source = POLICY.replace("_fit}", '_fit - {"c1"}}')
        labels = {"kube-sync.io/stage": "shadow"}
        api.put(CONFIGMAPS, staged, metadata={"labels": labels}, data={"policy.rego": source})
        head, *rows = await preview(settings, staged, print)
        methods = {request.method for request in api.http.requests}
    assert head == "2 to move (of 3 workloads)"
    assert sorted(rows) == [
        "  replicasets shop/shop  c1,c2 -> c2  (moves)",
        "  replicasets shop/web  c1,c2 -> c2  (moves)",
    ]
    assert methods == {"GET"}


@pytest.mark.slow
async def test_placementpolicies_of_a_cluster_are_planned_with_and_exported(tmp_path: Path) -> None:
    lines: list[str] = []
    async with fake_apiserver() as api:
        settings = await live(api, tmp_path)
        api.define(PLACEMENT_POLICIES, KIND, builtin=False)
        where = ObjectKey(NAMESPACE, "placement")
        api.delete(CONFIGMAPS, where)
        api.put(PLACEMENT_POLICIES, where, spec=policy_object()["spec"])
        _, of_cluster = await planned(asking(None, removed=("c2",)), settings)
        await command.export(settings, print, lines.append)
    exported = tmp_path / "fleet.jsonl"
    exported.write_text("\n".join(lines))
    _, of_file = await planned(asking(str(exported), removed=("c2",)))
    assert of_cluster == of_file
    assert ways(of_file) == {"web": ("moves", ["c1"]), "shop": ("moves", ["c1"])}


@pytest.mark.slow
async def test_kind_that_the_api_server_does_not_know_is_no_plan_or_noted(tmp_path: Path) -> None:
    async with fake_apiserver() as api:
        settings = await live(api, tmp_path)
        api.undefine(CLUSTERS)
        staged = policy(POLICY.replace("count(_fit) == 0", "count(_fit) < 0"))
        candidate = write(tmp_path / "cm.json", staged)
        _, document = await planned(asking(None, files=(candidate,)), settings)
        assert document["notes"][0] == "clusters: the API server does not know this kind"
        api.undefine(REPLICASETS)
        with pytest.raises(Broken, match="replicasets: the API server does not know this kind"):
            await planned(asking(None, files=(candidate,)), settings)


async def test_workload_that_vanishes_while_it_is_planned_is_no_plan(tmp_path: Path) -> None:
    async with fake_apiserver() as api:
        settings = await live(api, tmp_path)
        planning = asyncio.create_task(planned(asking(None, removed=("c2",)), settings))
        await api.http.until(lambda: any("configmaps" in r.path for r in api.http.requests))
        api.delete(REPLICASETS, ObjectKey("shop", "web"))
        with pytest.raises(Broken) as raised:
            await planning
    assert str(raised.value) == "replicasets shop/web: it vanished while it was planned"
