"""The handler of `kube-sync test`, from the request to the output.

Invariant: a problem of one file does not stop the others; a run without cases is no success.
Only OPAs that it starts itself are queried. Wired here and not in `processes`, as planning is.
"""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from kube_sync.config import Settings
from kube_sync.errors import Broken, SyncError
from kube_sync.inspect.plan.candidate_files import SCENARIOS
from kube_sync.inspect.sarif.report import of_error, write_report, write_sarif
from kube_sync.inspect.scenarios.collections import Collections
from kube_sync.inspect.scenarios.groups import GroupRunner, SelectedCases
from kube_sync.inspect.scenarios.junit import as_junit
from kube_sync.inspect.scenarios.loading import load
from kube_sync.inspect.scenarios.report import Paint, as_json, as_text
from kube_sync.inspect.scenarios.results import FileResult, Run
from kube_sync.inspect.scenarios.sarif import findings
from kube_sync.inspect.scenarios.scenario import Case
from kube_sync.inspect.scenarios.strict_yaml import Invalid
from kube_sync.inspect.survey.progress import Progress
from kube_sync.kube.manifests import files_of
from kube_sync.policykinds.printing import Answer

_NOTHING = f"no scenario (*{SCENARIOS[0]}) lies here"
Form = Literal["text", "json"]


@dataclass(frozen=True, slots=True)
class Request:
    """Which cases to run, against which policies, and how to tell of them."""

    paths: tuple[str, ...]
    policies: tuple[str, ...] = ()  # in place of those that the files say
    run: str | None = None  # a regular expression, found in `FILE: NAME`
    cluster_scoped: frozenset[str] = frozenset()
    fail_fast: bool = False
    verbose: bool = False
    form: Form = "text"
    junit: str | None = None  # a file
    sarif: str | None = None  # likewise


async def run(
    request: Request, settings: Settings, report: Callable[[str], None], *, color: bool = False
) -> Answer:
    """Run the tests; return the output and the exit status. Raises SyncError: nothing was run."""
    try:
        result = await result_of(request, settings, Progress(report))
    except SyncError as error:
        write_sarif(request.sarif, "test", of_error(error))
        raise
    if request.junit is not None:
        write_report("--junit", request.junit, as_junit(result))
    write_sarif(request.sarif, "test", findings(result))
    if request.form == "json":
        return Answer(as_json(result), result.status)
    return Answer(as_text(result, Paint(color), verbose=request.verbose), result.status)


async def result_of(request: Request, settings: Settings, progress: Progress) -> Run:
    """Return the results of all files. Raises SyncError if none can be run."""
    started = time.monotonic()
    collections = Collections(settings, request.cluster_scoped)
    runner = GroupRunner(settings, collections.places, progress, fail_fast=request.fail_fast)
    results, selected, left_out = await asyncio.to_thread(_load, request, settings, collections)
    if not selected and not any(found.problems for found in results.values()):
        raise Broken([f"--run: no case matches {request.run}"])
    results |= await runner.run(selected, request.policies)
    shown = [found for found in results.values() if found.problems or found.cases]
    return Run(shown, time.monotonic() - started, left_out)


def _load(
    request: Request, settings: Settings, collections: Collections
) -> tuple[dict[str, FileResult], list[SelectedCases], int]:
    """Return all files, their selected cases, and the number of cases that are not selected."""
    results, selected, left_out = dict[str, FileResult](), list[SelectedCases](), 0
    root = settings.replicate.root
    for file in _scenario_files(request.paths):
        results[file] = FileResult(file)
        try:
            scenario = load(file, collections, root, policies=not request.policies)
        except Invalid as error:
            results[file] = FileResult(file, error.problems)
            continue
        cases = [case for case in scenario.cases if _is_selected(request.run, file, case)]
        left_out += len(scenario.cases) - len(cases)
        if cases:
            selected.append((scenario, cases))
    return results, selected, left_out


def _is_selected(pattern: str | None, file: str, case: Case) -> bool:
    return pattern is None or re.search(pattern, f"{file}: {case.name}") is not None


def _scenario_files(paths: Iterable[str]) -> list[str]:
    """Return the named files, and all scenarios in folders, each once and in order.

    A folder without any is an error, since a run without tests would pass: Misconfigured.
    """
    found = (file for path in paths for file in files_of(Path(path), _is_scenario, _NOTHING))
    return list(dict.fromkeys(os.path.normpath(file) for file in found))


def _is_scenario(file: Path) -> bool:
    return file.name.endswith(SCENARIOS) and file.is_file()
