"""What the value of a placement annotation has to be, so that whoever reads it can. Pure.

A policy that writes anything else has decided nothing that could be carried out. The two
annotations of Kubernetes federation are held to that project's own types
(`ReplicaAllocationPreferences`, `ClusterSelector`): a reader in Go takes a misspelt key for no
cluster at all, and refuses a weight that is no integer. Members that these types do not have are
passed over there, and so here. Annotations that the configuration adds are held to the form that it
gives them.
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
_CUT: Final = 60  # characters of a value that is quoted


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
    """An annotation whose value breaks its contract; `word` is what a person may have misspelt."""

    annotation: str
    expected: str
    found: str
    word: str = ""

    def __str__(self) -> str:
        """Say what was expected and what is there."""
        return f"annotation {self.annotation}: expected {self.expected}, found {self.found}"


def federation_preferences(annotation: str, value: str) -> Unreadable | None:
    """Return what is wrong with replica-set-preferences, None: nothing."""
    try:
        _preferences.decode(value)
    except NO_JSON as error:
        return Unreadable(annotation, PREFERENCES_EXPECTED, *_described(value, str(error)))
    return None


def federation_selector(annotation: str, value: str) -> Unreadable | None:
    """Return what is wrong with a cluster-selector, None: nothing."""
    try:
        parse_selector(value)
    except ValueError as error:
        return Unreadable(annotation, SELECTOR_EXPECTED, f"{_quoted(value)}: {error}")
    return None


def malformed(annotation: str, form: str, value: str) -> Unreadable:
    """Return that a value has not the form which the configuration gives its annotation."""
    expected = {
        "preferences": '{"clusters": {NAME: …}}',
        "names": "a JSON list of names, or names with commas between them",
        "selector": SELECTOR_EXPECTED,
    }
    return Unreadable(annotation, f"{expected[form]} (form: {form})", _quoted(value))


def _described(value: str, error: str) -> tuple[str, str]:
    """Say what is there instead of preferences, and which word may be misspelt."""
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
