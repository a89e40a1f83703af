"""Merges our entries into status lists shared with others: conditions, `ancestors`, `parents`.

Invariant, as the Gateway API requires of writers (PolicyAncestorStatus.conditions): conditions of
others stay, in their places; a type occurs once; a condition with a newer observedGeneration than
known here is kept. lastTransitionTime is kept while the status is the same (meta/v1 Condition), so
the result equals the input if nothing differs.

A list of entries is a map by reference and controller name (PolicyStatus, RouteStatus of the
Gateway API), though it is atomic for the API server: entries of others are kept, in their places,
even invalid ones. The limit is never exceeded; which of ours are left out depends on names alone,
and the others report it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import msgspec

from kube_sync.kube.conditions import OBSERVED_GENERATION, Condition, Json, dated_after
from kube_sync.topology.gateway import GATEWAY
from kube_sync.topology.raw_json import items, number

_TRUNCATED: Final = "kube-sync.io/Truncated"
_NAMED = 10  # in a message
_CONDITIONS = 8  # of an entry: maxItems
_Key = bytes


@dataclass(frozen=True, slots=True)
class StatusContext:
    """The object that conditions are of, our controller name, and the time."""

    generation: int | None  # None: the object has none
    now: str  # as in RFC 3339
    controller: str  # name, in entries


def merge_conditions(
    found: Iterable[Json],
    wanted: Iterable[Condition],
    context: StatusContext,
    is_ours: Callable[[object], bool],
) -> list[Json]:
    """Return the conditions with ours merged; `is_ours` returns by the type whether we own one.

    Raises Malformed for an invalid generation.
    """
    left = {one.type: one for one in wanted if is_ours(one.type)}
    result: list[Json] = []
    for old in found:
        kind = old.get("type")
        if not is_ours(kind):
            result.append(old)
            continue
        new = left.pop(str(kind), None)
        if is_newer(old, context):
            result.append(old)
        elif new is not None:
            result.append(dated_after(new, old, context.generation, context.now))
    return result + [
        dated_after(left[kind], {}, context.generation, context.now) for kind in sorted(left)
    ]


def is_newer(found: Json, context: StatusContext) -> bool:
    """Return whether a condition observed a newer generation than known here. Raises Malformed."""
    observed = number(found, OBSERVED_GENERATION)
    return observed is not None and context.generation is not None and observed > context.generation


@dataclass(frozen=True, slots=True)
class StatusList:
    """One such list: its field, the field of references in it, and its maxItems."""

    field: str
    reference: str
    most: int


ANCESTORS = StatusList("ancestors", "ancestorRef", 16)
PARENTS = StatusList("parents", "parentRef", 32)


class Entry(NamedTuple):
    """Our conditions for one ancestor or parent."""

    reference: Json
    conditions: tuple[Condition, ...]


class MergedEntries(NamedTuple):
    """The merged list, and how many of our entries do not fit."""

    entries: list[Any]
    left_out: int


def merge_entries(
    listed: StatusList,
    found: Sequence[Any],
    wanted: Iterable[Entry],
    context: StatusContext,
    is_ours: Callable[[object], bool],
) -> MergedEntries:
    """Merge our entries with those of others. Raises Malformed for an invalid one of ours.

    `is_ours` returns by the type which conditions of our entries are rewritten.
    """
    left = {_key(entry.reference): entry for entry in wanted}
    others = sum(1 for old in found if not _may_change(listed, old, left, context))
    fitting = sorted(left)[: max(0, listed.most - others)]
    fitting_entries = _with_truncation(
        {key: left[key] for key in fitting}, [left[k] for k in sorted(left)]
    )
    result = []
    for old in found:
        if not _may_change(listed, old, left, context):
            result.append(old)
        elif (new := fitting_entries.pop(_key(old.get(listed.reference)), None)) is not None:
            result.append(_entry(listed, new, items(old, "conditions"), context, is_ours))
    result += [
        _entry(listed, new, (), context, is_ours) for _, new in sorted(fitting_entries.items())
    ]
    return MergedEntries(result, len(left) - len(fitting))


def join_entries(entries: Iterable[Entry]) -> list[Entry]:
    """Return one entry for each reference, with all its conditions."""
    found: dict[_Key, Entry] = {}
    for entry in entries:
        key = _key(entry.reference)
        known = found.get(key)
        more = (*known.conditions, *entry.conditions) if known is not None else entry.conditions
        found[key] = entry._replace(conditions=more)
    return list(found.values())


def object_name(reference: Json) -> str:
    """Return the object of a reference, for people."""
    parts = [str(reference[name]) for name in ("namespace", "name") if reference.get(name)]
    section = reference.get("sectionName")
    return "/".join(parts) + (f"#{section}" if section else "")


def _may_change(
    listed: StatusList,
    old: Any,  # noqa: ANN401 - whatever is in the list
    wanted: Mapping[_Key, Entry],
    context: StatusContext,
) -> bool:
    """Return whether we may change an entry: one of a newer generation only if it stays."""
    if not isinstance(old, Mapping) or old.get("controllerName") != context.controller:
        return False
    if _key(old.get(listed.reference)) in wanted:
        return True
    return not any(is_newer(condition, context) for condition in items(old, "conditions"))


def _entry(
    listed: StatusList,
    new: Entry,
    found: Iterable[Json],
    context: StatusContext,
    is_ours: Callable[[object], bool],
) -> Json:
    conditions = merge_conditions(found, new.conditions, context, is_ours)
    return {
        listed.reference: dict(new.reference),
        "controllerName": context.controller,
        "conditions": conditions[:_CONDITIONS],
    }


def _with_truncation(fitting: Mapping[_Key, Entry], entries: Sequence[Entry]) -> dict[_Key, Entry]:
    """Add a condition about the entries left out to those that fit."""
    missing = entries[len(fitting) :]
    if not missing:
        return dict(fitting)
    names = [object_name(entry.reference) for entry in missing[:_NAMED]]
    more = f" and {len(missing) - _NAMED} more" if len(missing) > _NAMED else ""
    message = (
        f"{len(missing)} of {len(entries)} are left out since no more fit: "
        f"[{', '.join(names)}]{more}"
    )
    note = Condition(_TRUNCATED, "True", "TooMany", message)
    return {
        key: entry._replace(conditions=(*entry.conditions, note)) for key, entry in fitting.items()
    }


def _key(reference: object) -> _Key:
    """Return a reference as a key, with the API server's defaults."""
    if isinstance(reference, Mapping):
        reference = {"group": GATEWAY.group, "kind": GATEWAY.kind} | dict(reference)
    return msgspec.json.encode(reference, order="deterministic")
