"""Trees as the text of a template: YAML in block style, with `if` around what depends on something.

Keeps true: braces that the objects themselves have are printed as they are. Pure.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import yaml

from tools.charting.tree import Block, Either, Insert, Only, Scalar, Tree, Yaml

# Around an expression within a text, until the text has been quoted.
OPEN: Final = "\ue000"
CLOSE: Final = "\ue001"
_STEP: Final = "  "
_NEWLINE: Final = "\n"
_EXPRESSION: Final = re.compile(f"{OPEN}.*?{CLOSE}")


def expression(text: str) -> str:
    """Return a mark for an expression within a text."""
    return f"{OPEN}{text}{CLOSE}"


def emitted(tree: Mapping[Any, Tree]) -> str:
    """Return the lines of an object."""
    return "".join(f"{line}\n" for line in _mapping(tree, ""))


def _mapping(tree: Mapping[Any, Tree], indent: str) -> Iterator[str]:
    for key, value in tree.items():
        if isinstance(key, Insert):
            yield f"{indent}{{{{- {key.expression} | nindent {len(indent)} }}}}"
        elif isinstance(value, Only):
            yield f"{indent}{{{{- if {value.condition} }}}}"
            yield from _entry(key, value.value, indent)
            yield f"{indent}{{{{- end }}}}"
        else:
            yield from _entry(key, value, indent)


def _entry(key: str, value: Tree, indent: str) -> Iterator[str]:
    name = f"{indent}{_scalar(key)}:"
    below = indent + _STEP
    if isinstance(value, Either):
        yield f"{indent}{{{{- if {value.condition} }}}}"
        yield from _entry(key, value.then, indent)
        yield f"{indent}{{{{- else }}}}"
        yield from _entry(key, value.otherwise, indent)
        yield f"{indent}{{{{- end }}}}"
    elif isinstance(value, Yaml):
        yield name
        yield f"{below}{{{{- toYaml {value.expression} | nindent {len(below)} }}}}"
    elif isinstance(value, Block):
        yield f"{name} |"
        yield f"{below}{{{{- {value.expression} | nindent {len(below)} }}}}"
    elif isinstance(value, Mapping) and value:
        yield name
        yield from _mapping(value, below)
    elif isinstance(value, list) and value:
        yield name
        yield from _list(value, indent)
    elif isinstance(value, str) and "\n" in value and _is_plain(value):
        yield f"{name} {'|' if value.endswith(_NEWLINE) else '|-'}"
        yield from (_marked(f"{below}{line}".rstrip(" ")) for line in value.splitlines())
    else:
        yield f"{name} {_scalar(value)}"


def _list(items: list[Tree], indent: str) -> Iterator[str]:
    for item in items:
        if isinstance(item, Insert):
            yield f"{indent}{{{{- {item.expression} | nindent {len(indent)} }}}}"
        elif isinstance(item, Only):
            yield f"{indent}{{{{- if {item.condition} }}}}"
            yield from _item(item.value, indent)
            yield f"{indent}{{{{- end }}}}"
        else:
            yield from _item(item, indent)


def _item(item: Tree, indent: str) -> Iterator[str]:
    if isinstance(item, Mapping) and item:
        # The first entry stands beside the dash, so it may depend on nothing.
        first, *rest = _mapping(item, indent + _STEP)
        if first.lstrip().startswith("{{-"):
            msg = f"the first entry of an item depends on something: {first.strip()}"
            raise ValueError(msg)
        yield f"{indent}- {first.removeprefix(indent + _STEP)}"
        yield from rest
    else:
        yield f"{indent}- {_scalar(item)}"


def _is_plain(text: str) -> bool:
    """Tell whether lines can be written as they are: without spaces or empty ones at the ends."""
    return not text.startswith((" ", _NEWLINE)) and not text.endswith(2 * _NEWLINE)


def _scalar(value: Tree) -> str:
    if isinstance(value, Scalar):
        return f"{{{{ {value.expression} }}}}"
    if isinstance(value, str) and (OPEN in value or _NEWLINE in value):
        # Helm reads expressions before anybody reads YAML: their quotes are no part of the text.
        quoted = json.dumps(value, ensure_ascii=False)
        return _marked(_EXPRESSION.sub(lambda found: found[0].replace('\\"', '"'), quoted))
    text = yaml.safe_dump(value, width=1_000_000, allow_unicode=True, default_flow_style=True)
    return _marked(text.removesuffix("\n...\n").removesuffix("\n"))


def _marked(text: str) -> str:
    escaped = text.replace("{{", '{{ "{{" }}')
    return escaped.replace(OPEN, "{{ ").replace(CLOSE, " }}")
