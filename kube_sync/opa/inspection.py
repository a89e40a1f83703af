"""Inspects modules before they are compiled: which builtins and schemas they use, what is refused.

Compiling alone can reach outside: OPA fetches the schemas that METADATA refers to, from the network
and from files, and its capabilities stop only the first. Invariant: a module that may have such a
schema, or may refer to a builtin that is refused to some, is suspicious; OPA's parser, which
fetches nothing, then gives its syntax tree. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from itertools import islice
from typing import Any, Final, NamedTuple

import msgspec

from kube_sync.opa.builtins import REFUSED, is_allowed, refusal
from kube_sync.regoversion import V1

# A comment of METADATA contains `schemas` literally, or with escapes or a tag of YAML. OPA
# takes a comment for METADATA where it begins its line. Matched from the first `#` of a line on, so
# that a line of nothing else takes linear time.
_SCHEMAS: Final = re.compile(r"^[^\n#]*#[^\n]*(?:schemas|[\\!])", re.MULTILINE)
_METADATA: Final = re.compile(r"^(#[^\S\n]*)METADATA", re.MULTILINE)
_NESTING: Final = re.compile(r"[\[({+*/%&|-]|\belse\b")
_NESTED: Final = 200
_NO_SCHEMAS: Final = (
    "schemas in METADATA are not allowed: to compile them, OPA fetches the addresses and reads the"
    " files that they refer to"
)


FORBIDDEN: Final = "forbidden"  # the code of causes that this program adds, not the compiler
TOO_EXPENSIVE: Final = "too_expensive"  # likewise: a limit was exceeded
EXPENSIVE_SECONDS: Final = 600.0  # a module that is too expensive under load may not be so for ever


class Inspected(msgspec.Struct, frozen=True):
    """The result of the inspection of one module."""

    package: tuple[str, ...]
    names: Mapping[str, int] = {}  # restricted builtins that it refers to, by row
    schemas: int = 0  # the row of METADATA with schemas, 0 if it has none
    fault: str = ""  # why it cannot be inspected: then the rest is unknown
    until: float = 0.0  # it exceeded a limit: not inspected again before (monotonic clock)
    rego_version: int = V1


class Finding(NamedTuple):
    """The reason why a module is refused, and its row; row 0: no row in particular."""

    message: str
    row: int = 0
    code: str = FORBIDDEN


def is_suspicious(source: str) -> bool:
    """Return whether only a parser can exclude schemas and refused builtins."""
    if "METADATA" in source and _SCHEMAS.search(source):
        return True
    return any(_may_refer(source, *builtin) for builtin in _SPELT)


def may_nest_deeply(source: str) -> bool:
    """Return whether a syntax tree may be too deep for OPA to print, or for others to read.

    Each level needs a bracket, an operator or an `else`, and is two or three levels of JSON.
    """
    return next(islice(_NESTING.finditer(source), _NESTED, None), None) is not None


class _Parsed(msgspec.Struct):
    """The output of OPA's parser for a module."""

    package: Any
    annotations: list[Any] = []
    rules: list[msgspec.Raw] = []


def inspected(text: bytes) -> Inspected:
    """Inspect a module by its syntax tree with locations, as JSON. Raises one of NO_JSON.

    1 MiB of Rego is 64 MiB of that, and as objects ten times more: so it is read rule by rule, and
    only where a rule names a builtin that is refused to some.
    """
    tree = msgspec.json.decode(text, type=_Parsed)
    rows = [_row(found) for found in tree.annotations if found.get("schemas")]
    names: dict[str, int] = {}
    for rule in tree.rules:
        if _NAMED.search(rule) is None:
            continue
        for name, row in _references(msgspec.json.decode(rule)):
            names[name] = min(row, names.get(name, row))
    # The first part is the variable `data`.
    package = tuple(part["value"] for part in tree.package["path"][1:])
    return Inspected(package, names, min(rows, default=0))


def may_differ(found: Inspected | None, now: float) -> bool:
    """Return whether another inspection of the same source may give another result by now."""
    return found is not None and bool(found.fault) and now >= found.until


def objections(module: Inspected, given: Collection[str]) -> Iterator[Finding]:
    """Yield the reasons to refuse a module; it may use the builtins that are `given` to it."""
    if module.fault:
        yield Finding(module.fault, code=TOO_EXPENSIVE if module.until else FORBIDDEN)
    if module.schemas:
        yield Finding(_NO_SCHEMAS, module.schemas)
    for name, row in sorted(module.names.items()):
        if not is_allowed(name, given):
            yield Finding(refusal(name), row)


def forbidden(policy_id: str, finding: Finding) -> dict[str, Any]:
    """Return a finding in the form of OPA's causes: code, message, location of file and row."""
    location = {"file": policy_id} | ({"row": finding.row} if finding.row else {})
    return {"code": finding.code, "message": finding.message, "location": location}


def without_metadata(source: str) -> str:
    """Return a module whose comments are no METADATA; rows stay."""
    return _METADATA.sub(r"\1metadata", source)


def _spelt(name: str) -> tuple[re.Pattern[str], list[str]]:
    first, *rest = name.split(".")
    return re.compile(rf"\b{first}\b", re.ASCII), rest


_SPELT: Final = [_spelt(name) for name in REFUSED]
# A rule that refers to one has the first part of its name as a string in its syntax tree.
_NAMED: Final = re.compile(
    "|".join(sorted({f'"{name.partition(".")[0]}"' for name in REFUSED})).encode()
)


def _may_refer(source: str, first: re.Pattern[str], rest: list[str]) -> bool:
    # A name begins with a variable, which has no escapes; the rest may be a string that has.
    spelt = "\\" in source or all(part in source for part in rest)
    return spelt and first.search(source) is not None


def _references(rule: Any) -> Iterator[tuple[str, int]]:  # noqa: ANN401 - any JSON
    """Yield the restricted builtins that a rule calls or passes on."""
    left = [rule]
    while left:
        node = left.pop()
        if isinstance(node, list):
            left.extend(node)
        elif isinstance(node, dict):
            # Annotations may contain anything.
            left.extend(value for key, value in node.items() if key != "annotations")
            if (name := _name(node)) in REFUSED:
                yield name, _row(node)


def _name(node: Mapping[str, Any]) -> str:
    if "target" in node and node["value"]["type"] == "var":
        return str(node["value"]["value"])  # `with f as print`: a name of one part is a variable
    if node.get("type") != "ref":
        return ""
    return ".".join(str(part["value"]) for part in node["value"])


def _row(node: Mapping[str, Any]) -> int:
    return int((node.get("location") or {}).get("row", 0))
