"""What came of all cases, for programs: nothing of it is left out.

Keeps true: fields may be added; none is removed or changes its meaning within a version.
"""

from __future__ import annotations

from typing import Any

import msgspec

from kube_sync.scenarios.results import VERDICTS, FileResult, Run, Tried

VERSION = 1


def as_json(run: Run) -> str:
    """Return the whole run."""
    whole: dict[str, Any] = {
        "v": VERSION,
        "summary": {
            "cases": sum(len(tested.cases) for tested in run.files),
            **{verdict: run.count(verdict) for verdict in VERDICTS},
            "files": len(run.files),
            "files_not_run": run.broken,
            "left_out": run.left_out,
            "seconds": round(run.seconds, 3),
            "status": run.status,
        },
        "files": [_file(tested) for tested in run.files],
    }
    return msgspec.json.format(msgspec.json.encode(whole), indent=2).decode()


def _file(tested: FileResult) -> dict[str, Any]:
    return {
        "file": tested.file,
        "problems": [
            {"file": p.file, "row": p.row, "key": p.key, "message": p.message}
            for p in tested.problems
        ],
        "cases": [_case(tried) for tried in tested.cases],
    }


def _case(tried: Tried) -> dict[str, Any]:
    case = tried.case
    return {
        "name": case.name,
        "row": case.row,
        "resource": case.resource,
        "namespace": case.key.namespace,
        "object": case.key.name,
        "result": tried.verdict,
        "seconds": round(tried.seconds, 6),
        "why": tried.why,
        "differences": tried.differences,
        "rules": tried.rules,
        "got": None if tried.outcome is None else _got(tried),
    }


def _got(tried: Tried) -> dict[str, Any]:
    outcome = tried.outcome
    placed = tried.placed
    return {
        "decision": None if outcome is None else outcome.decision,
        "failure": None if outcome is None else outcome.failure,
        "clusters": None if placed is None or placed.unclear else placed.clusters,
    }
