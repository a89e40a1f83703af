"""What the author of a candidate reads on it: what a plan says of it, or why there is none. Pure.

Keeps true: names and numbers are those of `kube-sync plan`; what says the same but for its date
is the same, so that it keeps its date and is not written. Errors are bounded, and name the file
as its author knows it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from kube_sync.errors import NO_JSON
from kube_sync.kube.policynames import called, named
from kube_sync.kube.staging import CANDIDATE
from kube_sync.objects import ObjectKey
from kube_sync.opa.client import OpaError
from kube_sync.replicator.policies.outcomes import Tried, staged_by

NOT_PLANNED: Final = "not_planned"  # the code of an error
_COMPILING: Final = ("invalid_parameter", "error(s) occurred while compiling module(s)")
_LINES: Final = 20
_CHARACTERS: Final = 500
# As planning prints a cause: what a person calls the file, perhaps with the module's id.
_CAUSE: Final = re.compile(r"(?P<file>.+?):((?P<row>\d+):)? (?P<code>\w+): (?P<message>.*)")

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Version:
    """Which candidate was planned with: what it stands for, and the digest of its modules."""

    stands_for: str
    modules: str


@dataclass(frozen=True, slots=True)
class Planned:
    """What a plan says: how many objects go each way, by effect, and its exit status."""

    objects: int
    effects: Mapping[str, int]
    status: int
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Unplanned:
    """Why there is no plan, line by line."""

    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of planning with one candidate, together with others, and when (RFC 3339)."""

    key: ObjectKey
    version: Version
    outcome: Planned | Unplanned
    when: str
    together: tuple[str, ...] = ()


def is_of(line: str, key: ObjectKey) -> bool:
    """Tell whether an error is about a candidate's own file."""
    return line.startswith((f"{called(key)} (", f"{called(key)}:"))


def text_of(answer: Answer) -> str:
    """Return what is said of a candidate: the text of a ConfigMap's status annotation."""
    outcome, version = answer.outcome, answer.version
    status: Json = {"status": "ok" if isinstance(outcome, Planned) else "error"}
    place = named(ObjectKey(*version.stands_for.split("/", 1)))
    status |= {"stage": CANDIDATE, "stands_for": place, "modules": version.modules}
    if answer.together:
        status["together_with"] = answer.together
    if isinstance(outcome, Planned):
        status |= {"objects": outcome.objects, **outcome.effects, "exit": outcome.status}
        status |= {"notes": [*_bounded(outcome.notes)]} if outcome.notes else {}
    else:
        status["error"] = _error(answer.key, outcome)
    return msgspec.json.encode(status | {"when": answer.when}).decode()


def says(found: str | None, wanted: str) -> bool:
    """Tell whether an annotation says what is wanted, whenever that was found out."""
    try:
        said = msgspec.json.decode(found or "null", type=Json)
    except NO_JSON:
        return False
    meant: Json = msgspec.json.decode(wanted)
    return said | {"when": ""} == meant | {"when": ""}


def dated_as(found: object, text: str) -> str:
    """Return a text with the date of what a PlacementPolicy's `status.staged` says, if it is it."""
    staged = staged_by(Tried(text))
    if staged is None or not isinstance(found, dict) or not isinstance(found.get("when"), str):
        return text
    if staged | {"when": ""} != found | {"when": ""}:
        return text
    return msgspec.json.encode(msgspec.json.decode(text) | {"when": found["when"]}).decode()


def _error(key: ObjectKey, outcome: Unplanned) -> OpaError:
    causes = [_cause(key, line) for line in _bounded(outcome.lines)]
    if any("location" in cause for cause in causes):
        return OpaError(*_COMPILING, causes)
    return OpaError(NOT_PLANNED, "; ".join(cause["message"] for cause in causes), causes)


def _cause(key: ObjectKey, line: str) -> Json:
    found = _CAUSE.fullmatch(line)
    if found is None or not (found["row"] or is_of(line, key)):
        return {"code": NOT_PLANNED, "message": line}
    location: Json = {"file": _own(key, found["file"])}
    location |= {"row": int(found["row"])} if found["row"] else {}
    return {"code": found["code"], "message": found["message"], "location": location}


def _own(key: ObjectKey, file: str) -> str:
    """Return the id of a candidate's module, which was planned with as what it stands for."""
    if not is_of(f"{file}:", key) or not file.endswith(")"):
        return file
    return f"{key}/{file[:-1].rpartition('/')[2]}"


def _bounded(lines: Sequence[str]) -> list[str]:
    found = [f"{line:.{_CHARACTERS}}" for line in lines[:_LINES]]
    return found + ([f"and {left} more"] if (left := len(lines) - _LINES) > 0 else [])
