"""Explain which rules made a decision, by a query with OPA's trace.

Only names of rules, files and rows are taken from the trace, never a value: OPA's pretty format has
them, without bindings. The trace of a decision over a large fleet is long (a line for each step),
so its size and time are limited, and queries run one at a time; a trace over the limit gives an
error, not a part. Rules that OPA's rule index excludes are never entered, and so not named.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol

import msgspec

from kube_sync.decisions.decision import Decision, parse_decision
from kube_sync.errors import SyncError
from kube_sync.opa.client import Explained
from kube_sync.opa.lanes import Lane, lane_id, lane_path, prefix

LONGEST: Final = 8 << 20  # bytes of an explanation
SECONDS: Final = 5.0
MOST_WAITING: Final = 8  # concurrent requests; further ones get an error

# A line of OPA's trace with locations (topdown.PrettyTraceWithLocation):
# `policies/placement/policy.rego:19     | | Exit data.io.k8s.federation.admission.errors`
_STEP = re.compile(
    r"(?P<file>\S.*?):(?P<row>\d+)\s+(?:\| )*(?P<step>Enter|Exit) (?P<rule>data\..+)"
)
# Only rules: the body of a comprehension is printed as its expressions.
_RULE = re.compile(r'data(?:\.[A-Za-z_][A-Za-z0-9_]*|\[(?:"(?:[^"\\]|\\.)*"|[^]\s"]+)\])+')
_SHORTENED = "..."  # in place of a part of a long file name


class Explainer(Protocol):
    """OPA's explain API."""

    async def explain(self, path: str, body: bytes, longest: int, seconds: float) -> Explained:
        """Query the document at `path` with its trace. Raises SyncError."""


class Rule(msgspec.Struct, frozen=True, order=True):
    """A rule that OPA entered; `applied` if its body succeeded at least once."""

    file: str
    row: int
    name: str  # as OPA writes it, below `data`
    applied: bool
    text: str = ""  # of the row, if the module is known


@dataclass(frozen=True, slots=True)
class Explanation:
    """How a decision is made now, or why that is unknown (`failure`)."""

    rules: tuple[Rule, ...] = ()
    decision: Decision | None = None  # None: undefined
    failure: str | None = None


class Explaining:
    """Runs one explain query at a time."""

    def __init__(self, opa: Explainer, path: str) -> None:
        """`path` is that of the decision, as in `placement.path`."""
        self._opa = opa
        self._path = path
        self._lock = asyncio.Lock()
        self._waiting = 0

    async def explain(
        self, body: bytes, modules: Mapping[str, str], lane: Lane | None = None
    ) -> Explanation:
        """Explain the present decision on the object in `body`, given as it was requested.

        `modules` are the sources in force by id, or those of a `lane` before they were moved; their
        rows are shown.
        """
        if self._waiting >= MOST_WAITING:
            return Explanation(failure="OPA is being asked about others, try again")
        self._waiting += 1
        try:
            async with self._lock:
                query = b'{"input":' + body + b"}"
                path = self._path if lane is None else lane_path(lane, self._path)
                found = await self._opa.explain(path, query, LONGEST, SECONDS)
            decision = _decision(bytes(found.result))
        except SyncError as error:
            return Explanation(failure=str(error))
        finally:
            self._waiting -= 1
        named = partial(rules if lane is None else partial(_rules_of, lane), found.explanation)
        steps = await asyncio.to_thread(named, modules)
        return Explanation(steps, decision)


def rules(explanation: Iterable[str], modules: Mapping[str, str]) -> tuple[Rule, ...]:
    """Return the rules in a trace: first those that applied, with helpers last among them."""
    found: dict[tuple[str, int, str], bool] = {}
    for file, row, rule, exited in _steps(explanation):
        key = (file, row, rule)
        found[key] = found.get(key, False) or exited
    whole = {file: _file(file, modules) for file, _, _ in found}
    shown = (Rule(whole[f], row, name, applied) for (f, row, name), applied in found.items())
    texts = (_with_text(rule, modules) for rule in shown)
    return tuple(sorted(texts, key=_sort_key))


def _rules_of(
    lane: Lane, explanation: Iterable[str], modules: Mapping[str, str]
) -> tuple[Rule, ...]:
    """Return the rules of a lane by their original names."""
    ids = {lane_id(lane, policy_id): policy_id for policy_id in modules}
    found = rules(explanation, {moved: modules[own] for moved, own in ids.items()})
    root = ".".join((*prefix(lane), ""))
    return tuple(
        msgspec.structs.replace(
            rule, file=ids.get(rule.file, rule.file), name=rule.name.removeprefix(root)
        )
        for rule in found
    )


def _sort_key(rule: Rule) -> tuple[object, ...]:
    helper = rule.name.rpartition(".")[2].startswith("_")
    return (not rule.applied, helper, rule.file, rule.row)


def _with_text(rule: Rule, modules: Mapping[str, str]) -> Rule:
    rows = modules.get(rule.file, "").splitlines()
    if not 0 < rule.row <= len(rows):
        return rule
    return msgspec.structs.replace(rule, text=rows[rule.row - 1].strip())


def _steps(explanation: Iterable[str]) -> Iterator[tuple[str, int, str, bool]]:
    for line in explanation:
        # A quick check first: the pattern takes four times as long, and most lines do not match.
        if not (" Enter data." in line or " Exit data." in line):
            continue
        if (step := _STEP.fullmatch(line)) and _RULE.fullmatch(step["rule"]):
            yield step["file"], int(step["row"]), step["rule"][5:], step["step"] == "Exit"


def _file(shown: str, modules: Mapping[str, str]) -> str:
    """Return the id of the module that a file name in a trace refers to."""
    shown = shown.removeprefix("/")  # as in a bundle
    if shown in modules or _SHORTENED not in shown:
        return shown
    start, _, end = shown.partition(_SHORTENED)
    fits = [m for m in modules if m.startswith(start) and m.endswith(end.lstrip("/"))]
    return fits[0] if len(fits) == 1 else shown


def _decision(result: bytes) -> Decision | None:
    if not result:
        return None
    return msgspec.structs.replace(parse_decision(result), warnings=())
