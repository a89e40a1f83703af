"""The spots where an object may be changed: fields that a policy reads and a user may set. Pure.

Invariant: identity, fields of the API server and annotations that the decision writes
are no such spots, and no value of a Secret is.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from kube_sync.decisions.decision import REQUESTED
from kube_sync.guard import ADDITION, HISTORY
from kube_sync.inspect.why.change import Spot, is_secret
from kube_sync.opa.analysis.paths import EACH, Path

_DEEP: Final = 6  # depth below which a value that is read whole is one spot
_MOST: Final = 200  # spots of one object
_OPEN: Final = frozenset({"labels", "annotations"})  # of all metadata
_KEPT: Final = frozenset({"apiVersion", "kind"})
_OURS: Final = frozenset(
    {REQUESTED, HISTORY, ADDITION, "kubectl.kubernetes.io/last-applied-configuration"}
)
_SECRET: Final = frozenset({"data", "stringData"})


def spots(
    path: Path, body: Mapping[str, Any], others: Sequence[Mapping[str, Any]]
) -> Iterator[Spot]:
    """Yield the spots of `body` at a path, by its own members or those of similar objects."""
    seen: set[Spot] = set()
    for number, document in enumerate((body, *others)):
        for spot in _leaves(document, path, (), own=number == 0):
            if spot not in seen:
                seen.add(spot)
                yield spot
            if len(seen) >= _MOST:
                return
    if EACH not in path and not any(spot[: len(path)] == path for spot in seen):
        yield tuple(step for step in path if step is not None)


def may_change(spot: Spot, body: Mapping[str, Any], decided: Collection[str]) -> bool:
    """Return whether a user may set a spot; `decided` are annotations that the policy writes."""
    match spot:
        case () | ("metadata",) | ("metadata", _):
            return False
        case ("metadata", str(below), *_) if below not in _OPEN:
            return False
        case ("metadata", "annotations", str(key), *_) if key in _OURS or key in decided:
            return False
    return spot[0] not in _KEPT and not (is_secret(body) and spot[0] in _SECRET)


def _leaves(value: Any, path: Path, so_far: Spot, *, own: bool) -> Iterator[Spot]:  # noqa: ANN401 - any JSON
    """Yield the spots at a path; arrays of objects that are not our `own` are one spot."""
    if not path:
        yield from _ends(value, so_far, own=own)
        return
    key, rest = path[0], path[1:]
    match value:
        case dict():
            for name in value if key is EACH else [key] if key in value else []:
                yield from _leaves(value[name], rest, (*so_far, name), own=own)
        case list() if key is EACH:
            yield so_far
            for number, element in enumerate(value if own else ()):
                yield from _leaves(element, rest, (*so_far, number), own=own)


def _ends(value: Any, spot: Spot, *, own: bool) -> Iterator[Spot]:  # noqa: ANN401 - any JSON
    members: Iterable[tuple[Any, Any]] = ()
    if isinstance(value, dict) and value and len(spot) < _DEEP:
        members = value.items()
    elif isinstance(value, list) and own and len(spot) < _DEEP:
        yield spot
        members = enumerate(value)
    else:
        yield spot
    for step, member in members:
        yield from _ends(member, (*spot, step), own=own)
