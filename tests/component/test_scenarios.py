"""Scenarios of policies, decided by a real OPA."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from collections.abc import AsyncGenerator, Collection, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kube_sync.config import Opa, Settings
from kube_sync.errors import Broken, Misconfigured
from kube_sync.inspect.plan.offline_decisions import Grouping, deciding
from kube_sync.inspect.plan.offline_opa import World
from kube_sync.inspect.plan.snapshot import Snapshot, projected
from kube_sync.inspect.scenarios import command, groups
from kube_sync.inspect.scenarios.collections import Collections
from kube_sync.inspect.scenarios.command import Form, Request
from kube_sync.inspect.scenarios.loading import load
from kube_sync.inspect.scenarios.policies import PolicyReader
from kube_sync.inspect.survey.progress import Progress
from kube_sync.objects import ObjectKey
from kube_sync.opa.client import OpaClient
from kube_sync.opa.scratch import Modules, ScratchOpa
from kube_sync.policies.reading import Reading
from tools.servers.binaries import ensure_binary

ROOT = Path(__file__).resolve().parents[2]
SETTINGS = Settings(opa=Opa(binary=str(ensure_binary("opa"))))
PREFERENCES = "federation.kubernetes.io/replica-set-preferences"
POLICY = """\
package io.k8s.federation.admission

annotations["federation.kubernetes.io/replica-set-preferences"] := {
	"clusters": {name: {"weight": data.shares[name]} | some name in _fit},
} if {
	input.metadata.labels.tier
	count(_fit) > 0
}

reasons[name] contains sprintf("the cluster is %s", [_tier[name]]) if some name in _fit

errors contains sprintf("no cluster is %s", [input.metadata.labels.tier]) if count(_fit) == 0

errors contains "twins" if count(data.kubernetes.replicasets.shop) > 2

_tier[name] := cluster.metadata.labels.tier if {
	some name, cluster in data.kubernetes.clusters.fleet
}

_fit contains name if {
	some name, tier in _tier
	tier == input.metadata.labels.tier
}
"""
HEAD = """\
policies: {policy}
clusters:
  fleet/berlin: {{labels: {{tier: gold}}}}
  fleet/oslo: {{labels: {{tier: silver}}}}
  fleet/paris: {{labels: {{tier: silver}}}}
objects:
  - apiVersion: apps/v1
    kind: ReplicaSet
    metadata: {{name: web, namespace: shop, labels: {{tier: silver}}}}
data: {{shares: {{berlin: 1, oslo: 2, paris: 3}}}}
cases:
"""


class Folder:
    """A folder with a policy and scenarios for it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.policy(POLICY)

    def policy(self, source: str, name: str = "policy.rego") -> str:
        file = self.path / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(source)
        return str(file)

    def cases(self, *cases: str, name: str = "a", policy: str = "policy.rego") -> str:
        """Write a scenario; each case begins with its expectation and goes on as it likes."""
        rows = (
            f"  - {{name: case {number}, object: shop/web, {case}}}\n"
            for number, case in enumerate(cases)
        )
        return self.text(HEAD.format(policy=policy) + "".join(rows), name)

    def text(self, text: str, name: str = "a") -> str:
        file = self.path / f"{name}.scenario.yaml"
        file.write_text(text)
        return str(file)


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


async def ran(paths: str | Path, form: Form = "json", **more: Any) -> tuple[int, Any]:
    """Return the exit status of a run, and what it prints."""
    request = Request(paths=(str(paths),), form=form, **more)
    answer = await command.run(request, SETTINGS, lambda _: None)
    return answer.status, json.loads(answer.text) if form == "json" else answer.text


def results(document: Mapping[str, Any]) -> dict[str, str]:
    return {c["name"]: c["result"] for file in document["files"] for c in file["cases"]}


async def test_scenarios_of_the_example_policies_pass() -> None:
    status, document = await ran(ROOT / "tests" / "scenarios")
    assert status == 0, document
    assert document["summary"]["passed"] == document["summary"]["cases"] >= 10


