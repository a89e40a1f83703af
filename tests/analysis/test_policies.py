"""Policies as people write them: equal decisions over what is read, and how little that is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kube_sync.decisions.classes import why_not_shared
from kube_sync.opa.analysis.analyzer import PolicyModule, analyze
from kube_sync.opa.analysis.paths import project
from kube_sync.opa.analysis.result import Reads, shown
from tests.analysis.equality import decisions, over_projection, paths_of
from tests.analysis.generate import chance
from tests.analysis.opa import PolicyOpa
from tests.analysis.workloads import ROOTS, Workloads

FOLDER = Path(__file__).resolve().parents[1] / "policies"
SOURCES = {path.stem: path.read_text() for path in sorted(FOLDER.glob("*.rego"))}
NAMES = [name for name in SOURCES if not name.startswith("lib_")]
GOLDEN: dict[str, Any] = json.loads((FOLDER / "reads.json").read_text())


@pytest.fixture(scope="module")
def compiled(policy_opa: PolicyOpa) -> list[PolicyModule]:
    # The helpers' names begin with `lib_`, and rbac_impersonated needs rbac_subjects.
    order = sorted(SOURCES, key=lambda n: (not n.startswith("lib_"), n == "rbac_impersonated"))
    return policy_opa.compile({name: SOURCES[name] for name in order})


@pytest.fixture
def reads(compiled: list[PolicyModule], name: str) -> Reads:
    return analyze(compiled, f"policies/{name}/decision", ROOTS)


def summary(reads: Reads) -> dict[str, Any]:
    documents = {"input": reads.input, **reads.resources}
    found = {
        name: [shown(field.path) + " (whole)" * field.whole for field in document.fields]
        for name, document in documents.items()
        if document.used
    }
    return found | {"other data": [shown(f.path) for f in reads.others]} if reads.others else found


def test_library_holds_enough_policies() -> None:
    assert len(NAMES) >= 30


@pytest.mark.parametrize("name", NAMES)
def test_policy_decides_over_what_it_reads_as_over_everything(
    policy_opa: PolicyOpa, reads: Reads, name: str
) -> None:
    makes = Workloads(chance(name))
    decision = f"policies/{name}/decision"
    seen = []
    for _ in range(5):
        objects, world = [makes.target() for _ in range(10)], makes.world()
        whole = decisions(policy_opa, decision, objects, world)
        paths = paths_of(reads)
        assert over_projection(policy_opa, decision, objects, world, paths, ROOTS) == whole
        seen += whole
        if name not in WHOLE:
            assert project(objects[0], reads.input.paths) != objects[0]
    assert len({json.dumps(answer) for answer in seen}) > 1


EXAMPLES = {
    "conflicts_may": {
        "input": [
            "kind",
            'metadata.annotations["federation.kubernetes.io/replica-set-preferences"] (whole)',
        ],
        "clusters": ['metadata.labels["topology.kubernetes.io/region"]'],
        "other data": ["io.k8s.federation.admission"],
    },
    "conflicts_must": {
        "input": ["kind"],
        "clusters": ['metadata.labels["topology.kubernetes.io/region"]'],
        "other data": ["io.k8s.federation.admission"],
    },
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_example_reads_a_few_fields(policy_opa: PolicyOpa, name: str) -> None:
    folder = FOLDER.parents[1] / "rego/examples" / name
    compiled = policy_opa.compile({name: (folder / f"{name}.rego").read_text()})
    reads = analyze(compiled, "io/k8s/federation/admission", ROOTS)
    assert summary(reads) == EXAMPLES[name]


PACKS = FOLDER.parents[1] / "rego/packs"


def reads_of_packs(policy_opa: PolicyOpa, *without: str) -> Reads:
    files = sorted(PACKS.glob("*/*.rego"))
    files = [file for file in files if not {file.name, file.parent.name} & {*without}]
    # Their functions first: this OPA gets one module after the other.
    files.sort(key=lambda file: file.name != "parameters.rego")
    compiled = policy_opa.compile({file.name: file.read_text() for file in files})
    return analyze(compiled, "io/k8s/federation/admission", ROOTS)


def test_packs_share_answers_if_none_reads_the_time(policy_opa: PolicyOpa) -> None:
    """Their parameters are the only data beside the objects that they read."""
    parameters = [("kube-federation-scheduling-policy", folder.name) for folder in PACKS.iterdir()]
    reads = reads_of_packs(policy_opa, "maintenance-windows")
    assert why_not_shared(reads, parameters) is None
    assert [shown(field.path) for field in reads.input.fields] == [
        "kind",
        'metadata.annotations["federation.kubernetes.io/replica-set-preferences"]',
        *(f'metadata.annotations["policy.example.com/{name}"]' for name in WISHES),
        "metadata.namespace",
    ]
    all_reads = reads_of_packs(policy_opa)
    assert why_not_shared(all_reads, parameters) == (
        "the decision reads what no class covers: time.now_ns"
    )


def test_packs_share_no_answers_if_others_might_write_where_packs_are(
    policy_opa: PolicyOpa,
) -> None:
    parameters = [("kube-federation-scheduling-policy", folder.name) for folder in PACKS.iterdir()]
    reads = reads_of_packs(policy_opa, "maintenance-windows", "packs.rego")
    reason = why_not_shared(reads, parameters)
    assert reason is not None
    assert "that the replicator does not write: data.placement.packs." in reason


WISHES = (
    "certifications",
    "cost-ceiling",
    "disaster-recovery",
    "jurisdiction",
    "minimum-regions",
)
WHOLE = {"admission_summary"}  # of these the input is read whole


@pytest.mark.parametrize("name", NAMES)
def test_policy_reads_no_more_than_it_did(reads: Reads, name: str) -> None:
    """Golden: what a change here says is more, or less, is to be judged and written down."""
    assert summary(reads) == GOLDEN[name]
