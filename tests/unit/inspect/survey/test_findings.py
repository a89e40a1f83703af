from __future__ import annotations

from kube_sync.config import Settings
from kube_sync.decisions.requested import NOTE
from kube_sync.inspect.survey.findings import find, tallies
from kube_sync.inspect.survey.policysets import PolicySet
from kube_sync.opa.analysis.analyzer import PolicyModule
from kube_sync.opa.analysis.result import Collection
from tests.fakes.compiler import reading, tree_of

DECISION = "io/k8s/federation/admission"
ROOTS = {"things": Collection(("kubernetes", "things"))}


def test_classes_are_counted_as_the_replicator_makes_them() -> None:
    """It tells objects apart by what was asked for, too."""
    module = PolicyModule("p.rego", tree_of(reading("input.metadata.annotations.a")))
    reads = find(PolicySet("p", (module,)), DECISION, ROOTS, Settings()).reads
    assert reads.input.paths == (("metadata", "annotations", "a"), NOTE)
    assert tallies(reads, ["things"])["things"].deciding == reads.input.paths
