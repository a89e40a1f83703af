"""The changes of an object's labels and annotations by a decision, with the rule behind each.

Invariant: the changes are those of the decision's patch; the rules only explain them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

QOS: Final = "quality of service"
_NOBODY: Final = "nobody says why"
_FIELDS: Final = (("annotations", "updatedAnnotations"), ("labels", "updatedLabels"))

Json = Mapping[str, Any]


class Decision(msgspec.Struct, frozen=True):
    """The document `data.kube_sync.metadata.pipeline`."""

    allowed: bool
    reasons: tuple[str, ...]
    patch: tuple[dict[str, Any], ...]
    policies: tuple[str, ...]


class Rule(msgspec.Struct, frozen=True):
    """A matching rule: the name of its policy, its index in it, and the rule."""

    policy: str
    index: int
    rule: dict[str, Any]

    @property
    def rejects(self) -> bool:
        """Return whether objects that match are rejected."""
        return self.rule.get("policyAction", {}).get("reject") is True

    def __str__(self) -> str:
        """Return its name, as in the reasons of decisions."""
        return f'metadata policy "{self.policy}", rule {self.index}'


@dataclass(frozen=True, slots=True)
class Setting:
    """A value that a rule sets for a key; of several the last one wins."""

    value: str
    by: str


@dataclass(frozen=True, slots=True)
class Change:
    """A label or an annotation that changes."""

    what: str  # label or annotation
    key: str
    before: Any  # None: there was none
    after: str
    by: str


@dataclass(frozen=True, slots=True)
class Disagreement:
    """A key for which rules set different values, in the order of the rules."""

    what: str
    key: str
    settings: tuple[Setting, ...]


def in_force(rules: Sequence[Rule], decision: Decision) -> list[Rule]:
    """Return the matching rules in force: if some reject, those."""
    # If no policy applies to an object, none is in `decision.policies`.
    applied = [rule for rule in rules if rule.policy in decision.policies]
    return applied if decision.allowed else [rule for rule in applied if rule.rejects]


def changes(
    before: Json, after: Json, rules: Sequence[Rule], qos: Mapping[str, str]
) -> list[Change]:
    """Return the changes of an object's metadata, sorted."""
    asked = _settings(rules, qos)
    return [
        Change(field[:-1], key, _map(before, field).get(key), value, _last(asked, (field, key)))
        for field, _ in _FIELDS
        for key, value in sorted(_map(after, field).items())
        if key not in (old := _map(before, field)) or old[key] != value
    ]


def disagreements(rules: Sequence[Rule], qos: Mapping[str, str]) -> list[Disagreement]:
    """Return the keys for which rules set different values, sorted."""
    return [
        Disagreement(field[:-1], key, tuple(settings))
        for (field, key), settings in sorted(_settings(rules, qos).items())
        if len({setting.value for setting in settings}) > 1
    ]


def _settings(
    rules: Sequence[Rule], qos: Mapping[str, str]
) -> dict[tuple[str, str], list[Setting]]:
    found: dict[tuple[str, str], list[Setting]] = {}
    for key, value in qos.items():  # applied before any policy
        found[_FIELDS[0][0], key] = [Setting(value, QOS)]
    for rule in rules:
        for field, key, value in _updates(rule):
            found.setdefault((field, key), []).append(Setting(value, str(rule)))
    return found


def _last(asked: Mapping[tuple[str, str], Sequence[Setting]], key: tuple[str, str]) -> str:
    settings = asked.get(key)
    return settings[-1].by if settings else _NOBODY


def _updates(rule: Rule) -> Iterator[tuple[str, str, str]]:
    action = rule.rule.get("policyAction") or {}
    for field, updates in _FIELDS:
        for key, value in (action.get(updates) or {}).items():
            yield field, key, value


def _map(whole: Json, field: str) -> Json:
    metadata = whole.get("metadata")
    found = metadata.get(field) if isinstance(metadata, dict) else None
    return found if isinstance(found, dict) else {}
