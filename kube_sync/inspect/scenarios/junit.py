"""Formats results as JUnit XML, for CI systems.

There is no single specification. The output is what the common readers share: `testsuites`,
a `testsuite` for each file, a `testcase` for each case with `classname`, `name`, `file`, `line` and
`time`, and in it `failure`, `error` or `skipped`. Some show the attribute `message`, some the text,
so the text is complete. `classname` and `name` identify a test, so both are stable across runs.
Times are measured seconds; a test that was not run has 0.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from kube_sync.inspect.scenarios.report import case_lines, difference_text, outcome_text
from kube_sync.inspect.scenarios.results import CaseResult, FileResult, Run

# XML 1.0, section 2.2: characters that no document may have, even escaped.
_FORBIDDEN: Final = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_FILE: Final = "the file can be run"  # the name of the test case that fails for an invalid file
_SUITES: Final = "kube-sync test"


def as_junit(run: Run) -> str:
    """Return the whole run."""
    counts = _counts(run.files, run.seconds)
    lines = ['<?xml version="1.0" encoding="UTF-8"?>']
    lines += [f"<testsuites{_attributes({'name': _SUITES, **counts})}>"]
    for file_result in run.files:
        named = {"name": file_result.file, **_counts([file_result], file_result.seconds)}
        lines += [f"  <testsuite{_attributes(named)}>", *_testsuite(file_result), "  </testsuite>"]
    return "\n".join([*lines, "</testsuites>", ""])


def _testsuite(file_result: FileResult) -> Iterator[str]:
    if file_result.problems:
        message = str(file_result.problems[0])
        text = "\n".join(map(str, file_result.problems))
        at = (file_result.file, max(file_result.problems[0].row, 1))
        yield from _testcase(at, _FILE, 0.0, _outcome("error", "problem", message, text))
    for result in file_result.cases:
        yield from _testcase(
            (file_result.file, result.case.row),
            result.case.name,
            result.seconds,
            [*_result_elements(result, file_result.file)],
        )


def _result_elements(result: CaseResult, file: str) -> Iterator[str]:
    where = f"{file}:{result.case.row}: {result.case.name} ({result.case.key})"
    text = "\n".join([where, *case_lines(result)])
    match result.verdict:
        case "failed":
            yield from _outcome("failure", "difference", _short_message(result), text)
        case "broken":
            yield from _outcome("error", "no decision", result.why, text)
        case "skipped":
            yield f"      <skipped{_attributes({'message': result.why})}/>"
        case "passed":
            return


def _short_message(result: CaseResult) -> str:
    first = result.differences[0]
    more = len(result.differences) - 1
    others = f" (and {more} more)" if more else ""
    text = f"{difference_text(first)}{others}"
    return text if first.what == "decision" else f"{text}; {outcome_text(result)}"


def _outcome(element: str, kind: str, message: str, text: str) -> list[str]:
    head = _attributes({"message": message, "type": kind})
    return [f"      <{element}{head}>{_escaped(text)}</{element}>"]


def _testcase(
    at: tuple[str, int], name: str, seconds: float, inside: Iterable[str]
) -> Iterator[str]:
    file, row = at
    place = {"file": file, "line": str(row)}
    named = {"classname": file, "name": name, **place, "time": _seconds(seconds)}
    lines = [*inside]
    if not lines:
        yield f"    <testcase{_attributes(named)}/>"
        return
    yield f"    <testcase{_attributes(named)}>"
    yield from lines
    yield "    </testcase>"


def _counts(files: Iterable[FileResult], seconds: float) -> Mapping[str, str]:
    known = [*files]
    broken = sum(bool(file_result.problems) for file_result in known)
    tests = sum(len(file_result.cases) for file_result in known) + broken
    counts = {
        "tests": tests,
        "failures": sum(file_result.count("failed") for file_result in known),
        "errors": sum(file_result.count("broken") for file_result in known) + broken,
        "skipped": sum(file_result.count("skipped") for file_result in known),
    }
    return {**{name: str(number) for name, number in counts.items()}, "time": _seconds(seconds)}


def _seconds(seconds: float) -> str:
    return f"{seconds:.6f}"


def _attributes(values: Mapping[str, str]) -> str:
    # XML readers replace a line break in an attribute by a space unless it is a reference.
    found = ((name, _escaped(value).replace("\n", "&#10;")) for name, value in values.items())
    return "".join(f' {name}="{value}"' for name, value in found)


def _escaped(text: str) -> str:
    return html.escape(_FORBIDDEN.sub("\ufffd", text))
