"""OPA's compliance suite, case by case: is a decision over what is read that over everything?

A member that nobody names is added to every object of a case's input and data, so that something
is left out wherever not all is read. Nothing of the suite is in this repository.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from kube_sync.opa.analysis.analyzer import PolicyModule, analyze
from kube_sync.opa.analysis.paths import Path as Field
from kube_sync.opa.analysis.paths import project
from tests.analysis.opa import FAILED, PolicyOpa

_DECISION = re.compile(r"data((?:\.\w+)+) = x")
_UNNAMED = "nobody_names_this"
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True, slots=True)
class Case:
    """One case that asks for one document."""

    note: str
    decision: str  # a path
    modules: Sequence[str]
    data: Any
    input: Any  # None: there is none


@dataclass(frozen=True, slots=True)
class Compared:
    """What became of a case; `why` says why there is nothing to compare."""

    case: Case
    why: str = ""
    gave_up: str | None = None
    equal: bool = True
    less: bool = False  # something was left out


def cases(folder: Path) -> Iterator[Case]:
    """Yield the cases below a folder that ask for one document of JSON data and input."""
    for file in sorted(folder.rglob("*.yaml")):
        document = yaml.load(file.read_bytes(), Loader=_LOADER)  # noqa: S506 - a safe one
        for found in document["cases"]:
            asked = _DECISION.fullmatch(found["query"])
            if asked is None or not found.get("modules"):
                continue
            data, asks = found.get("data") or {}, _input(found)
            if _is_json(data) and _is_json(asks):
                path = asked[1].removeprefix(".").replace(".", "/")
                yield Case(found["note"], path, found["modules"], _added(data), _added(asks))


def _input(found: Any) -> Any:
    """Return the input of a case; a term of Rego that is no JSON is none that a test can use."""
    if (term := found.get("input_term")) is None:
        return found.get("input")
    try:
        return json.loads(term)
    except ValueError:
        return {None: term}


def compared(opa: PolicyOpa, case: Case) -> Compared:
    """Decide over everything, and over what the analysis says is read."""
    compiled = opa.load(case.modules, case.data)
    if compiled is None:
        return Compared(case, why="it does not compile, by itself or beside its data")
    modules = [module for module in compiled if isinstance(module, PolicyModule)]
    whole = opa.decided(case.decision, case.input)
    if opa.decided(case.decision, case.input) != whole:
        return Compared(case, why="it answers differently each time")
    if case.input is None and not case.data:
        return Compared(case, why="there is nothing to read")
    reads = analyze(modules, case.decision, {})
    fields = [field.path for field in reads.others]
    kept = _kept(case.data, fields), _kept(case.input, reads.input.paths)
    opa.replace_data(kept[0])
    equal = opa.decided(case.decision, kept[1]) == whole
    less = kept != (case.data, case.input)
    return Compared(case, "" if whole != FAILED else "it fails", reads.gave_up, equal, less)


def _kept(value: Any, paths: Sequence[Field]) -> Any:
    return None if value is None else project(value, paths)


def _added(value: Any) -> Any:
    if isinstance(value, dict):
        return {**{name: _added(below) for name, below in value.items()}, _UNNAMED: "x"}
    if isinstance(value, list):
        return [_added(item) for item in value]
    return value


def _is_json(value: Any) -> bool:
    """Tell whether JSON can hold a value as it is: YAML has dates, and keys that are no text."""
    match value:
        case dict():
            return all(isinstance(k, str) and _is_json(below) for k, below in value.items())
        case list():
            return all(map(_is_json, value))
        case float():
            return json.dumps(value) not in ("NaN", "Infinity", "-Infinity")
        case _:
            return value is None or isinstance(value, str | int | bool)
