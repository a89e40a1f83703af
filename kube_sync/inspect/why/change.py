"""One change of one attribute of a cluster or of the object itself. Pure.

Invariant: a user could make the change to the stored object; applied to the object that it was
made for, it has an effect.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

import msgspec

from kube_sync.decisions.decision import compact
from kube_sync.kube.collection import Item
from kube_sync.opa.analysis.result import shown

Step = str | int  # a member of an object, or an index of an array
Spot = tuple[Step, ...]
MAPS: Final = (("metadata", "labels"), ("metadata", "annotations"))  # whose values are text


class Absent:
    """The value of a missing field."""

    def __repr__(self) -> str:
        return "(absent)"


ABSENT: Final = Absent()


@dataclass(frozen=True, slots=True)
class Change:
    """Another value at one spot of one of the two."""

    of: Literal["cluster", "object"]
    spot: Spot
    before: Any
    after: Any

    @property
    def path(self) -> str:
        """The spot as people write it."""
        return dotted(self.spot)

    def document(self) -> dict[str, Any]:
        """Format for programs; absent values are left out."""
        values = {"before": self.before, "after": self.after}
        there = {name: value for name, value in values.items() if value is not ABSENT}
        return {"of": self.of, "path": list(self.spot), **there}

    def __str__(self) -> str:
        return f"{self.path}: {text(self.before)} -> {text(self.after)}"


def dotted(spot: Spot) -> str:
    """Return a spot as people write it: `metadata.labels["a/b"]`, `spec.taints[0].key`."""
    found = ""
    for step in spot:
        found += f"[{step}]" if isinstance(step, int) else _member(step)
    return found.removeprefix(".")


def _member(step: str) -> str:
    name = shown((step,))
    return name if name.startswith("[") else f".{name}"


def text(value: object) -> str:
    """Return a value for people."""
    return "(absent)" if value is ABSENT else compact(value)


def at(body: Any, spot: Spot) -> Any:  # noqa: ANN401 - any JSON
    """Return what lies at a spot, ABSENT where nothing does."""
    for step in spot:
        match body, step:
            case dict(), str() if step in body:
                body = body[step]
            case list(), int() if step < len(body):
                body = body[step]
            case _:
                return ABSENT
    return body


def applied(change: Change, item: Item) -> Item | None:
    """Apply the change to an object, None if that is impossible."""
    whole = msgspec.json.decode(item.body)
    changed = _with(whole, change.spot, change.after)
    if changed is ABSENT or changed == whole:
        return None
    return Item(item.key, item.uid, item.version, msgspec.json.encode(changed))


def _with(body: Any, spot: Spot, value: Any) -> Any:  # noqa: ANN401 - any JSON
    """Return a copy with `value` at the spot; make missing objects on the way, no arrays."""
    step, *rest = spot
    match body, step:
        case dict(), str():
            inside = value if not rest else _with(body.get(step, {}), tuple(rest), value)
            others = {key: found for key, found in body.items() if key != step}
            if inside is ABSENT:
                return others if not rest else ABSENT
            return {**body, step: inside}
        case list(), int() if step < len(body):
            inside = value if not rest else _with(body[step], tuple(rest), value)
            if inside is ABSENT and rest:
                return ABSENT
            return [*body[:step], *([] if inside is ABSENT else [inside]), *body[step + 1 :]]
        case _:
            return ABSENT


def as_option(change: Change, name: str) -> str | None:
    """Format the change of a cluster as an option of `what-if`, None if it has no such form."""
    spot = change.spot
    if spot[:2] in MAPS and len(spot) == len(MAPS[0]) + 1:
        spelt = f"{name}.{spot[1]}.{spot[2]}"
    elif all(isinstance(step, str) and step and "." not in step for step in spot):
        spelt = ".".join([name, *map(str, spot)])
    else:
        return None
    if "=" in spelt:
        return None
    if change.after is ABSENT:
        return shlex.quote(f"{spelt}-")
    plain = spot[:2] in MAPS or (isinstance(change.after, str) and not _is_json(change.after))
    return shlex.quote(f"{spelt}={change.after if plain else compact(change.after)}")


def _is_json(value: str) -> bool:
    try:
        msgspec.json.decode(value)
    except msgspec.DecodeError:
        return False
    return True


def is_secret(body: Mapping[str, Any]) -> bool:
    """Return whether an object's values must not be shown."""
    return body.get("kind") == "Secret"
