"""What of a status decides on what is written there: our part of it, and the places for it.

Others write statuses all the time; most of it changes nothing for us.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from kube_sync.kube.conditions import Json
from kube_sync.machinery.conditions import CONTROLLER, affects
from kube_sync.machinery.entries import ANCESTORS, PARENTS
from kube_sync.topology.nodes import Body
from kube_sync.topology.shapes import Malformed, items


def matter(body: Body, ours: Callable[[object], bool] = affects) -> object:
    """Return what matters of a status, to be compared with that of another state.

    `ours` tells by the type which conditions of the object are ours to say.
    """
    try:
        listeners = items(body, "status", "listeners")
        return (
            _conditions(items(body, "status", "conditions"), ours),
            [(one.get("name"), _conditions(items(one, "conditions"), ours)) for one in listeners],
            [_entries(items(body, "status", listed.field)) for listed in (ANCESTORS, PARENTS)],
        )
    except Malformed as error:
        return str(error)


def _conditions(found: Iterable[Json], ours: Callable[[object], bool]) -> list[Json | None]:
    return [one if ours(one.get("type")) else None for one in found]


def _entries(found: Iterable[Json]) -> list[Json | None]:
    return [one if one.get("controllerName") == CONTROLLER else None for one in found]
