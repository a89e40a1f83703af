"""Cache of the responses to our status writes, ahead of the watch.

Invariant: between a write and its watch event the response is used, so that nothing is written
twice; as soon as the watch delivers another version than the one written on, that is used. What
others write into a status is ignored, unless it concerns the number of places left to us.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from kube_sync.kube.conditions import Json, untimed
from kube_sync.topology import Locator
from kube_sync.topology.nodes import Body
from kube_sync.topology.raw_json import Malformed, items, text_if_any
from kube_sync.topology.status.ancestors import CONTROLLER, is_policy_condition
from kube_sync.topology.status.plan import Replace, Step
from kube_sync.topology.status.target_conditions import is_target_condition
from kube_sync.topology.statuslists import ANCESTORS, PARENTS


class LatestObjects:
    """The newest states of objects."""

    def __init__(self, cached: Callable[[Locator], Body | None]) -> None:
        """Create an empty one; `cached` returns an object from the watch cache, None if deleted."""
        self._cached = cached
        self._responses: dict[Locator, tuple[str, Body]] = {}  # and the resourceVersion written on

    def get(self, name: Locator) -> Body | None:
        """Return an object, None if deleted."""
        body = self._cached(name)
        if name in self._responses:
            written_on, response = self._responses[name]
            if body is not None and text_if_any(body, "metadata", "resourceVersion") == written_on:
                return response
            del self._responses[name]
        return body

    def record_response(self, name: Locator, written_on: str, response: Body) -> None:
        """Cache the response to a write at a resourceVersion."""
        self._responses[name] = written_on, response

    def response(self, name: Locator) -> Body | None:
        """Return the response to the last write of an object, while it is cached."""
        known = self._responses.get(name)
        return None if known is None else known[1]

    def prune(self) -> None:
        """Drop responses that the watch has overtaken."""
        for name in list(self._responses):
            self.get(name)


def our_status(body: Body, is_ours: Callable[[object], bool] = is_target_condition) -> object:
    """Return the part of a status that concerns us, for comparison with another state.

    `is_ours` returns by the type whether we own a condition of the object.
    """
    try:
        listeners = items(body, "status", "listeners")
        return (
            _conditions(items(body, "status", "conditions"), is_ours),
            [
                (one.get("name"), _conditions(items(one, "conditions"), is_ours))
                for one in listeners
            ],
            [_entries(items(body, "status", listed.field)) for listed in (ANCESTORS, PARENTS)],
        )
    except Malformed as error:
        return str(error)


def _conditions(found: Iterable[Json], is_ours: Callable[[object], bool]) -> list[Json | None]:
    return [one if is_ours(one.get("type")) else None for one in found]


def _entries(found: Iterable[Json]) -> list[Json | None]:
    return [one if one.get("controllerName") == CONTROLLER else None for one in found]


def written_content(step: Step) -> object:
    """Return what a step writes, without times."""
    if isinstance(step, Replace):
        conditions = [one for one in _untimed(step.status) if is_policy_condition(one.get("type"))]
        return conditions + [
            {**entry, "conditions": _untimed(entry)}
            for name, entries in step.status.items()
            for entry in entries
            if name != "conditions" and entry.get("controllerName") == CONTROLLER
        ]
    listeners = [(one["name"], _untimed(one)) for one in items(step.status, "listeners")]
    return len(step.removals), _untimed(step.status), listeners


def _untimed(status: Json) -> list[Json]:
    return [untimed(condition) for condition in items(status, "conditions")]
