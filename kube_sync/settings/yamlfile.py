"""YAML into plain values; no field is known here.

Keeps true: null means that nothing was said. What is not YAML, or not a mapping, is one
Misconfigured line that names the file.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from kube_sync.errors import Misconfigured


class _Yaml(yaml.SafeLoader):
    """YAML whose only booleans are true and false: `mode: off` is a word, not False."""


# Assigned, not declared: the stubs call it an instance variable.
_Yaml.yaml_implicit_resolvers = {
    first: [(tag, regexp) for tag, regexp in resolvers if tag != "tag:yaml.org,2002:bool"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Yaml.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile("^(?:true|false)$"), list("tf"))


_BRACKETS = re.compile(r"(?:[\[{][^][{}]*){100}")  # so many that are open at once


def read_bytes(file: str) -> bytes:
    """Return the content of a configuration file. Raises Misconfigured."""
    try:
        return Path(file).read_bytes()
    except OSError as error:
        msg = f"configuration file {file}: {error.strerror}"
        raise Misconfigured(msg) from error


def parse_document(content: bytes, file: str) -> dict[str, Any]:
    """Read the content of `file` as a mapping. Raises Misconfigured."""
    try:
        document = _without_nulls(parse_yaml(content.decode()))
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # no date: 2020-99-99
        msg = f"configuration file {file}: not YAML: {explain(error)}"
        raise Misconfigured(msg) from error
    if document is None:
        return {}
    if not isinstance(document, dict):
        msg = f"configuration file {file}: expected a mapping, found {type(document).__name__}"
        raise Misconfigured(msg)
    return document


def parse_yaml(text: str) -> object:
    """Read text as YAML whose only booleans are true and false. Raises yaml.YAMLError."""
    if _BRACKETS.search(text):  # each may begin a key: the scanner takes seconds to find none
        msg = "nested too deeply"
        raise yaml.YAMLError(msg)
    return yaml.load(text, Loader=_Yaml)  # noqa: S506 - a SafeLoader


def explain(error: Exception) -> str:
    """Say in one line what is wrong, and where, but nothing of the text: it may be a password."""
    if not isinstance(error, yaml.MarkedYAMLError):
        return " ".join(str(error).split())
    what = ", ".join(part for part in (error.context, error.problem) if part)
    mark = error.problem_mark
    return f"{what} (line {mark.line + 1}, column {mark.column + 1})" if mark else what


def _without_nulls(value: object) -> object:
    """Drop null values of mappings: an empty section or field means its default."""
    if isinstance(value, dict):
        return {k: _without_nulls(v) for k, v in value.items() if v is not None}
    return value
