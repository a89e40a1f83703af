"""Which workloads a plan is printed of: by names, by a namespace, by labels. Pure.

Everything is planned all the same: the brakes count all moves, also those that nobody asked about.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from kube_sync.errors import NO_JSON, NotFound
from kube_sync.guard.selectors import matches
from kube_sync.inspect.plan.effects import Effect
from kube_sync.inspect.plan.forecast import Forecast
from kube_sync.inspect.plan.plan import identity
from kube_sync.inspect.plan.request import Request
from kube_sync.inspect.plan.snapshot import Objects
from kube_sync.kube.collection import Item
from kube_sync.kube.meta import object_meta
from kube_sync.objects import GroupVersionResource, ObjectKey

Chosen = frozenset[tuple[str, ObjectKey]]  # by collection


def choose(
    request: Request, places: Mapping[str, GroupVersionResource], objects: Mapping[str, Objects]
) -> Chosen | None:
    """Return the workloads that are asked about, None for all of them.

    Raises NotFound for a name that none has.
    """
    if not (request.of or request.namespace or request.labels):
        return None
    inside = [
        (name, key)
        for name in places
        for key in objects[name]
        if request.namespace in (None, key.namespace)
    ]
    if request.of:
        inside = _named(request, places, inside)
    return frozenset(
        (name, key)
        for name, key in inside
        if not request.labels or matches(request.labels, _labels(objects[name][key]))
    )


def shown(chosen: Chosen | None, effects: Sequence[Effect]) -> tuple[list[Effect], list[str]]:
    """Return the effects on the chosen workloads, and notes on what is left out."""
    if chosen is None:
        return [*effects], []
    found = [one for one in effects if (one.resource, one.key) in chosen]
    if not (left := len(effects) - len(found)):
        return found, []
    others = "1 other workload is" if left == 1 else f"{left} other workloads are"
    return found, [f"{others} affected too, and not shown"]


def narrowed(forecast: Forecast, effects: Iterable[Effect]) -> Forecast:
    """Return what is forecast of these effects, with the approvals that all moves together need."""
    own = {identity(one) for one in effects}
    seconds = {name: found for name, found in forecast.seconds.items() if name in own}
    held = {name: found for name, found in forecast.held.items() if name in own}
    return Forecast(seconds, held, forecast.holds)


def _named(
    request: Request,
    places: Mapping[str, GroupVersionResource],
    inside: Sequence[tuple[str, ObjectKey]],
) -> list[tuple[str, ObjectKey]]:
    found: dict[tuple[str, ObjectKey], None] = {}
    for of in request.of:
        meant = [one for one in inside if any(way.means(places[one[0]], one[1]) for way in of)]
        if not meant:
            where = "" if request.namespace is None else f" in namespace {request.namespace}"
            msg = f"{of[0].text}: there is no such workload{where}"
            raise NotFound(msg)
        found |= dict.fromkeys(meant)
    return [*found]


def _labels(item: Item) -> Mapping[str, str]:
    try:
        return object_meta(item.body).labels or {}
    except NO_JSON:
        return {}
