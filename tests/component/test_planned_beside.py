"""Plans with what the replicator holds beside objects and policies that compile."""

from __future__ import annotations

import json
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from kube_sync.config import Kubernetes, Labelled, Opa, Policies, Settings
from kube_sync.errors import Broken
from kube_sync.inspect.plan import command
from kube_sync.inspect.plan.request import Request
from kube_sync.objects import ObjectKey
from tests.fakes.apiserver import FakeApiServer, fake_apiserver
from tests.fakes.clients import CLUSTERS, CONFIGMAPS, REPLICASETS
from tests.unit.inspect.plan.fleets import (
    FLEET,
    NAMESPACE,
    POLICY,
    WORKLOADS,
    data_map,
    policy,
    record,
    write,
)
from tools.servers.binaries import ensure_binary

OPA = Opa(binary=str(ensure_binary("opa")))
SETTINGS = Settings(opa=OPA)
LABELLED = Settings(opa=OPA, policies=Policies(labelled=Labelled(namespaces=("teams",))))
BROKEN = policy("package io.k8s.federation.admission\n\nx := y\n")
GOOD = record({f"{NAMESPACE}/placement": {f"{NAMESPACE}/placement/policy.rego": POLICY}})
# As POLICY, but for clusters that data names.
LISTED = POLICY.replace("_fit}", "_fit - {n | some n in data.teams.limits.without}}")
MOVED = {"web": ("moves", ["c1"]), "shop": ("moves", ["c1"])}


async def planned(request: Request, settings: Settings = SETTINGS) -> Any:
    return json.loads((await command.run(request, settings, print)).text)


def ways(document: Any) -> dict[str, tuple[str, list[str]]]:
    return {one["name"]: (one["effect"], one["to"]) for one in document["workloads"]}


def asking(fleet: str | None, **more: Any) -> Request:
    return Request(exported=fleet, form="json", **more)


async def test_last_good_version_decides_where_a_policy_does_not_compile(tmp_path: Path) -> None:
    fleet = write(tmp_path / "fleet", BROKEN, GOOD, *FLEET, *WORKLOADS)
    document = await planned(asking(fleet, removed=("c2",)))
    assert ways(document) == MOVED
    (note,) = document["notes"]
    assert ", but its last good version: " in note


async def test_candidate_is_compared_with_the_last_good_version_and_not_saved_by_it(
    tmp_path: Path,
) -> None:
    fleet = write(tmp_path / "fleet", BROKEN, GOOD, *FLEET, *WORKLOADS)
    file = tmp_path / "policy.rego"
    file.write_text(POLICY.replace("_fit}", '_fit - {"c2"}}'))
    assert ways(await planned(asking(fleet, files=(str(file),)))) == MOVED
    file.write_text(BROKEN["data"]["policy.rego"])
    with pytest.raises(Broken, match=r"policy.rego:3: rego_unsafe_var_error"):
        await planned(asking(fleet, files=(str(file),)))


async def test_policy_that_leaves_others_in_need_of_it_is_no_plan(tmp_path: Path) -> None:
    needs = policy(
        "package needs\n\nimport data.io.k8s.federation.admission as a\n\nx := a._zone({})\n",
        name="needs",
    )
    fleet = write(tmp_path / "fleet", policy(), needs, *FLEET, *WORKLOADS)
    with pytest.raises(Broken, match=r"needs/policy\.rego:5: "):
        await planned(asking(fleet, unloaded=("placement",)))
    assert not ways(await planned(asking(fleet, unloaded=("needs",))))


async def test_policy_reads_the_data_of_configmaps(tmp_path: Path) -> None:
    limits = data_map("limits", without='["c2"]')
    fleet = write(tmp_path / "fleet", policy(), limits, *FLEET, *WORKLOADS)
    file = tmp_path / "policy.rego"
    file.write_text(LISTED)
    assert ways(await planned(asking(fleet, files=(str(file),)), LABELLED)) == MOVED


async def test_candidate_is_not_put_where_data_lies(tmp_path: Path) -> None:
    limits = data_map("limits", without='["c2"]')
    fleet = write(tmp_path / "fleet", policy(), limits, *FLEET, *WORKLOADS)
    file = tmp_path / "new.rego"
    file.write_text("package teams.limits.more")
    with pytest.raises(Broken, match=r"new.rego: forbidden: .* where replicated data lies"):
        await planned(asking(fleet, files=(str(file),)), LABELLED)


async def live(api: FakeApiServer, folder: Path, *objects: dict[str, Any]) -> Settings:
    kinds = {"ReplicaSet": REPLICASETS, "ClusterProfile": CLUSTERS, "ConfigMap": CONFIGMAPS}
    for kind, gvr in kinds.items():
        api.define(gvr, kind)
    for found in map(deepcopy, objects):
        key = ObjectKey(found["metadata"]["namespace"], found["metadata"]["name"])
        content = {k: part for k, part in found.items() if k not in ("apiVersion", "kind")}
        api.put(kinds[found["kind"]], key, **content)
    kubeconfig = Kubernetes(kubeconfig=api.kubeconfig(folder / "kubeconfig"))
    return Settings(opa=OPA, kubernetes=kubeconfig, policies=LABELLED.policies)


async def test_record_and_data_are_read_of_the_cluster_and_exported(tmp_path: Path) -> None:
    lines: list[str] = []
    good = record({f"{NAMESPACE}/placement": {f"{NAMESPACE}/placement/policy.rego": LISTED}})
    limits = data_map("limits", without='["c3"]')
    async with fake_apiserver() as api:
        settings = await live(api, tmp_path, BROKEN, good, limits, *FLEET, *WORKLOADS)
        of_cluster = await planned(asking(None, removed=("c2",)), settings)
        await command.export(settings, print, lines.append)
    assert ways(of_cluster) == {**MOVED, "ads": ("nowhere", [])}
    exported = tmp_path / "fleet.jsonl"
    exported.write_text("\n".join(lines))
    assert await planned(asking(str(exported), removed=("c2",)), LABELLED) == of_cluster
