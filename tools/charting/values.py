"""values.yaml, its schema and the table of both for pages, made of the list of values."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from tools.charting.value import MADE, Value
from tools.charting.valuelist import VALUES

_Schema = dict[str, Any]


def files(defaults: Mapping[str, Any]) -> dict[str, str]:
    """Return values.yaml and its schema; `defaults` are those of the manifests, by path."""
    return {"values.yaml": _values(defaults), "values.schema.json": _schema(defaults)}


def table(defaults: Mapping[str, Any]) -> str:
    """Return the values as a table in Markdown."""
    rows = [f"| `{one.path}` | {_cell(default)} | {one.text} |" for one, default in _all(defaults)]
    return "\n".join(["| value | default | meaning |", "|---|---|---|", *rows, ""])


def _all(defaults: Mapping[str, Any]) -> Iterator[tuple[Value, Any]]:
    """Yield each value with its default; what manifests have no place for is no value of theirs."""
    for value in VALUES:
        if value.default is not MADE:
            yield value, value.default
        elif value.path in defaults:
            yield value, defaults[value.path]


def _cell(default: Any) -> str:
    return "`" + json.dumps(default).replace('"', "") + "`" if default not in ("", {}, []) else ""


def _values(defaults: Mapping[str, Any]) -> str:
    lines = ["# Made by `python -m tools.charting`; do not edit."]
    above: tuple[str, ...] = ()
    for value, default in _all(defaults):
        *sections, name = value.path.split(".")
        lines += _opened(above, tuple(sections))
        above = tuple(sections)
        indent = "  " * len(sections)
        lines += (f"{indent}# {line}" for line in textwrap.wrap(value.text, 96 - len(indent)))
        lines += (f"{indent}{line}" for line in _entry(name, default))
    return "\n".join([*lines, ""])


def _opened(above: tuple[str, ...], sections: tuple[str, ...]) -> Iterator[str]:
    """Yield the keys of sections that begin here."""
    for depth, name in enumerate(sections):
        if above[: depth + 1] != sections[: depth + 1]:
            yield f"{'  ' * depth}{name}:"


def _entry(name: str, default: Any) -> list[str]:
    text: str = yaml.safe_dump({name: default}, sort_keys=False, width=1_000_000)
    return text.rstrip("\n").split("\n")


def _schema(defaults: Mapping[str, Any]) -> str:
    root: _Schema = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Values of the chart kube-sync",
        **_section(),
    }
    root["properties"]["global"] = {"type": "object"}  # Helm passes it to every chart
    for value, _ in _all(defaults):
        *sections, name = value.path.split(".")
        within = root
        for section in sections:
            within = within["properties"].setdefault(section, _section())
        within["properties"][name] = {**value.schema, "description": value.text}
    return json.dumps(root, indent=2, ensure_ascii=False) + "\n"


def _section() -> _Schema:
    return {"type": "object", "additionalProperties": False, "properties": {}}
