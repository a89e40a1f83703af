"""Merges a default object into the stored one, as Kubernetes reconciles its default roles.

As k8s.io/component-helpers does (auth/rbac/reconciliation): what is missing is added, what somebody
added is kept, and an object with `rbac.authorization.kubernetes.io/autoupdate: "false"` is left
alone. A policy is merged likewise: it then allows at least what the default allows, since pods may
depend on that.

Pure: objects in, objects out; nothing that is passed in is changed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

AUTOUPDATE: Final = "rbac.authorization.kubernetes.io/autoupdate"
_RBAC: Final = "rbac.authorization.k8s.io"
_ALL: Final = "*"
# The other spelling of a field: a policy may not have both.
_ALIASES: Final = MappingProxyType(
    {"schedulerNames": "SchedulerNames", "priorityClasseNames": "priorityClassNames"}
)

Json = Mapping[str, Any]


def is_protected(found: Json) -> bool:
    """Return whether an object is annotated to be left alone."""
    annotations: Json = found["metadata"].get("annotations") or {}
    return annotations.get(AUTOUPDATE) == "false"


def is_bound_elsewhere(found: Json, wanted: Json) -> bool:
    """Return whether a binding has another role, which is immutable: recreate it."""
    return bool(found.get("roleRef") != wanted.get("roleRef"))


def brought_up(found: Json, wanted: Json) -> Json:
    """Return `found` with what it lacks of `wanted`; equal to `found` if it lacks nothing."""
    new = {**found, "metadata": _metadata(found["metadata"], wanted["metadata"])}
    if "rules" in wanted:
        held = found.get("rules") or []
        missing = [rule for rule in wanted["rules"] if not _covered(rule, held)]
        new |= {"rules": [*held, *missing]} if missing else {}
    if "subjects" in wanted:
        present = found.get("subjects") or []
        known = {_subject(one) for one in present}
        absent = [one for one in wanted["subjects"] if _subject(one) not in known]
        new |= {"subjects": [*present, *absent]} if absent else {}
    if "spec" in wanted:
        new |= {"spec": _policy(found.get("spec") or {}, wanted["spec"])}
    return new


def _metadata(found: Json, wanted: Json) -> Json:
    """Add labels and annotations; an existing value wins, as for Kubernetes' own."""
    new = dict(found)
    for name in ("labels", "annotations"):
        if merged := {**wanted.get(name, {}), **(found.get(name) or {})}:
            new[name] = merged
    return new


def _covered(rule: Json, held: Sequence[Json]) -> bool:
    return all(any(_grants(one, atom) for one in held) for atom in _atoms(rule))


_Atom = tuple[str, str, str, str]  # API group, resource, verb, name of the object


def _atoms(rule: Json) -> Iterator[_Atom]:
    for group in rule["apiGroups"]:
        for resource in rule["resources"]:
            for verb in rule["verbs"]:
                yield from ((group, resource, verb, name) for name in rule["resourceNames"])


def _grants(rule: Json, atom: _Atom) -> bool:
    group, resource, verb, name = atom
    names = rule.get("resourceNames") or (name,)  # none: all objects
    return (
        _has(rule.get("apiGroups"), group)
        and _has(rule.get("resources"), resource)
        and _has(rule.get("verbs"), verb)
        and name in names
    )


def _has(listed: Sequence[str] | None, value: str) -> bool:
    return bool({value, _ALL} & set(listed or ()))


def _subject(subject: Json) -> tuple[str, ...]:
    kind = subject["kind"]
    group = subject.get("apiGroup") or ("" if kind == "ServiceAccount" else _RBAC)
    return kind, group, subject.get("namespace", ""), subject["name"]


def _policy(found: Json, wanted: Json) -> Json:
    """Return a spec with every field of `wanted` allowing at least as much."""
    new = dict(found)
    if (
        old := new.pop("allowedAffinities", None)
    ) is not None:  # may not be there in both spellings
        new["allowed"] = {"affinities": old, **(new.get("allowed") or {})}
        found = new
    for section, fields in wanted.items():
        held: Json = found.get(section) or {}
        spelt = {_ALIASES[n] if _ALIASES.get(n) in held else n: f for n, f in fields.items()}
        new[section] = {**held, **{n: _at_least(held.get(n), f) for n, f in spelt.items()}}
    return new


def _at_least(found: Any, wanted: Any) -> Any:  # noqa: ANN401 - any JSON
    """Return what allows all of both: an empty list or object allows everything."""
    if not isinstance(found, type(wanted)) or not wanted:
        return wanted
    if not found or isinstance(wanted, dict):
        return found and {**found, **{n: _at_least(found.get(n), w) for n, w in wanted.items()}}
    return [*found, *(one for one in wanted if one not in found)]
