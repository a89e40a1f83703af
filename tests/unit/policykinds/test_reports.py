"""What OPA says of a policy, as lines; of what is no report nothing is known."""

from __future__ import annotations

import pytest

from kube_sync.errors import Undecided
from kube_sync.policykinds.reports import Report, read_report, report_of

RULE = "data.kube_sync.metadata.validation.report"


@pytest.mark.parametrize(
    "answer",
    [
        b"[]",
        b'{"problems": []}',
        b'{"problems": [1], "findings": []}',
        b'{"problems": [{"path": "spec"}], "findings": []}',
        b"{",
    ],
)
def test_answer_that_is_no_report_decides_nothing(answer: bytes) -> None:
    with pytest.raises(Undecided, match=f"^{RULE} is no report: "):
        read_report(answer, RULE)


def test_lines_are_taken_as_they_are() -> None:
    found = read_report(b'{"problems": ["a"], "findings": ["b"]}', RULE)
    assert found == Report(("a",), ("b",))


def test_objects_become_lines_that_begin_with_where_it_is() -> None:
    finding = {"path": "spec.rules[0]", "reason": "NeverMatches", "message": "no object can match"}
    problems = [{"path": "spec", "message": "must be an object"}, {"path": "", "message": "no"}]
    assert report_of({"problems": problems, "findings": [finding]}, RULE) == Report(
        ("spec: must be an object", "no"), ("spec.rules[0]: NeverMatches: no object can match",)
    )
