"""Inserts probes into modules: notes of how far each rule body came, and for which cluster. Pure.

A probe comes before the first expression of a body and after each. It always holds, so that the
decision does not change, and notes the number of the point, the cluster that a
variable stands for there, and the values that the next expression reads.
OPA does not enter a rule whose index excludes it, so each body of the decision's own rules
is repeated at the end of its module, in a comprehension, which is always entered.
Invariant: the text is changed only at places where it is what the syntax tree says.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from kube_sync.inspect.why.syntax import Body, aliases, bodies, package_of, rule_names
from kube_sync.inspect.why.terms import Text
from kube_sync.opa.paths import reference

MODULE: Final = "kube_sync/inspect/why/probe"  # its id
FLEET: Final = ("kube_sync", "probed")  # the path of the clusters' names in OPA's data
PROBED_DECISION: Final = "kube_sync/probe/asked"
BUILTINS: Final = ("trace",)  # that only modules with probes may call
_OPENS: Final = b"{ "
_SOURCE: Final = """package kube_sync.probe

# A set is there even where nothing is decided: of what is not OPA tells no notes.
asked contains decision if decision := DECISION

note(point, variables, saw) := base64.encode(json.marshal({
	"point": point,
	"clusters": [found | some value in variables; found := _stands_for(value); count(found) > 0],
	"saw": [_shown(values) | some values in saw],
}))

_stands_for(value) := data.kube_sync.probed.names[value] if is_string(value)

_stands_for(value) := [id] if {
	id := data.kube_sync.probed.uids[value.metadata.uid]
	data.kube_sync.probed.names[value.metadata.name]
} else := [id] if {
	not value.metadata.uid
	place := sprintf("%s/%s", [object.get(value.metadata, "namespace", ""), value.metadata.name])
	id := trim_prefix(place, "/")
	id in data.kube_sync.probed.names[value.metadata.name]
}

_shown(values) := null if count(values) == 0

_shown(values) := _cut(json.marshal(values[0])) if count(values) > 0

_cut(text) := text if count(text) <= 200

_cut(text) := concat("", [substring(text, 0, 199), "…"]) if count(text) > 200
"""

Visible = tuple[str, ...]  # prefixes of terms
EVERYTHING: Final[Visible] = ("",)

_ELSE: Final = re.compile(r"else\b")


def module(path: str) -> str:
    """Return the module that evaluates the decision at `path`, with notes."""
    return _SOURCE.replace("DECISION", reference(path.split("/")))


@dataclass(frozen=True, slots=True)
class ProbedBody:
    """A body with probes: the number of its first point, one for each expression and one more."""

    file: str  # the module's id
    body: Body
    first: int


@dataclass(frozen=True, slots=True)
class Probed:
    """Modules with probes, and the bodies that they watch."""

    modules: Mapping[str, str]
    watched: Sequence[ProbedBody]
    visible: Visible


def insert_probes(
    modules: Mapping[str, str], trees: Mapping[str, Any], path: str, visible: Visible
) -> Probed:
    """Insert probes into the modules with a syntax tree; `path` is the decision's.

    Only values of terms with a `visible` prefix are noted.
    """
    names = _names(trees)
    found, watched, points = dict(modules), list[ProbedBody](), 0
    for policy_id, tree in sorted(trees.items()):
        package = package_of(tree)
        text = _ProbedText(modules[policy_id].encode())
        for body in bodies(tree, names[package] | aliases(tree)):
            if text.insert(body, points, visible, repeat="/".join(package) == path):
                watched.append(ProbedBody(policy_id, body, points))
                points += len(body.expressions) + 1
        found[policy_id] = text.text().decode()
    return Probed(found, watched, visible)


class _ProbedText:
    """A module's text, and the pieces to insert."""

    def __init__(self, source: bytes) -> None:
        self._source = source
        self._probes: list[tuple[int, bytes]] = []
        self._braces: list[tuple[int, bytes]] = []
        # A point, and the begin and end of its body.
        self._repeated: list[tuple[int, int, int]] = []

    def insert(self, body: Body, first: int, visible: Visible, *, repeat: bool) -> bool:
        """Insert probes into a body; return whether its text is what the tree says."""
        places = [_span(self._source, expression.place) for expression in body.expressions]
        spans = [place for place in places if place is not None]
        if len(spans) < len(places):
            return False
        begin, end = spans[0][0], spans[-1][1]
        notes = [_note(body, first, n, visible) for n in range(len(spans) + 1)]
        self._probes.append((begin, notes[0] + b"; "))
        for (_, behind), note in zip(spans, notes[1:], strict=True):
            self._probes.append((behind, b"; " + note))
        # A body of one expression may come without braces.
        if self._source[:begin].rstrip().endswith(b"if"):
            self._braces += [(begin, _OPENS), (end, b" }")]
        if repeat and body.alone:
            self._repeated.append((first, begin, end))
        return True

    def text(self) -> bytes:
        """Return the text with all insertions."""
        begins = [piece for piece in self._braces if piece[1] is _OPENS]
        ends = [piece for piece in self._braces if piece[1] is not _OPENS]
        text = _insert(self._source, 0, len(self._source), [*begins, *self._probes, *ends])
        repeated = [
            b"\nkube_sync_again_%d := [1 | %b\n]\n"
            % (first, _insert(self._source, begin, end, self._probes))
            for first, begin, end in self._repeated
        ]
        return b"".join([text, *repeated])