async def test_wrong_expectation_fails_with_what_differs_and_the_rule(folder: Folder) -> None:
    file = folder.cases("expect: {clusters: {berlin: 1, oslo: 2, paris: 1}}")
    status, text = await ran(folder.path, "text")
    assert status == 1
    lines = text.splitlines()
    assert lines[:7] == [
        f"FAIL  {file}:12: case 0 (shop/web)",
        "      cluster berlin",
        "        - weight 1",
        "        + not placed",
        "      cluster paris",
        "        - weight 1",
        "        + weight 3    the policy says: the cluster is silver",
    ]
    rules = [line.strip() for line in lines if ".rego:" in line]
    assert rules[0] == f'by {folder.path}/policy.rego:3  annotations["{PREFERENCES}"] := {{'
    assert any(rule.startswith("does not apply: ") for rule in rules)
    assert lines[-1].startswith("0 passed, 1 failed (1 case in 1 file, ")


async def test_case_changes_nothing_for_the_next_one(folder: Folder) -> None:
    twins = "given: {objects: {shop/web: {labels: {tier: gold}}}}"
    joins = "given: {joins: {fleet/rome: {labels: {tier: silver}}}}"
    other = "{apiVersion: apps/v1, kind: ReplicaSet, metadata: {name: %s, namespace: shop}}"
    folder.cases(
        "expect: {clusters: {oslo: 2, paris: 3}}",
        f"{twins}, expect: {{clusters: {{berlin: 1}}}}",
        "given: {clusters: {oslo: null}}, expect: {clusters: [paris]}",
        "given: {clusters: {oslo: null, paris: {labels: {tier: null}}}},"
        " expect: {errors: [no cluster is silver]}",
        f"{joins}, expect: {{excludes: [rome]}}",
        "given: {object: {labels: {tier: gold}}}, expect: {clusters: [berlin]}",
        "expect: {clusters: {oslo: 2, paris: 3}, reasons: {oslo: the cluster is silver}}",
    )
    inline = HEAD.format(policy="policy.rego").replace("cases:\n", "")
    more = "".join(f"  - {other % name}\n" for name in ("b", "c"))
    folder.text(
        inline.replace("\ndata:", f"\n{more}data:")
        + "cases:\n  - {name: many, object: web, expect: {errors: {contains: twins}}}\n",
        "b",
    )
    status, document = await ran(folder.path)
    assert (status, {*results(document).values()}) == (0, {"passed"}), document


async def test_files_that_cannot_be_run_keep_no_other_from_it(
    folder: Folder, tmp_path: Path
) -> None:
    good = "expect: {clusters: [oslo, paris]}"
    folder.cases(good, "expect: {clusters: [berlin]}", name="a-fails")
    folder.text("policies: policy.rego\ncases: {", "b-parses-not")
    folder.cases("expect: {clusters: [rome]}", name="c-unknown-cluster")
    broken = folder.policy("package io.k8s.federation.admission\n\nx := y\n", "d/broken.rego")
    folder.cases(good, name="d-compiles-not", policy="d/broken.rego")
    folder.cases(good, name="e-no-policy", policy="gone.rego")
    folder.cases(good, name="f-passes")
    forbidden = folder.policy("package system.a\n", "g/system.rego")
    folder.cases(good, name="g-forbidden", policy="g/system.rego")
    junit = tmp_path / "build" / "junit.xml"
    status, document = await ran(folder.path, junit=str(junit))
    assert status == 3
    said = {
        Path(file["file"]).name.partition(".")[0]: [
            f"{p['row']}:{p['key']}: {p['message']}" for p in file["problems"]
        ]
        for file in document["files"]
    }
    assert said["a-fails"] == said["f-passes"] == []
    assert said["b-parses-not"][0].startswith("3:: not YAML: ")
    assert said["c-unknown-cluster"][0].startswith("12:cases[0].expect.clusters[0]: there is no")
    assert said["d-compiles-not"] == [
        f"1:policies: {broken}:3: rego_unsafe_var_error: var y is unsafe"
    ]
    assert said["e-no-policy"] == [
        f"1:policies: {folder.path}/gone.rego: there is no such folder or file"
    ]
    assert said["g-forbidden"][0].startswith(f"1:policies: {forbidden}: forbidden: package system")
    assert document["summary"]["files_not_run"] == 5
    assert (document["summary"]["passed"], document["summary"]["failed"]) == (2, 1)
    suites = ET.fromstring(junit.read_text(encoding="utf-8"))  # noqa: S314 - our own
    assert [(s.get("failures"), s.get("errors")) for s in suites] == [
        ("1", "0"),
        *[("0", "1")] * 4,
        ("0", "0"),
        ("0", "1"),
    ]
    times = [float(t.get("time", "0")) for t in suites.findall("testsuite/testcase")]
    assert sum(time > 0 for time in times) == 3


