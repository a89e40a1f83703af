"""Rego v0 in the commands that decide without a cluster: plan, why, test and analyze, on real OPA.

Each is asked the same as of the Rego v1 that it was rewritten from, and has to answer the same.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kube_sync.config import Opa, Policies, Settings
from kube_sync.errors import Broken
from kube_sync.inspect.plan import command as planning
from kube_sync.inspect.plan.request import Request
from kube_sync.inspect.scenarios import command as scenarios
from kube_sync.inspect.scenarios.command import Request as Scenarios
from kube_sync.inspect.survey import command as survey
from kube_sync.inspect.survey.command import Request as Survey
from kube_sync.inspect.why import command as reasoning
from kube_sync.inspect.why.command import Question
from kube_sync.kube.naming import reference
from kube_sync.regoversion import NAME
from tests.unit.inspect.plan.fleets import (
    FLEET,
    NAMESPACE,
    POLICY,
    WORKLOADS,
    ZONE,
    policy,
    policy_object,
    write,
)
from tools.servers.binaries import ensure_binary

SETTINGS = Settings(opa=Opa(binary=str(ensure_binary("opa"))))
BY_DEFAULT = Settings(opa=SETTINGS.opa, policies=Policies(rego_version=0))
# fleets.POLICY, rule for rule.
OLD = """package io.k8s.federation.admission

annotations["federation.kubernetes.io/replica-set-preferences"] = value {
	count(_fit) > 0
	value := {"clusters": {name: {"weight": 1} | _fit[name]}}
}

errors["no cluster fits"] { count(_fit) == 0 }

_fit[name] {
	cluster := data.kubernetes.clusters.fleet[name]
	_zone(cluster.metadata.labels) == _zone(input.metadata.annotations)
}

_zone(texts) = object.get(texts, "example.com/zone", "")
"""
OBJECTS = {
    "label": policy(OLD, labels={NAME: "0"}),
    "field": policy_object(OLD, regoVersion="0"),
    "line": policy(f"{OLD}\n# {NAME}: 0\n"),
}


def exported(folder: Path, held: dict[str, Any]) -> str:
    return write(folder / "fleet.jsonl", held, *FLEET, *WORKLOADS)


async def planned(request: Request, settings: Settings = SETTINGS) -> Any:
    answer = await planning.run(request, settings, print)
    return json.loads(answer.text)


def ways(document: Any) -> dict[str, tuple[str, list[str]]]:
    return {one["name"]: (one["effect"], one["to"]) for one in document["workloads"]}


@pytest.mark.parametrize("stated", OBJECTS)
async def test_plan_of_an_edit_decides_by_rego_v0_wherever_it_is_stated(
    stated: str, tmp_path: Path
) -> None:
    edits = (f"c2.labels.{ZONE}=us",)
    file = exported(tmp_path, OBJECTS[stated])
    found = await planned(Request(exported=file, form="json", fields=edits))
    assert ways(found) == {
        "web": ("moves", ["c1"]),
        "shop": ("moves", ["c1"]),
        "ads": ("adds", ["c2", "c3"]),
    }
    rules = {
        (r["row"], r["rule"].rpartition(".")[2]) for w in found["workloads"] for r in w["rules"]
    }
    assert any(row == 3 for row, _ in rules)


async def test_candidate_file_is_read_as_what_it_stands_for_or_as_configured(
    tmp_path: Path,
) -> None:
    file = exported(tmp_path, OBJECTS["label"])
    edit = tmp_path / "policy.rego"
    edit.write_text(OLD.replace("_fit[name] {", '_fit["c3"] { true }\n\n_fit[name] {'))
    found = await planned(Request(exported=file, form="json", files=(str(edit),)))
    assert ways(found) == {
        "web": ("adds", ["c1", "c2", "c3"]),
        "shop": ("adds", ["c1", "c2", "c3"]),
    }
    beside = tmp_path / "beside.rego"
    beside.write_text("package beside\n\np[x] { x := 1 }\n")
    asked = Request(exported=file, form="json", files=(str(beside),))
    with pytest.raises(Broken, match=rf"beside.rego:3: rego_parse_error: .*{NAME}"):
        await planned(asked)
    assert ways(await planned(asked, BY_DEFAULT)) == {}


async def test_why_tells_of_rego_v0_what_speaks_against_a_cluster_and_what_would_turn_it(
    tmp_path: Path,
) -> None:
    question = Question(
        reference("replicaset/web"), "shop", "c3", form="json",
        world=Request(exported=exported(tmp_path, OBJECTS["label"])),
    )  # fmt: skip
    found = json.loads((await reasoning.run(question, SETTINGS, print)).text)
    (reason,) = next(c for c in found["clusters"] if c["name"] == "c3")["against"]
    assert (reason["file"], reason["row"], reason["holds"]) == (
        f"{NAMESPACE}/placement/policy.rego",
        12,
        False,
    )
    assert {seen["value"] for seen in reason["saw"]} >= {'"us"', '"eu"'}
    assert found["search"]["found"][0]["after"] == "eu"


async def test_scenarios_decide_by_rego_v0_where_that_is_configured(tmp_path: Path) -> None:
    (tmp_path / "policy.rego").write_text(OLD)
    scenario = tmp_path / "a.scenario.yaml"
    scenario.write_text(
        "policies: policy.rego\n"
        "clusters: {fleet/east: {labels: {example.com/zone: eu}}}\n"
        "objects:\n"
        "  - {apiVersion: apps/v1, kind: ReplicaSet,\n"
        "     metadata: {name: web, namespace: shop, annotations: {example.com/zone: eu}}}\n"
        "cases:\n"
        "  - {name: a, object: shop/web, expect: {clusters: [east]}}\n"
    )
    request = Scenarios(paths=(str(scenario),), form="json")
    answer = await scenarios.run(request, BY_DEFAULT, lambda _: None)
    assert answer.status == 0, answer.text


async def test_analysis_of_rego_v0_finds_what_that_of_v1_finds(tmp_path: Path) -> None:
    said: list[str] = []
    found = []
    for name, source, settings in (("old", OLD, BY_DEFAULT), ("new", POLICY, SETTINGS)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "p.rego").write_text(source)
        request = Survey((str(tmp_path / name),), "io/k8s/federation/admission", json=True)
        answer = await survey.run(request, settings, said.append)
        (one,) = json.loads(answer.text)["sets"]
        fields = [*one["input"]["fields"], *one["resources"]["clusters"]["fields"]]
        found.append((one["gave_up"], [(f["path"], f["whole"]) for f in fields]))
    assert found[0] == found[1]
    assert found[0][0] is None
