"""What a run of scenarios finds, for code scanning: each case that does not pass, at its row."""

from __future__ import annotations

from collections.abc import Iterator

from kube_sync.inspect.sarif.report import Finding, of_warnings
from kube_sync.inspect.scenarios.report import difference_text
from kube_sync.inspect.scenarios.results import CaseResult, Run


def findings(run: Run) -> Iterator[Finding]:
    """Yield the findings of a run."""
    for result in run.files:
        for problem in result.problems:
            message = ": ".join(filter(None, [problem.key, problem.message]))
            yield Finding("test/invalid", message, problem.file, problem.row)
        for case in result.cases:
            if case.verdict in ("failed", "broken"):
                yield _of_case(result.file, case)
    yield from of_warnings(warning for result in run.files for warning in result.warnings)


def _of_case(file: str, result: CaseResult) -> Finding:
    name = f"{result.case.name} ({result.case.key})"
    if result.verdict == "broken":
        return Finding("test/broken", f"{name}: {result.why}", file, result.case.row)
    differences = "; ".join(map(difference_text, result.differences))
    by = next((f" (by {rule.file}:{rule.row})" for rule in result.rules if rule.applied), "")
    return Finding("test/failed", f"{name}: {differences}{by}", file, result.case.row)
