"""Validation of the values of placement annotations by the types of their readers. Pure.

A decision with an invalid value cannot be carried out. The two annotations of Kubernetes federation
are validated by that project's own types (`ReplicaAllocationPreferences`, `ClusterSelector`): a
reader in Go takes a misspelt key for no cluster at all, and refuses a weight that is no integer.
Members that these types do not have are ignored there, and so here. Annotations that the
configuration adds are validated by the form that it gives them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Final

import msgspec

from kube_sync.errors import NO_JSON, json_type
from kube_sync.guard.selectors import EXPECTED as SELECTOR_EXPECTED
from kube_sync.guard.selectors import parse_selector

PREFERENCES_EXPECTED: Final = '{"clusters": {NAME: {"weight": 1}}}'
_CUT: Final = 60  # characters of a value in a message


class _Preference(msgspec.Struct, rename="camel"):
    weight: int | None = None
    min_replicas: int | None = None
    max_replicas: int | None = None


class _Preferences(msgspec.Struct):
    clusters: dict[str, _Preference | None]
    rebalance: bool | None = None


_preferences = msgspec.json.Decoder(_Preferences)


@dataclass(frozen=True, slots=True)
class Unreadable:
    """An annotation with an invalid value; `word`: a key in it that may be misspelt."""

    annotation: str
    expected: str
    found: str
    word: str = ""

    def __str__(self) -> str:
        """Describe what was expected and what was found."""
        return f"annotation {self.annotation}: expected {self.expected}, found {self.found}"


def federation_preferences(annotation: str, value: str) -> Unreadable | None:
    """Validate a replica-set-preferences value; return the error, or None."""
    try:
        _preferences.decode(value)
    except NO_JSON as error:
        return Unreadable(annotation, PREFERENCES_EXPECTED, *_described(value, str(error)))
    return None


def federation_selector(annotation: str, value: str) -> Unreadable | None:
    """Validate a cluster-selector value; return the error, or None."""
    try:
        parse_selector(value)
    except ValueError as error:
        return Unreadable(annotation, SELECTOR_EXPECTED, f"{_quoted(value)}: {error}")
    return None


def malformed(annotation: str, form: str, value: str) -> Unreadable:
    """Return the error for a value that does not have the form configured for its annotation."""
    expected = {
        "preferences": '{"clusters": {NAME: …}}',
        "names": "a JSON list of names, or names with commas between them",
        "selector": SELECTOR_EXPECTED,
    }
    return Unreadable(annotation, f"{expected[form]} (form: {form})", _quoted(value))


def _described(value: str, error: str) -> tuple[str, str]:
    """Describe a value that is not preferences, and the key that may be misspelt."""
    try:
        document: Any = msgspec.json.decode(value)
    except NO_JSON:
        return f"{_quoted(value)}, which is not JSON", ""
    if not isinstance(document, dict):
        return f"{json_type(document)}: {_quoted(value)}", ""
    if "clusters" in document and isinstance(document["clusters"], Mapping):
        return f"{_quoted(value)}: {error}", ""
    if "clusters" in document:
        return f"`clusters` as {json_type(document['clusters'])}: {_quoted(value)}", "clusters"
    if near := get_close_matches("clusters", map(str, document), 1):
        return f"the key `{near[0]}` instead of `clusters`", near[0]
    keys = ", ".join(f"`{key:.40}`" for key in [*document][:5]) or "no key at all"
    return f"no key `clusters` but {keys}", ""


def _quoted(value: str) -> str:
    return repr(value if len(value) <= _CUT else f"{value[: _CUT - 1]}…")
