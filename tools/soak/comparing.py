"""What OPA, the stream and the objects say, held against each other. Pure.

Objects change while they are read: what OPA holds has to be of the state that was listed or newer,
and the same where it is of the same state. An API server's resourceVersions are compared as
numbers (Kubernetes, KEP-5504).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tools.soak.wishes import OWNED

Key = tuple[str, str]  # namespace, name


@dataclass(frozen=True, slots=True)
class State:
    """One object: its resourceVersion, and all of it where that was read."""

    version: int
    whole: Any = None


@dataclass(frozen=True, slots=True)
class Difference:
    """What is wrong with one object in OPA."""

    key: Key
    what: str


def differences(
    listed: Mapping[Key, State], held: Mapping[Key, State], revision: int
) -> list[Difference]:
    """Return what OPA holds otherwise than a LIST at `revision` had it.

    Read OPA after the LIST. What is "missing" may have been deleted since: that is to be asked.
    """
    found = [
        Difference(key, what) for key in listed if (what := _wrong(listed[key], held.get(key)))
    ]
    ghosts = (key for key in held.keys() - listed.keys() if held[key].version <= revision)
    return found + [Difference(key, "deleted, and still held") for key in sorted(ghosts)]


def _wrong(listed: State, held: State | None) -> str | None:
    if held is None:
        return "missing"
    if held.version < listed.version:
        return f"held as of {held.version}, not {listed.version}"
    if held.version == listed.version and held.whole != listed.whole:
        return f"held otherwise than it is at {listed.version}"
    return None


def states(collection: Mapping[str, Mapping[str, Any]]) -> dict[Key, State]:
    """Return the objects that OPA holds of a collection, by namespace and name."""
    return {
        (where, name): State(int(found["metadata"]["resourceVersion"]), found)
        for where, inside in collection.items()
        for name, found in inside.items()
    }


def versions(collection: Mapping[str, Mapping[str, str]]) -> dict[Key, State]:
    """Return the same where only resourceVersions were asked for."""
    return {
        (where, name): State(int(version))
        for where, inside in collection.items()
        for name, version in inside.items()
    }


def listed_state(item: Any, kind: Mapping[str, str]) -> State:
    """Return an item of a LIST as OPA should hold it; `kind` is what items of lists leave out."""
    metadata = {k: v for k, v in item["metadata"].items() if k != "managedFields"}
    whole = {**kind, **item, "metadata": metadata}
    return State(int(metadata["resourceVersion"]), whole)


def decided_wrongly(
    fresh: Mapping[str, Any], told: Mapping[str, Any] | None, has: Mapping[str, str]
) -> str | None:
    """Return what is wrong with one object, None where all agree.

    `fresh` is what OPA says now, `told` what the stream told last, `has` the object's annotations;
    the first with the values of annotations as text, as a decision has them.
    """
    if told is None:
        return "the stream told no decision"
    for part, empty in (("annotations", {}), ("errors", [])):
        if (told.get(part) or empty) != (fresh.get(part) or empty):
            return f"the stream's {part} are not those of a fresh evaluation"
    if fresh.get("errors"):
        return None  # nothing is written then
    carried = {key: has[key] for key in OWNED if key in has}
    return None if carried == fresh.get("annotations", {}) else "not annotated as decided"
