"""Formats the results of all cases for a terminal, and as JSON.

Invariant: the JSON is complete; each difference has the expected and the actual value;
no text can move a terminal's cursor or set a colour, and our own colours add nothing
to the text.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from kube_sync.inspect.scenarios.comparing import Difference, summary
from kube_sync.inspect.scenarios.placement import share_text
from kube_sync.inspect.scenarios.results import VERDICTS, CaseResult, FileResult, Run, Verdict
from kube_sync.observability.printing import cut, indented, plain

_RED, _GREEN, _YELLOW, _DIM = "31", "32", "33", "2"
_MARKS: Final[dict[Verdict, str]] = {
    "passed": "PASS",
    "failed": "FAIL",
    "broken": "ERROR",
    "skipped": "SKIP",
}
_COLORS: Final[dict[Verdict, str]] = {
    "passed": _GREEN,
    "failed": _RED,
    "broken": _RED,
    "skipped": _YELLOW,
}
_LONGEST: Final = 2_000  # characters of one value
_INDENT: Final = "      "


@dataclass(frozen=True, slots=True)
class Paint:
    """Colours, or none."""

    on: bool = False

    def __call__(self, color: str, text: str) -> str:
        """Return a text in a colour."""
        return f"\x1b[{color}m{text}\x1b[0m" if self.on else text


def as_text(run: Run, paint: Paint, *, verbose: bool = False) -> str:
    """Format failures and, if `verbose`, passed cases, and the number of each."""
    lines = [
        line for file_result in run.files for line in _file(file_result, paint, verbose=verbose)
    ]
    # Several files may have the same policies.
    warned = dict.fromkeys(warning.line() for found in run.files for warning in found.warnings)
    lines += [f"{paint(_YELLOW, 'WARN')}  {plain(line)}" for line in warned]
    if any(result.differences for file_result in run.files for result in file_result.cases):
        lines += ["", paint(_DIM, "- is what was expected, + what was got")]
    return "\n".join([*lines, *([""] if lines else []), _summary(run, paint)])


def case_lines(result: CaseResult) -> Iterator[str]:
    """Yield the differences of one case, and the rules of its decision, without colours."""
    yield from _case_lines(result, Paint())


def outcome_text(result: CaseResult) -> str:
    """Summarise the outcome in a few words."""
    if result.outcome is None:
        return result.why
    if result.placed is None:
        return summary(result.outcome)
    if result.placed.unclear:
        return result.placed.unclear
    places = (f"{name} ({share_text(share)})" for name, share in result.placed.clusters.items())
    return f"placed on {', '.join(places) or 'no cluster'}"


def difference_text(difference: Difference) -> str:
    """Return one difference in a line."""
    name = " ".join(filter(None, [difference.what, difference.name]))
    return f"{name}: expected {difference.expected}, got {difference.got}"


def _file(file_result: FileResult, paint: Paint, *, verbose: bool) -> Iterator[str]:
    for problem in file_result.problems:
        yield f"{paint(_RED, 'ERROR')} {plain(str(problem))}"
    for result in file_result.cases:
        if verbose or result.verdict in ("failed", "broken"):
            mark = paint(_COLORS[result.verdict], _MARKS[result.verdict].ljust(5))
            where = paint(_DIM, f"({result.case.key})")
            name = plain(f"{file_result.file}:{result.case.row}: {result.case.name}")
            yield f"{mark} {name} {where}"
            yield from _case_lines(result, paint)
            if verbose and result.verdict == "passed":
                yield f"{_INDENT}{paint(_DIM, plain(outcome_text(result)))}"


def _case_lines(result: CaseResult, paint: Paint) -> Iterator[str]:
    if result.why:
        yield f"{_INDENT}{plain(result.why)}"
    for difference in result.differences:
        yield from _difference(difference, paint)
    for rule in result.rules:
        by = "by" if rule.applied else "does not apply:"
        line = plain(f"{by} {rule.file}:{rule.row}  {rule.text or rule.name}")
        yield f"{_INDENT}{paint(_DIM, line)}"


def _difference(difference: Difference, paint: Paint) -> Iterator[str]:
    name = " ".join(filter(None, [difference.what, difference.name]))
    note = f"    the policy says: {difference.note}" if difference.note else ""
    yield f"{_INDENT}{plain(name)}"
    yield f"{_INDENT}  {paint(_GREEN, '- ' + _value(difference.expected))}"
    yield f"{_INDENT}  {paint(_RED, '+ ' + _value(difference.got))}{plain(note)}"


def _summary(run: Run, paint: Paint) -> str:
    counts = {verdict: run.count(verdict) for verdict in VERDICTS}
    parts = [
        paint(_COLORS[verdict], f"{number} {verdict}")
        for verdict, number in counts.items()
        if number or verdict == "passed"
    ]
    if run.broken:
        parts.append(paint(_RED, f"{_number(run.broken, 'file')} not run"))
    if run.left_out:
        parts.append(f"{run.left_out} left out by --run")
    cases = _number(sum(counts.values()), "case")
    return f"{', '.join(parts)} ({cases} in {_number(len(run.files), 'file')}, {run.seconds:.1f} s)"


def _number(number: int, of: str) -> str:
    return f"{number} {of}" if number == 1 else f"{number} {of}s"


def _value(text: str) -> str:
    return plain(cut(text, _LONGEST))


def as_json(run: Run) -> str:
    """Format the whole run for programs; within a version fields are added only."""
    whole: dict[str, Any] = {
        "v": 1,
        "summary": {
            "cases": sum(len(file_result.cases) for file_result in run.files),
            **{verdict: run.count(verdict) for verdict in VERDICTS},
            "files": len(run.files),
            "files_not_run": run.broken,
            "left_out": run.left_out,
            "seconds": round(run.seconds, 3),
            "status": run.status,
        },
        "files": [_file_document(file_result) for file_result in run.files],
    }
    return indented(whole)


def _file_document(file_result: FileResult) -> dict[str, Any]:
    return {
        "file": file_result.file,
        "problems": [
            {"file": p.file, "row": p.row, "key": p.key, "message": p.message}
            for p in file_result.problems
        ],
        "cases": [_case_document(result) for result in file_result.cases],
        "warnings": [warning.fields() for warning in file_result.warnings],
    }


def _case_document(result: CaseResult) -> dict[str, Any]:
    case = result.case
    return {
        "name": case.name,
        "row": case.row,
        "resource": case.resource,
        "namespace": case.key.namespace,
        "object": case.key.name,
        "result": result.verdict,
        "seconds": round(result.seconds, 6),
        "why": result.why,
        "differences": result.differences,
        "rules": result.rules,
        "got": None if result.outcome is None else _got(result),
    }


def _got(result: CaseResult) -> dict[str, Any]:
    outcome = result.outcome
    placed = result.placed
    return {
        "decision": None if outcome is None else outcome.decision,
        "failure": None if outcome is None else outcome.failure,
        "clusters": None if placed is None or placed.unclear else placed.clusters,
    }