async def test_data_where_a_policy_lives_is_said_by_name(folder: Folder) -> None:
    text = HEAD.format(policy="policy.rego").replace("shares:", "io: {k8s: 7}, shares:")
    file = folder.text(f"{text}  - {{name: a, object: web, expect: {{evict: false}}}}\n")
    status, document = await ran(file)
    (problem,) = document["files"][0]["problems"]
    assert status == 3
    assert "`data` lies where a policy does" in problem["message"]
    assert f"{folder.path}/policy.rego (package io.k8s" in problem["message"]


async def test_decision_is_that_of_the_replicator(folder: Folder) -> None:
    """What is asked and over what is planning's, which is the replicator's."""
    note = json.dumps({"tier": "x"})
    file = folder.cases(
        f"given: {{object: {{annotations: {{kube-sync.io/requested: '{note}', tier: y}}}}}},"
        " expect: {contains: [berlin]}",
        "expect: {contains: [berlin]}",
    )
    folder.policy(
        f"{POLICY}\nlabels.asked := input.metadata.annotations.tier\n\n"
        'annotations["seen"] := object.keys(input.metadata.annotations)\n'
    )
    _, document = await ran(file)
    got = [case["got"]["decision"] for case in document["files"][0]["cases"]]
    assert (got[0]["labels"], got[0]["annotations"]["seen"]) == ({"asked": "x"}, '["tier"]')
    assert document["files"][0]["cases"][1]["got"]["decision"].get("labels") is None

    collections = Collections(SETTINGS)
    scenario = load(file, collections, "kubernetes")
    scratch = ScratchOpa(SETTINGS.opa.binary)
    policies = await PolicyReader(scratch, SETTINGS, collections.places).read(scenario.policies)
    changed = {
        name: {**objects, **scenario.cases[0].changes.get(name, {})}
        for name, objects in scenario.objects.items()
    }
    # Planning knows no data but objects, so the policy's own is a module here.
    shares = "package shares\n\nberlin := 1\n\noslo := 2\n\nparis := 3\n"
    modules = {**policies.modules, "shares": shares}
    reading = Reading(scratch, SETTINGS.placement.path, _places(collections))
    need = await reading.need(modules)
    bodies = projected(SETTINGS, Snapshot(collections.places, changed))  # type: ignore[arg-type]
    world = World("then", modules, bodies)
    groups = Grouping(["replicasets"]).groups(bodies, need)
    silent = Progress(lambda _: None)
    async with deciding(world, need, groups, scratch, SETTINGS, silent) as decided:
        outcome = decided.outcomes["replicasets", ObjectKey("shop", "web")]
    assert outcome.decision is not None
    assert got[0]["annotations"] == outcome.decision.annotations
    assert got[0]["reasons"] == outcome.decision.reasons


def _places(collections: Collections) -> Any:
    async def places() -> Any:
        return collections.places

    return places


async def test_silence_failure_and_refusal_are_what_they_are(folder: Folder) -> None:
    folder.policy(
        "package io.k8s.federation.admission\n\n"
        'labels := {"a": input.metadata.name} if input.metadata.labels.tier != "none"\n\n'
        'labels := {"a": "b"} if input.metadata.labels.tier == "gold"\n\n'
        'x if input.metadata.labels.tier == "off"\n'
    )
    silent = folder.policy(
        "package io.k8s.federation.admission.below\n\nx := 1 if input.kind == 0\n", "s/p.rego"
    )
    folder.cases(
        "expect: {labels: {a: web}}",
        "given: {object: {labels: {tier: gold}}}, expect: {fails: produced conflicting values}",
        "given: {object: {labels: {tier: gold}}}, expect: {labels: {a: web}}",
        "given: {object: {labels: {tier: none}}}, expect: {unchanged: true}",
        "given: {object: {labels: {tier: none}}}, expect: {undecided: true}",
    )
    folder.cases("expect: {unchanged: true}", name="b", policy=silent)
    _, document = await ran(folder.path)
    first, second = document["files"]
    verdicts = [case["result"] for case in first["cases"]]
    assert verdicts == ["passed", "passed", "failed", "passed", "failed"]
    (difference,) = first["cases"][2]["differences"]
    assert difference["got"].startswith(f"the evaluation fails: {folder.path}/policy.rego:")
    assert second["cases"][0]["result"] == "passed"


