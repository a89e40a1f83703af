"""The paths of feedback rules: as much of Kubernetes' JSONPath as rules of policies need.

Missing keys are no error, as in the agent. What is valid there and not known here raises
NotImplementedError, so that no test can pass on it by accident.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

_STEP = re.compile(
    r"""
    (?P<every>\.\*|\[\*\])
  | \.(?P<field>(?:[^\s.\[\]$@{}\\]|\\.)+)     # .name, a dot in it escaped
  | \[(?:'(?P<single>[^']*)'|"(?P<double>[^"]*)")\]
  | \[(?P<index>-?\d+)\]
  | \[\?\(\s*@(?P<where>[^=!]+?)\s*(?P<operator>==|!=)\s*(?P<literal>"[^"]*"|'[^']*'|[\w.-]+)\s*\)\]
    """,
    re.VERBOSE,
)
_NOT_KNOWN = re.compile(r"\.\.|\[\d*:|\[\d+,|\[\?|\[\(")


class BadPath(ValueError):
    """The path is no JSONPath."""


def find(path: str, value: object) -> list[Any]:
    """Return what a path leads to. Raises BadPath, NotImplementedError."""
    found = [value]
    for step in _steps(path):
        found = [one for each in found for one in step(each)]
    return found


def _steps(path: str) -> Iterator[Callable[[Any], Iterator[Any]]]:
    position = 0
    while position < len(path):
        match = _STEP.match(path, position)
        if match is None:
            if _NOT_KNOWN.match(path, position):
                msg = f"the stand-in does not know this of JSONPath: {path[position:]}"
                raise NotImplementedError(msg)
            msg = f"unrecognized: {path[position:]}"
            raise BadPath(msg)
        yield _step(match)
        position = match.end()


def _step(match: re.Match[str]) -> Callable[[Any], Iterator[Any]]:
    if match["every"]:
        return _every
    if match["index"]:
        return lambda value: _at(int(match["index"]), value)
    if match["where"]:
        return lambda value: _where(match, value)
    names = (match["field"] and re.sub(r"\\(.)", r"\1", match["field"]), match["single"])
    name = next((name for name in (*names, match["double"]) if name is not None), "")
    return lambda value: _field(name, value)


def _field(name: str, value: object) -> Iterator[Any]:
    if isinstance(value, dict) and name in value:
        yield value[name]


def _at(index: int, value: object) -> Iterator[Any]:
    if isinstance(value, list) and -len(value) <= index < len(value):
        yield value[index]


def _every(value: object) -> Iterator[Any]:
    if isinstance(value, dict):
        yield from value.values()
    elif isinstance(value, list):
        yield from value


def _where(match: re.Match[str], value: object) -> Iterator[Any]:
    literal = match["literal"]
    wanted = literal[1:-1] if literal[0] in "'\"" else json.loads(literal)
    for item in value if isinstance(value, list) else ():
        found = find(match["where"], item)
        if found and (found[0] == wanted) == (match["operator"] == "=="):
            yield item
