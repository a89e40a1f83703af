"""What a policy said of one resource, in the form in which annotations are stored.

Annotation values are text. A policy may answer with any JSON, as the design's own example does;
what is not a string becomes compact JSON text with sorted keys, so that equal answers are equal
text, wherever they are written. null is refused: it would be the text "null".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from kube_sync.errors import Undecided


class Decision(msgspec.Struct, frozen=True):
    """The annotations and labels that a policy wants, or the errors for which it refuses.

    `warnings` are for whoever sent the resource, and change nothing.
    """

    annotations: Mapping[str, str] = {}
    errors: tuple[str, ...] = ()
    labels: Mapping[str, str] = {}
    warnings: tuple[str, ...] = ()


_sorted = msgspec.json.Encoder(order="sorted")


def parse_decision(result: bytes) -> Decision:
    """Read the document that a policy answered with; keys that are not ours are ignored.

    Raises Undecided when `annotations` or `errors` have a shape that means nothing.
    """
    document = _decode(result)
    annotations = document.get("annotations", {})
    if not isinstance(annotations, dict):
        msg = f"the policy's `annotations` are {_kind(annotations)}, not an object"
        raise Undecided(msg)
    errors = document.get("errors", [])
    if not isinstance(errors, list):
        msg = f"the policy's `errors` are {_kind(errors)}, not an array"
        raise Undecided(msg)
    return Decision(
        {key: _text(key, value) for key, value in sorted(annotations.items())},
        tuple(error if isinstance(error, str) else compact(error) for error in errors),
    )


def compact(value: object) -> str:
    """Return `value` as JSON text without white space, keys sorted."""
    return _sorted.encode(value).decode()


def _decode(result: bytes) -> dict[str, Any]:
    try:
        document = msgspec.json.decode(result)
    except (msgspec.DecodeError, RecursionError) as error:
        msg = f"the policy's answer is not JSON: {error}"
        raise Undecided(msg) from error
    if not isinstance(document, dict):
        msg = f"the policy's answer is {_kind(document)}, not an object"
        raise Undecided(msg)
    return document


def _text(key: str, value: object) -> str:
    if value is None:
        msg = f"the policy's annotation {key} is null"
        raise Undecided(msg)
    return value if isinstance(value, str) else compact(value)


def _kind(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case str():
            return "a string"
        case list():
            return "an array"
        case dict():
            return "an object"
        case _:
            return "a number"
