"""Documents every key of the configuration: its values, its default, and what it does.

Invariant: the text is the one beside the field in the code, so it is always of this version.
A field's text is the string below it, a section's its docstring; both are read from the source.
"""

from __future__ import annotations

import ast
import difflib
import inspect
import re
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Literal, TypeGuard, get_args, get_origin, get_type_hints

import msgspec

from kube_sync.config.environment import Field
from kube_sync.config.kinds import Section
from kube_sync.config.model import LIVE, Settings
from kube_sync.errors import Misconfigured

ITEM = "[]"  # in a path: each item of a list
_NEAR = 3  # similar names that are offered for a wrong one
_WORDS: Mapping[object, str] = {bool: "true or false", str: "text", NoneType: "null"}


@dataclass(frozen=True, slots=True)
class Key:
    """One key of the file; `variable` and `default` are None if there is none."""

    path: str  # as in `opa.url`, or `replicate.resources[].group`
    section: type[Section]
    name: str  # of the field, in the section
    words: str  # its possible values
    text: str  # what it does, in one line
    default: str | None = None  # as YAML; None: it is required
    variable: str | None = None
    is_section: bool = False

    @property
    def live(self) -> bool:
        """Whether a process that reloads its file applies it at once."""
        return self.path.partition(ITEM)[0] in LIVE


def keys(
    section: type[Section] = Settings, prefix: str = "", *, variables: bool = True
) -> Iterator[Key]:
    """Yield every key in the order of the file, each section before its keys."""
    kinds = get_type_hints(section, include_extras=True)
    texts = texts_of(section)
    for found in msgspec.structs.fields(section):
        path, kind = prefix + found.encode_name, kinds[found.name]
        if _is_section(kind):
            yield Key(path, section, found.name, "section", about(kind), is_section=True)
            yield from keys(kind, path + ".", variables=variables)
            continue
        variable = Field(path, kind).variable if variables else None
        text = texts.get(found.name, "")
        yield Key(path, section, found.name, worded(kind), text, _default(found), variable)
        for part in filter(_is_section, _parts(kind)):
            # A list has one variable, for all of it.
            yield from keys(part, f"{path}{ITEM}.", variables=False)


def _parts(kind: object) -> Iterator[object]:
    """Yield the types of the items of a list, each by itself."""
    for item in get_args(kind):
        yield from get_args(item) or (item,)


def about(section: type[msgspec.Struct]) -> str:
    """Return the description of a section from its docstring, one line for each paragraph."""
    paragraphs = (inspect.getdoc(section) or "").split("\n\n")
    return "\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)


@cache
def texts_of(section: type[msgspec.Struct]) -> Mapping[str, str]:
    """Return the text below each field of a section, in one line, by the field's name."""
    (declared,) = ast.parse(textwrap.dedent(inspect.getsource(section))).body
    assert isinstance(declared, ast.ClassDef)  # noqa: S101 - what the source of a class is
    texts = {}
    for field, below in zip(declared.body, declared.body[1:], strict=False):
        match field, below:
            case (
                ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str(text))),
            ):
                texts[name] = " ".join(text.split())
    return texts


def worded(kind: object) -> str:
    """Describe the values of a type. Raises TypeError for a type without a description."""
    arguments = get_args(kind)
    match get_origin(kind):
        case None if words := _WORDS.get(kind, "mapping" if _is_section(kind) else ""):
            return words
        case origin if origin is Annotated:
            return _described(kind)
        case origin if origin is Literal:
            return " | ".join(f"`{choice}`" for choice in arguments)
        case origin if origin is tuple:
            return f"list (each: {worded(arguments[0])})"
        case origin if origin is Mapping:
            return f"mapping ({worded(arguments[0])}: {worded(arguments[1])})"
        case origin if origin is UnionType or str(origin) == "typing.Union":
            return ", or ".join(map(worded, arguments))
    msg = f"{kind}: there are no words for it"
    raise TypeError(msg)


def explained(name: str | None = None) -> str:
    """Return the text of a key, of the keys in it, or of all keys. Raises Misconfigured."""
    return "\n\n".join(map(_formatted, keys() if name is None else _found(name)))


def _found(name: str) -> list[Key]:
    # An item has a number in messages: `replicate.resources[0].group`.
    path = re.sub(r"\[[^\]]*\]", ITEM, name)
    found = [k for k in keys() if k.path == path or k.path.startswith((f"{path}.", f"{path}[]."))]
    if found:
        return found
    known = [key.path for key in keys()]
    near = difflib.get_close_matches(path, known, _NEAR)
    near += [one for one in known if one.rpartition(".")[2] == path.rpartition(".")[2]]
    near = list(dict.fromkeys(near))[:_NEAR]
    hint = f"similar keys: {', '.join(near)}" if near else "`kube-sync config --explain` lists all"
    msg = f"{name}: unknown key; {hint}"
    raise Misconfigured(msg)


def _formatted(key: Key) -> str:
    lines = [key.path if key.is_section else f"{key.path}: {key.words}"]
    for line in key.text.splitlines():
        lines += textwrap.wrap(line, 96, initial_indent="  ", subsequent_indent="  ")
    if key.is_section:
        return "\n".join(lines)
    lines.append("  required" if key.default is None else f"  default: {key.default}")
    if key.variable is not None:
        lines.append(f"  variable: {key.variable}")
    if key.live:
        lines.append("  live: replicate and run apply it without a restart")
    return "\n".join(lines)


def _is_section(kind: object) -> TypeGuard[type[Section]]:
    return isinstance(kind, type) and issubclass(kind, Section)


def _described(kind: object) -> str:
    for meta in get_args(kind)[1:]:
        if isinstance(meta, msgspec.Meta) and meta.description:
            return meta.description
    msg = f"{kind}: its Meta has no description"
    raise TypeError(msg)


def _default(field: msgspec.structs.FieldInfo) -> str | None:
    """Return a field's default as one line of YAML, which JSON is."""
    if field.default_factory is not msgspec.NODEFAULT:
        return _json(field.default_factory())
    return None if field.default is msgspec.NODEFAULT else _json(field.default)


def _json(value: object) -> str:
    plain = msgspec.to_builtins(value)
    if isinstance(value, tuple):  # of sections: keys that are not set are null
        plain = [_without_nulls(item) for item in plain]
    return msgspec.json.encode(plain).decode()


def _without_nulls(item: object) -> object:
    return {k: v for k, v in item.items() if v is not None} if isinstance(item, dict) else item
