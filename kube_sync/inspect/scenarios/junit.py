"""Formats results as JUnit XML, for CI systems.

There is no single specification. The output is what the common readers share: `testsuites`,
a `testsuite` for each file, a `testcase` for each case with `classname`, `name`, `file` and `time`,
and in it `failure`, `error` or `skipped`. Some show the attribute `message`, some the text, so the
text is complete. `classname` and `name` identify a test, so both are stable across runs.
Times are measured seconds; a test that was not run has 0.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from kube_sync.inspect.scenarios.report import decided, told
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
    for tested in run.files:
        named = {"name": tested.file, **_counts([tested], tested.seconds)}
        lines += [f"  <testsuite{_attributes(named)}>", *_suite(tested), "  </testsuite>"]
    return "\n".join([*lines, "</testsuites>", ""])


def _suite(tested: FileResult) -> Iterator[str]:
    if tested.problems:
        message = str(tested.problems[0])
        text = "\n".join(map(str, tested.problems))
        yield from _test(tested.file, _FILE, 0.0, _outcome("error", "problem", message, text))
    for tried in tested.cases:
        yield from _test(tested.file, tried.case.name, tried.seconds, [*_came(tried, tested.file)])


def _came(tried: CaseResult, file: str) -> Iterator[str]:
    where = f"{file}:{tried.case.row}: {tried.case.name} ({tried.case.key})"
    text = "\n".join([where, *told(tried)])
    match tried.verdict:
        case "failed":
            yield from _outcome("failure", "difference", _briefly(tried), text)
        case "broken":
            yield from _outcome("error", "no decision", tried.why, text)
        case "skipped":
            yield f"      <skipped{_attributes({'message': tried.why})}/>"
        case "passed":
            return


def _briefly(tried: CaseResult) -> str:
    first = tried.differences[0]
    name = " ".join(filter(None, [first.what, first.name]))
    more = len(tried.differences) - 1
    others = f" (and {more} more)" if more else ""
    told = f"{name}: expected {first.expected}, got {first.got}{others}"
    return told if first.what == "decision" else f"{told}; {decided(tried)}"


def _outcome(element: str, kind: str, message: str, text: str) -> list[str]:
    head = _attributes({"message": message, "type": kind})
    return [f"      <{element}{head}>{_escaped(text)}</{element}>"]


def _test(file: str, name: str, seconds: float, inside: Iterable[str]) -> Iterator[str]:
    named = {"classname": file, "name": name, "file": file, "time": _seconds(seconds)}
    lines = [*inside]
    if not lines:
        yield f"    <testcase{_attributes(named)}/>"
        return
    yield f"    <testcase{_attributes(named)}>"
    yield from lines
    yield "    </testcase>"


def _counts(files: Iterable[FileResult], seconds: float) -> Mapping[str, str]:
    known = [*files]
    broken = sum(bool(tested.problems) for tested in known)
    tests = sum(len(tested.cases) for tested in known) + broken
    counts = {
        "tests": tests,
        "failures": sum(tested.count("failed") for tested in known),
        "errors": sum(tested.count("broken") for tested in known) + broken,
        "skipped": sum(tested.count("skipped") for tested in known),
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
