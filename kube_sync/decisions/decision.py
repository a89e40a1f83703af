"""Parse a policy's decision on one resource into annotations and labels as they are stored.

Annotation values are text. A policy may return any JSON, as in the design's own example; a value
that is not a string becomes compact JSON text with sorted keys, so that equal answers are equal
text. null is rejected: it would become the text "null". Labels must be text, since hardly any JSON
is a valid label. Keys and labels that the API server would reject are rejected here, where the
message can name them.

A placement without any cluster empties the workload. A policy that returns one because it sees an
empty fleet has not decided anything: nothing here or elsewhere executes it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from kube_sync.errors import NO_JSON, Undecided, json_type


class Decision(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The annotations and labels that a policy wants, or the errors for which it refuses.

    `warnings` are for the sender of the resource, `reasons` say why a cluster was chosen, by
    cluster name; neither changes anything. `evict` allows the resource to be left without any
    cluster.
    """

    # With these factories msgspec encodes the first two even if they are empty.
    annotations: Mapping[str, str] = msgspec.field(default_factory=lambda: {})  # noqa: PIE807 - as above
    errors: tuple[str, ...] = msgspec.field(default_factory=lambda: ())
    labels: Mapping[str, str] = {}
    warnings: tuple[str, ...] = ()
    reasons: Mapping[str, str] = {}
    evict: bool = False


REQUESTED: Final = "kube-sync.io/requested"

# Kubernetes, "Labels and Selectors: Syntax and character set"; annotations have the same keys.
_NAME = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?")
_VALUE = re.compile(rf"(?:{_NAME.pattern})?")
_SUBDOMAIN = re.compile(  # RFC 1123
    r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*"
)
_NAME_LENGTH, _PREFIX_LENGTH = 63, 253

# Policies quote what they refuse, and an object's fields may have 256 KiB; each process that reads
# decisions holds all of them.
_LONGEST: Final = 2_000  # characters of an error, a warning or a reason
_MOST: Final = 100  # errors, or warnings

_sorted = msgspec.json.Encoder(order="sorted")


def parse_decision(result: bytes) -> Decision:
    """Parse the document that a policy returned; unknown keys are ignored.

    Raises Undecided if a known key has an invalid value.
    """
    document = _decode(result)
    annotations, labels = _object(document, "annotations"), _object(document, "labels")
    return Decision(
        {key: _annotation(key, value) for key, value in sorted(annotations.items())},
        _messages(document, "errors"),
        {key: _label(key, value) for key, value in sorted(labels.items())},
        _messages(document, "warnings"),
        _reasons(document.get("reasons")),
        _flag(document, "evict"),
    )


def compact(value: object) -> str:
    """Return `value` as JSON text without white space, keys sorted."""
    return _sorted.encode(value).decode()


def _decode(result: bytes) -> dict[str, Any]:
    try:
        document = msgspec.json.decode(result)
    except NO_JSON as error:
        msg = f"the policy's answer is not JSON: {error}"
        raise Undecided(msg) from error
    if not isinstance(document, dict):
        msg = f"the policy's answer is {json_type(document)}, not an object"
        raise Undecided(msg)
    return document


def _object(document: Mapping[str, Any], name: str) -> dict[str, Any]:
    found = document.get(name, {})
    if not isinstance(found, dict):
        msg = f"the policy's `{name}` are {json_type(found)}, not an object"
        raise Undecided(msg)
    return found


def _messages(document: Mapping[str, Any], name: str) -> tuple[str, ...]:
    found = document.get(name, [])
    if not isinstance(found, list):
        msg = f"the policy's `{name}` are {json_type(found)}, not an array"
        raise Undecided(msg)
    texts = [_truncate(one if isinstance(one, str) else compact(one)) for one in found[:_MOST]]
    return (*texts, *([f"and {len(found) - _MOST} more"] if len(found) > _MOST else ()))


def _truncate(text: str) -> str:
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def _reasons(found: object) -> dict[str, str]:
    """Parse texts, or arrays of them as Rego's `reasons[cluster] contains text` gives.

    Other values are ignored: they do not invalidate a decision, and a policy may have used the key
    for other purposes.
    """
    entries = found if isinstance(found, dict) else {}
    read = ((cluster, _reason(entry)) for cluster, entry in sorted(entries.items()))
    return {cluster: reason for cluster, reason in read if reason}


def _reason(entry: object) -> str:
    texts = entry if isinstance(entry, list) else [entry]
    return _truncate("; ".join(text for text in texts if isinstance(text, str)))


def _flag(document: Mapping[str, Any], name: str) -> bool:
    found = document.get(name, False)
    if not isinstance(found, bool):
        msg = f"the policy's `{name}` is {json_type(found)}, not a boolean"
        raise Undecided(msg)
    return found


def _annotation(key: str, value: object) -> str:
    if value is None:
        msg = f"the policy's annotation {key} is null"
        raise Undecided(msg)
    # The API server lowercases the prefix of an annotation, not of a label, before validation.
    if not _is_key(key.lower()):
        msg = f"the policy's annotation {key!r} has no name that the API server takes"
        raise Undecided(msg)
    if key == REQUESTED:
        msg = f"the policy's annotation {key} is where kube-sync keeps what was asked for"
        raise Undecided(msg)
    return value if isinstance(value, str) else compact(value)


def _label(key: str, value: object) -> str:
    if not _is_key(key):
        msg = f"the policy's label {key!r} has no name that the API server takes"
        raise Undecided(msg)
    if not isinstance(value, str):
        msg = f"the policy's label {key} is {json_type(value)}, not a string"
        raise Undecided(msg)
    if len(value) > _NAME_LENGTH or not _VALUE.fullmatch(value):
        msg = f"the policy's label {key} has no value that a label can have: {value!r:.80}"
        raise Undecided(msg)
    return value


def _is_key(key: str) -> bool:
    prefix, slash, name = key.rpartition("/")
    if slash and not (len(prefix) <= _PREFIX_LENGTH and _SUBDOMAIN.fullmatch(prefix)):
        return False
    return len(name) <= _NAME_LENGTH and _NAME.fullmatch(name) is not None


PLACEMENT = "federation.kubernetes.io/replica-set-preferences"


def empties(wanted: Mapping[str, str], current: Mapping[str, str]) -> bool:
    """Return whether `wanted` would remove every cluster that a workload may run on now.

    A workload without a placement runs wherever its federation puts it.
    """
    return (
        PLACEMENT in wanted
        and is_empty_placement(wanted[PLACEMENT])
        and not (PLACEMENT in current and is_empty_placement(current[PLACEMENT]))
    )


def is_empty_placement(preferences: str) -> bool:
    """Return whether replica-set-preferences name no cluster, or only clusters of weight 0."""
    try:
        clusters = msgspec.json.decode(preferences)["clusters"]
        entries = list(clusters.values())
    except (*NO_JSON, KeyError, TypeError, AttributeError):
        return False  # not a placement: nothing can be concluded
    return not any(_has_weight(entry) for entry in entries)


def _has_weight(entry: object) -> bool:
    if not isinstance(entry, dict):
        return True
    if entry.get("maxReplicas") == 0:
        return False
    return bool(entry.get("weight", 1) or entry.get("minReplicas", 0))