def _insert(source: bytes, begin: int, end: int, pieces: Sequence[tuple[int, bytes]]) -> bytes:
    """Return a part of a text with pieces inserted, each before its place."""
    parts, done = list[bytes](), begin
    for offset, piece in sorted(pieces, key=lambda one: one[0]):
        if begin <= offset <= end:
            parts += [source[done:offset], piece]
            done = offset
    return b"".join([*parts, source[done:end]])


def _names(trees: Mapping[str, Any]) -> dict[tuple[str, ...], frozenset[str]]:
    found: dict[tuple[str, ...], frozenset[str]] = {}
    for tree in trees.values():
        package = package_of(tree)
        found[package] = found.get(package, frozenset()) | rule_names(tree)
    return found


def _note(body: Body, first: int, number: int, visible: Visible) -> bytes:
    bound = body.bound
    terms: tuple[str, ...] = ()
    if number < len(body.expressions):
        bound = body.expressions[number].bound
        terms = noted_terms(body, number, visible)
    saw = ", ".join(f"[kube_sync_it | kube_sync_it := {term}]" for term in terms)
    point = first + number
    return f"trace(data.kube_sync.probe.note({point}, [{', '.join(bound)}], [{saw}]))".encode()


def noted_terms(body: Body, number: int, visible: Visible) -> tuple[str, ...]:
    """Return the terms of an expression whose values are noted."""
    return tuple(t for t in body.expressions[number].terms if t.startswith(visible))


def _span(source: bytes, place: Text) -> tuple[int, int] | None:
    """Return the begin and end of a text, in bytes, None if another text is there."""
    text = place.text.encode()
    if _ELSE.match(place.text):
        return None  # OPA takes the word for a part of the expression
    rows = source.split(b"\n")
    if not 0 < place.row <= len(rows):
        return None
    before = sum(len(row) + 1 for row in rows[: place.row - 1])
    row = rows[place.row - 1]
    decoded_column = len(row.decode("utf-8", "replace")[: place.column - 1].encode())
    for column in dict.fromkeys((place.column - 1, decoded_column)):
        if source.startswith(text, before + column):
            return before + column, before + column + len(text)
    return None


class Note(msgspec.Struct, frozen=True):
    """A point that was reached: by which clusters, and the values that the next expression read."""

    point: int
    clusters: list[list[str]] = []
    saw: list[str | None] = []
