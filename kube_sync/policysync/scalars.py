r"""The paths by which one scalar is read of an object: a part of Kubernetes' JSONPath.

Only what the work agent of Open Cluster Management and this module read alike: `.field`, with `\.`
for a dot within a name, `[0]`, and `[?(@.field=="text")]`, of which the first match counts. What is
not there is no value; what is no text, whole number or boolean is trouble, and hinders no other
path (ManifestWork, feedbackRules).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, Final

from kube_sync.policysync.copies import Feedback, FeedbackField

Step = str | int | tuple[str, str]

_MOST: Final = 512  # characters of a path
_STEP: Final = re.compile(
    r"\.(?P<field>(?:\\\.|[A-Za-z0-9_/-])+)"
    r"|\[(?P<index>[0-9]{1,4})\]"
    r"""|\[\?\(@\.(?P<key>[A-Za-z0-9_-]+)==(?P<quote>["'])(?P<text>[^"'\\]*)(?P=quote)\)\]"""
)


@cache
def steps(path: str) -> tuple[Step, ...]:
    """Return what a path consists of. Raises ValueError for one that is not read here."""
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
    """Return what an object says; `applied`, as it is there. Raises ValueError for a path."""
    values: dict[str, str | int | bool] = {}
    troubles = []
    for field in fields:
        value = _value(body, steps(field.path))
        if isinstance(value, str | int):  # a bool is an int
            values[field.name] = value
        elif value is not None:
            troubles.append(f"{field.name}: {field.path} is no text, whole number or boolean")
    return Feedback(applied=True, values=values, trouble="; ".join(troubles))


def _value(value: Any, path: Iterable[Step]) -> Any:  # noqa: ANN401 - JSON of a spoke
    for step in path:
        if isinstance(step, str):
            value = value.get(step) if isinstance(value, Mapping) else None
        elif not isinstance(value, list):
            return None
        elif isinstance(step, int):
            value = value[step] if step < len(value) else None
        else:
            value = next((one for one in value if _fits(one, *step)), None)
    return value


def _fits(one: object, key: str, text: str) -> bool:
    return isinstance(one, Mapping) and one.get(key) == text
