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
from kube_sync.topology.status.ancestors import CONTROLLER, stands
from kube_sync.topology.status.plan import Replace, Step
from kube_sync.topology.status.targets import affects
from kube_sync.topology.statuslists import ANCESTORS, PARENTS


class Latest:
    """The newest states of objects."""

    def __init__(self, held: Callable[[Locator], Body | None]) -> None:
        """`held` returns an object from the watch cache, None if deleted."""
        self._held = held
        self._answers: dict[Locator, tuple[str, Body]] = {}  # and the resourceVersion written on

    def get(self, name: Locator) -> Body | None:
        """Return an object, None if deleted."""
        body = self._held(name)
        if name in self._answers:
            written_on, answer = self._answers[name]
            if body is not None and text_if_any(body, "metadata", "resourceVersion") == written_on:
                return answer
            del self._answers[name]
        return body

    def answered(self, name: Locator, written_on: str, answer: Body) -> None:
        """Cache the response to a write at a resourceVersion."""
        self._answers[name] = written_on, answer

    def answer(self, name: Locator) -> Body | None:
        """Return the response to the last write of an object, while it is cached."""
        known = self._answers.get(name)
        return None if known is None else known[1]

    def tidy(self) -> None:
        """Drop responses that the watch has overtaken."""
        for name in list(self._answers):
            self.get(name)


def matter(body: Body, ours: Callable[[object], bool] = affects) -> object:
    """Return the part of a status that concerns us, for comparison with another state.

    `ours` returns by the type whether we own a condition of the object.
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


def saying(step: Step) -> object:
    """Return what a step writes, without times."""
    if isinstance(step, Replace):
        plain = [one for one in _untimed(step.status) if stands(one.get("type"))]
        return plain + [
            {**entry, "conditions": _untimed(entry)}
            for name, entries in step.status.items()
            for entry in entries
            if name != "conditions" and entry.get("controllerName") == CONTROLLER
        ]
    listeners = [(one["name"], _untimed(one)) for one in items(step.status, "listeners")]
    return len(step.removals), _untimed(step.status), listeners


def _untimed(said: Json) -> list[Json]:
    return [untimed(condition) for condition in items(said, "conditions")]
