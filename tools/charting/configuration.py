"""The schema of the value `config`, after the keys of kube-sync's own configuration.

It refuses keys that do not exist, and `on` and `off` without quotes, which Helm takes for booleans.
"""

from __future__ import annotations

import re
from typing import Any, Final

from kube_sync.config import Key, keys
from kube_sync.config.explanation import ITEM

_WORD: Final = re.compile(r"`([^`]+)`")
_SWITCHES: Final = frozenset({"on", "off"})


def config_schema() -> dict[str, Any]:
    """Return the JSON Schema of the configuration: its sections, and what each key must not be."""
    root = _section()
    for key in keys():
        if ITEM in key.path:
            continue
        *sections, name = key.path.split(".")
        within = root
        for section in sections:
            within = within["properties"][section]
        within["properties"][name] = _section() if key.is_section else _key(key)
    return root


def _section() -> dict[str, Any]:
    return {"type": ["object", "null"], "additionalProperties": False, "properties": {}}


def _key(key: Key) -> dict[str, Any]:
    words = _WORD.findall(key.words)
    if key.words == "true or false":
        return {"type": ["boolean", "null"]}
    if not _SWITCHES & {*words}:
        return {}
    if not key.words.startswith("mapping"):
        return {"enum": [*words, None]}
    return {"type": ["object", "null"], "additionalProperties": {"enum": words}}
