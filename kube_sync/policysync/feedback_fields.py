r"""The feedback fields of every copy, and the JSONPath subset that reads them.

Invariant: one path is one scalar, since the agents of spokes report nothing else. The digest and
the generation come with the same read as the conditions, so that a report on an earlier copy is
never taken for one on this copy.

A path is the part of Kubernetes' JSONPath that the work agent of Open Cluster Management and
this module read alike: `.field`, with `\.` for a dot within a name, `[0]`, and
`[?(@.field=="text")]`, of which the first match counts. A missing field has no value. A value that
is no text, whole number or boolean, and an index beyond a list, are problems, and hinder no
other path (ManifestWork, feedbackRules).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any, Final

from kube_sync.policysync.copies import DIGEST, Feedback, FeedbackField

# GEP-713 has Accepted and Programmed, Kuadrant has Accepted and Enforced (RFC 0004).
CONDITIONS: Final = ("Accepted", "Enforced", "Programmed")
OF_COPY: Final = "digest"
GENERATION: Final = "generation"
OBSERVED: Final = "observedGeneration"
PARTS: Final = ("status", "reason", "message", OBSERVED)


def field_name(condition: str, part: str) -> str:
    """Return the name of a condition's field: `enforcedReason`."""
    return condition[0].lower() + condition[1:] + part[0].upper() + part[1:]


def fields_of(*, conditions: bool = True, ancestors: bool = False) -> tuple[FeedbackField, ...]:
    """Return the feedback fields of a kind whose status has conditions, or ancestors with some.

    The fields for entries of ancestors depend on the copy: see `ancestor_fields`.
    """
    return (*_COMMON, *_conditions()) if conditions or not ancestors else _COMMON


def _conditions() -> Iterator[FeedbackField]:
    for condition in CONDITIONS:
        for part in PARTS:
            path = f'.status.conditions[?(@.type=="{condition}")].{part}'
            yield FeedbackField(field_name(condition, part), path)


_COMMON: Final = (
    FeedbackField(OF_COPY, ".metadata.annotations." + DIGEST.replace(".", "\\.")),
    FeedbackField(GENERATION, ".metadata.generation"),
    FeedbackField(OBSERVED, f".status.{OBSERVED}"),
)
FIELDS: Final = fields_of()
NAMES: Final = frozenset(one.name for one in FIELDS)


Step = str | int | tuple[str, str]

_MOST: Final = 512  # characters of a path
_STEP: Final = re.compile(
    r"\.(?P<field>(?:\\\.|[A-Za-z0-9_/-])+)"
    r"|\[(?P<index>[0-9]{1,4})\]"
    r"""|\[\?\(@\.(?P<key>[A-Za-z0-9_-]+)==(?P<quote>["'])(?P<text>[^"'\\]*)(?P=quote)\)\]"""
)


@cache
def steps(path: str) -> tuple[Step, ...]:
    """Parse a path. Raises ValueError for one that is not supported."""
    found: list[Step] = []
    end = 0
    while end < len(path) <= _MOST and (match := _STEP.match(path, end)):
        found.append(_step(match))
        end = match.end()
    if not found or end < len(path) or not path.startswith("."):
        msg = 'a path is made of .field, [0] and [?(@.field=="text")], and leads to one scalar'
        raise ValueError(msg)
    return tuple(found)


def _step(match: re.Match[str]) -> Step:
    if (field := match["field"]) is not None:
        return field.replace("\\.", ".")
    return int(match["index"]) if match["index"] is not None else (match["key"], match["text"])


def read(fields: Iterable[FeedbackField], body: Mapping[str, Any]) -> Feedback:
    """Read the fields of an object, which counts as applied. Raises ValueError for a path."""
    values: dict[str, str | int | bool] = {}
    problems = []
    for field, path in [(one, steps(one.path)) for one in fields]:
        try:
            value = _value(body, path)
        except ValueError as error:
            problems.append(f"{field.name}: {field.path} {error}")
        else:
            values |= {} if value is None else {field.name: value}
    return Feedback(applied=True, values=values, problem="; ".join(problems))


def _value(value: Any, path: Iterable[Step]) -> str | int | bool | None:  # noqa: ANN401 - JSON
    """Return a scalar, None if there is none. Raises ValueError as the agent reports one."""
    for step in path:
        if value is None:
            return None
        if isinstance(step, str):
            value = value.get(step) if isinstance(value, Mapping) else None
        elif not isinstance(value, list):
            msg = "leads through what is no list"
            raise ValueError(msg)  # noqa: TRY004 - a spoke's object is no argument of ours
        elif isinstance(step, int):
            value = _item(value, step)
        else:
            value = next((one for one in value if _matches(one, *step)), None)
    if value is None or isinstance(value, str | int):  # a bool is an int
        return value
    msg = "is no text, whole number or boolean"
    raise ValueError(msg)


def _item(listed: list[Any], index: int) -> Any:  # noqa: ANN401 - JSON of a spoke
    if index >= len(listed):
        msg = "leads beyond the end of a list"
        raise ValueError(msg)
    return listed[index]


def _matches(one: object, key: str, text: str) -> bool:
    return isinstance(one, Mapping) and one.get(key) == text
