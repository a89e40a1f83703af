from __future__ import annotations

from dataclasses import replace

import pytest

from kube_sync.inspect.sarif.report import Finding as Reported
from kube_sync.inspect.survey.findings import Finding
from kube_sync.inspect.survey.sarif import findings
from kube_sync.opa.analysis.result import Ask, Document, FieldRead, Reads
from kube_sync.opa.analysis.syntax import Spot
from kube_sync.policies.policywarning import PolicyWarning

ASKED = (
    Ask("p.rego", "reason", 7, "sprintf", whole=True),
    Ask("p.rego", "errors", 3, "compared"),
    Ask("", "", None, "returned from the decision", whole=True),
)
READ = FieldRead(("spec", None, "zone"), whole=True, asked=ASKED)
READS = Reads(input=Document((READ,), used=True), resources={}, others=(), impure={})
FINDING = Finding("policies", ("p.rego",), defined=True, reads=READS)


def test_rules_that_read_a_field_whole_are_findings_if_there_are_too_many() -> None:
    assert [*findings([FINDING], 0)] == [
        Reported("analyze/whole", "input: spec[*].zone is read whole: sprintf", "p.rego", 7),
        Reported("analyze/whole", "input: spec[*].zone is read whole: returned from the decision"),
    ]


@pytest.mark.parametrize("most", [None, 1])
def test_as_many_as_allowed_are_none(most: int | None) -> None:
    assert [*findings([FINDING], most)] == []


@pytest.mark.parametrize(
    ("blamed", "place"), [(Spot("p.rego", "reason", 1, 7), ("p.rego", 7)), (None, ("", 0))]
)
def test_policies_that_cannot_be_analysed_are_one_at_the_rule(
    blamed: Spot | None, place: tuple[str, int]
) -> None:
    reads = replace(READS, gave_up="recursion in reason", blamed=blamed)
    found = replace(FINDING, reads=reads)
    assert [*findings([found, replace(found, defined=False)], 0)] == [
        Reported("analyze/everything", "recursion in reason", *place)
    ]


def test_warnings_are_findings() -> None:
    warned = replace(FINDING, warnings=(PolicyWarning("unknown_rule", "p.rego", 2, "no"),))
    assert [*findings([warned], None)] == [Reported("policy/unknown_rule", "no", "p.rego", 2)]