async def test_same_cases_are_run_against_other_policies(folder: Folder) -> None:
    folder.cases("expect: {clusters: [oslo, paris]}", policy="gone.rego")
    edit = folder.policy(POLICY.replace("tier == input", "tier != input"), "edit/new.rego")
    status, document = await ran(folder.path, policies=(f"{folder.path}/policy.rego",))
    assert (status, results(document)) == (0, {"case 0": "passed"})
    status, document = await ran(folder.path, policies=(edit,))
    (case,) = document["files"][0]["cases"]
    assert (status, case["result"], case["rules"][0]["file"]) == (1, "failed", edit)
    folder.policy("package a\n\nx := y\n", "edit/new.rego")
    with pytest.raises(Broken, match=f"{edit}:3: rego_unsafe_var_error"):
        await ran(folder.path, policies=(edit,))


async def test_policy_where_the_topology_lies_is_refused_as_the_replicator_refuses_it(
    folder: Folder,
) -> None:
    folder.policy("package kubernetes.topology\n\na := 1\n", "policy.rego")
    folder.cases("expect: {undecided: true}")
    settings = replace_opa(SETTINGS.opa.binary)
    replicate = msgspec.structs.replace(settings.replicate, topology=True)
    settings = msgspec.structs.replace(settings, replicate=replicate)
    answer = await command.run(Request(paths=(str(folder.path),)), settings, lambda _: None)
    assert answer.status == 3
    assert "package kubernetes.topology is where replicated data lies" in answer.text


async def test_cases_are_chosen_by_file_and_name(folder: Folder) -> None:
    good = "expect: {clusters: [oslo, paris]}"
    folder.cases(good, good, name="a")
    folder.cases(good, name="b")
    _, document = await ran(folder.path, run=r"b\.scenario.*0$|case 1")
    assert [len(file["cases"]) for file in document["files"]] == [1, 1]
    assert document["summary"]["left_out"] == 1
    with pytest.raises(Broken, match="--run: no case matches nothing"):
        await ran(folder.path, run="nothing")


async def test_first_failure_ends_a_run_that_is_to_end_with_it(folder: Folder) -> None:
    good, bad = "expect: {clusters: [oslo, paris]}", "expect: {clusters: [oslo]}"
    folder.cases(good, bad, good, name="a")
    other = folder.policy(f"{POLICY}\n# another one\n", "other/policy.rego")
    folder.cases(good, name="b", policy=other)
    status, document = await ran(folder.path, fail_fast=True)
    counts = {k: document["summary"][k] for k in ("passed", "failed", "skipped")}
    assert (status, counts) == (1, {"passed": 1, "failed": 1, "skipped": 2})


async def test_folder_without_scenarios_is_no_success(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match="no scenario"):
        await ran(tmp_path)
    settings = replace_opa("/gone/opa")
    Folder(tmp_path).cases("expect: {evict: false}")
    with pytest.raises(Misconfigured, match="no program"):
        await command.run(Request(paths=(str(tmp_path),)), settings, lambda _: None)


def replace_opa(binary: str) -> Settings:
    return Settings(opa=Opa(binary=binary))


async def test_files_with_the_same_policies_share_an_opa_and_say_how_far_they_are(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    served: list[int] = []

    class Counted(ScratchOpa):
        @asynccontextmanager
        async def serving(
            self, modules: Modules, data: bytes, given: Collection[str] = ()
        ) -> AsyncGenerator[OpaClient]:
            served.append(len(modules))
            async with super().serving(modules, data, given) as opa:
                yield opa

    monkeypatch.setattr(groups, "ScratchOpa", Counted)
    for name in ("a", "b", "c"):
        folder.cases(*["expect: {clusters: [oslo, paris]}"] * 20, name=name)
    ticks = iter(range(10_000))
    said: list[str] = []
    result = await command.result_of(
        Request(paths=(str(folder.path),)),
        SETTINGS,
        Progress(said.append, clock=lambda: float(next(ticks))),
    )
    assert (result.count("passed"), len(served)) == (60, 1)
    assert "30 of 60 cases …" in said
