"""The rules of a policy: entries of its maps of named rules, and every field outside of these.

Invariant: nothing in a policy's spec is dropped, and two different fields never have one name. An
entry of the only map of a kind has its own name (`peruser`), one of several maps that of map and
entry (`rules.authentication#oidc`), a field outside of the maps its path with a dot in front
(`.when`). Without maps each field of a kind is a rule, with its own name.

Rules of one name in two policies are the same rule, such as one counter of a limit, if users say so
for a kind or for one policy, which takes precedence; else if they come from the same policies.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from functools import lru_cache
from typing import Any, Final

from kube_sync.topology.nodes import Body, Locator, Node
from kube_sync.topology.raw_json import mapping, text

_Place = tuple[str, ...]  # names of fields, from the outermost one


class RuleMaps:
    """The paths of a kind's maps of named rules, as `rules.authentication`."""

    def __init__(self, paths: Sequence[str]) -> None:
        self._maps = {tuple(path.split(".")) for path in paths}
        self._prefixes = {place[:depth] for place in self._maps for depth in range(1, len(place))}
        self._only = next(iter(self._maps)) if len(self._maps) == 1 else None
        self.fields = frozenset(place[0] for place in self._maps)  # fields that contain maps

    def read(self, block: Body, path: str) -> dict[str, Any]:
        """Return the rules of a block by name; `path` is its path. Raises Malformed."""
        return dict(self._read(block, path, ())) if self._maps else dict(block)

    def spec(self, rules: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return rules in the shape of a block."""
        if not self._maps:
            return rules
        found: dict[str, Any] = {}
        if self._only is not None:
            _within(found, self._only)
        for name, value in rules.items():
            *around, last = self._place(name)
            _within(found, around)[last] = value
        return found

    def _read(self, block: Body, path: str, inside: _Place) -> Iterator[tuple[str, Any]]:
        for field, value in block.items():
            place, where = (*inside, field), f"{path}.{field}"
            if place in self._maps:
                for entry, rule in mapping({where: value}, where).items():
                    yield self._entry(place, entry), rule
            elif place in self._prefixes:
                yield from self._read(mapping({where: value}, where), where, place)
            else:
                yield "".join(f".{_quoted(name)}" for name in place), value

    def _entry(self, place: _Place, entry: str) -> str:
        if place == self._only and "#" not in entry and not entry.startswith("."):
            return entry
        return f"{'.'.join(place)}#{entry}"

    def _place(self, name: str) -> _Place:
        if name.startswith("."):
            return self._field(name[1:])
        place, mark, entry = name.partition("#")
        if mark:
            return (*place.split("."), entry)
        return (*(self._only or ()), name)

    def _field(self, path: str) -> _Place:
        place: _Place = ()
        while True:
            field, dot, rest = path.partition(".")
            if not dot or (*place, field) not in self._prefixes:
                return (*place, json.loads(path) if path.startswith('"') else path)
            place, path = (*place, field), rest


@lru_cache(maxsize=256)
def rule_maps(paths: tuple[str, ...]) -> RuleMaps:
    """Return the maps at these paths."""
    return RuleMaps(paths)


def _quoted(name: str) -> str:
    """Return a field's name as a part of a path, in quotes if it would be ambiguous."""
    return json.dumps(name) if "." in name or name.startswith('"') else name


def _within(body: dict[str, Any], place: Sequence[str]) -> dict[str, Any]:
    for field in place:
        body = body.setdefault(field, {})
    return body


IDENTITY: Final = "kube-sync.io/rule-identity"  # annotation of kinds and policies


class Identity(StrEnum):
    """The scope within which rules of one name and one kind of policies are the same rule."""

    POLICY = "policy"
    TARGET = "target"  # the object that is targeted, whichever section of it
    NAMESPACE = "namespace"  # of the policy
    NAME = "name"  # everywhere


IDENTITIES: Final = {str(identity): identity for identity in Identity}


def identity_of(body: Body) -> tuple[Identity | None, str]:
    """Return the identity in a policy's annotation, and what is wrong with it. Raises Malformed."""
    value = text(body, "metadata", "annotations", IDENTITY)
    if not value or value.lower() in IDENTITIES:
        return IDENTITIES.get(value.lower()), ""
    known = ", ".join(IDENTITIES)
    return None, f'annotation {IDENTITY}: "{value}" is none of {known}, so it counts as not there'


def scope(identity: Identity, policy: Node, targets: Iterable[Locator]) -> str:
    """Return the key that rules share if they are the same rule."""
    match identity:
        case Identity.NAME:
            return "by name"
        case Identity.NAMESPACE:
            return f"in namespace {policy.namespace}"
        case Identity.TARGET:
            objects = {target.partition("#")[0] for target in targets}
            return " ".join(["at", *sorted(objects)])
        case Identity.POLICY:
            return policy.locator
