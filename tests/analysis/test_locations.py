"""Who asked for a field, by the file and row that OPA's parser knows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from kube_sync.opa.analysis.analyzer import analyze
from tests.analysis.equality import ROOTS
from tests.analysis.opa import PolicyOpa, parsed

_SOURCE = """# METADATA
# title: Rows are those of rules.
package main

default decision := false

decision if helper(input.a)

helper(x) if {
	x.b
}
"""


def test_rows_are_those_of_the_rules_that_read(policy_opa: PolicyOpa, tmp_path: Path) -> None:
    (module,) = policy_opa.compile({"policy.rego": _SOURCE})
    with_rows = replace(module, parsed=parsed(_SOURCE, tmp_path))
    (field,) = analyze([with_rows], "main/decision", ROOTS).input.fields
    assert {str(ask) for ask in field.asked} >= {"policy.rego:9 helper: read"}
    (field,) = analyze([module], "main/decision", ROOTS).input.fields
    assert {str(ask) for ask in field.asked} >= {"policy.rego helper: read"}
