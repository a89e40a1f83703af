"""Feedback paths for the entries of a copy's `status.ancestors`, and the parsing of their values.

A PolicyStatus (Gateway API) has one entry for each ancestor, usually a Gateway, and controller. The
work agent of Open Cluster Management reports the first match of a path, or with its feature gate
RawFeedbackJsonString a JSON list of all of them. So the entries are read by several filters: those
of `kube-sync.io/topology`, those of all other controllers, and, where a copy refers to several
targets, those of each Gateway; and by each filter also the first condition that is False, whatever
its type. Of several targets messages are read by the names of Gateways alone: those of all entries
would not fit into the 1,024 bytes that an agent reports of a list.

Invariant: an entry may be read more than once, which changes nothing, since the worst counts. An
unreadable entry hides no other.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from kube_sync.policysync.copies import FeedbackField, Report
from kube_sync.policysync.feedback_fields import CONDITIONS, NAMES, PARTS, field_name
from kube_sync.policysync.naming import is_subdomain
from kube_sync.topology.raw_json import UNREADABLE, items, mapping, text

_TOPOLOGY: Final = "kube-sync.io/topology"
_GATEWAY: Final = ("gateway.networking.k8s.io", "Gateway")
_MESSAGE: Final = "message"
_FALSE: Final = ("type", *PARTS[1:])  # of the first condition that is False
_BY: Final = ("name", "namespace", "sectionName")  # fields of an ancestorRef
_MOST: Final = 16  # entries of a PolicyStatus, and so Gateways that can have one
_NAMES: Final = frozenset(
    [field_name(condition, part) for condition in CONDITIONS for part in PARTS]
    + [field_name("False", part) for part in _FALSE]
)
Columns = Mapping[str, Sequence[object]]
_RESERVED: Final = re.compile(rf"(?:a|otherA|(?:{'|'.join(_BY)})[0-9]+A)ncestor([A-Z].*)")


class _Filter(NamedTuple):
    """A filter of entries, and the prefix of its field names."""

    prefix: str
    where: str
    messages: bool
    gateway: str = ""

    def field_name(self, condition: str, part: str) -> str:
        name = field_name(condition, part)
        return f"{self.prefix}{name[0].upper()}{name[1:]}"

    def fields(self, condition: str, parts: Iterable[str], path: str) -> Iterator[FeedbackField]:
        for part in parts:
            if part != _MESSAGE or self.messages:
                yield FeedbackField(self.field_name(condition, part), f"{path}.{part}")

    @property
    def entries(self) -> str:
        return f".status.ancestors[?(@.{self.where})]"


def is_reserved(name: str) -> bool:
    """Return whether a field of this name reads entries of ancestors."""
    match = _RESERVED.fullmatch(name)
    return match is not None and match[1][0].lower() + match[1][1:] in _NAMES


def is_taken(name: str) -> bool:
    """Return whether a field name is in use for every copy, for its ancestors or itself."""
    return name in NAMES or is_reserved(name)


def ancestor_fields(copy: Mapping[str, Any]) -> tuple[FeedbackField, ...]:
    """Return the feedback fields for the entries of a copy's ancestors. Raises Malformed."""
    return tuple(one for each in _filters(copy) for one in _fields(each))


def _fields(by: _Filter) -> Iterator[FeedbackField]:
    for condition in CONDITIONS:
        found = f'{by.entries}.conditions[?(@.type=="{condition}")]'
        yield from by.fields(condition, PARTS, found)
    yield from by.fields("False", _FALSE, f'{by.entries}.conditions[?(@.status=="False")]')


def _filters(copy: Mapping[str, Any]) -> Iterator[_Filter]:
    refs = list(_refs(copy))
    alone = len(refs) == 1
    yield _Filter("ancestor", f'controllerName=="{_TOPOLOGY}"', messages=alone)
    yield _Filter("otherAncestor", f'controllerName!="{_TOPOLOGY}"', messages=alone)
    for field in () if alone else _BY:
        values = sorted({text(ref, field) for ref in refs})
        for index, value in enumerate([one for one in values if is_subdomain(one)][:_MOST]):
            gateway = value if field == "name" else ""
            where = f'ancestorRef.{field}=="{value}"'
            yield _Filter(f"{field}{index}Ancestor", where, messages=True, gateway=gateway)


def _refs(copy: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield from items(copy, "spec", "targetRefs")
    if ref := mapping(copy, "spec", "targetRef"):
        yield ref


def reported(copy: Mapping[str, Any], columns: Columns) -> tuple[Report, ...]:
    """Return the reports that an agent has read from a copy's entries, each once.

    `columns`: by the name of a field all its matches that the agent has reported.
    """
    try:
        found = [one for by in _filters(copy) for one in _reports(by, columns)]
    except UNREADABLE:  # somebody has edited the work, which is put right
        return ()
    return tuple(dict.fromkeys(found))


def _reports(by: _Filter, columns: Columns) -> Iterator[Report]:
    for condition in CONDITIONS:
        for row in _rows([by.field_name(condition, part) for part in PARTS], columns):
            yield _report(by.gateway, condition, *row)
    for kind, *rest in _rows([by.field_name("False", part) for part in _FALSE], columns):
        if kind in CONDITIONS:
            yield _report(by.gateway, str(kind), "False", *rest)


def _rows(names: Sequence[str], columns: Columns) -> Iterator[tuple[object, ...]]:
    """Yield the parts of each match; a part that some matches lack is its lowest number in all."""
    found = [columns.get(name, ()) for name in names]
    size = len(found[0])
    yield from zip(
        *(one if len(one) == size else (_lowest(one),) * size for one in found), strict=True
    )


def _lowest(values: Iterable[object]) -> int | None:
    return min((one for one in values if type(one) is int), default=None)


def reports_in(body: Mapping[str, Any]) -> tuple[Report, ...]:
    """Return the reports of all entries of an object's ancestors, none for an unreadable one."""
    entries = _readable(body, "status", "ancestors")
    return tuple(dict.fromkeys(one for entry in entries for one in _entry(entry)))


def _entry(entry: Mapping[str, Any]) -> Iterator[Report]:
    try:
        ref = mapping(entry, "ancestorRef")
        kind = text(ref, "group", default=_GATEWAY[0]), text(ref, "kind", default=_GATEWAY[1])
        gateway = text(ref, "name") if kind == _GATEWAY else ""
    except UNREADABLE:
        gateway = ""
    for one in _readable(entry, "conditions"):
        if (condition := one.get("type")) in CONDITIONS:
            yield _report(gateway, condition, *(one.get(part) for part in PARTS))


def _readable(body: Mapping[str, Any], *path: str) -> Iterable[Mapping[str, Any]]:
    try:
        return [one for one in mapping(body, *path[:-1]).get(path[-1]) or () if _is_mapping(one)]
    except UNREADABLE:
        return []


def _is_mapping(one: object) -> bool:
    return isinstance(one, Mapping)


def _report(gateway: str, condition: str, *parts: object) -> Report:
    *texts, observed = parts
    status, reason, message = (one if isinstance(one, str) else "" for one in texts)
    generation = observed if type(observed) is int else None
    return Report(gateway, condition, status, reason, message, generation)
