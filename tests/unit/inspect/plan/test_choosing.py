from __future__ import annotations

from typing import Any

import pytest

from kube_sync.errors import NotFound
from kube_sync.guard import Withheld
from kube_sync.guard.labelselectors import parse_labels
from kube_sync.inspect.plan.choosing import choose, narrowed, shown
from kube_sync.inspect.plan.effects import Effect
from kube_sync.inspect.plan.forecast import Forecast
from kube_sync.inspect.plan.plan import identity
from kube_sync.inspect.plan.request import Request
from kube_sync.kube.collection import Item, ResourceVersion
from kube_sync.kube.naming import reference
from kube_sync.objects import GroupVersionResource, ObjectKey
from tests.unit.inspect.plan.fleets import item

PLACES = {"replicasets": GroupVersionResource("apps", "v1", "replicasets")}


def _workload(name: str, namespace: str, **labels: str) -> Item:
    return item({"metadata": {"name": name, "namespace": namespace, "labels": labels}})


OBJECTS = {
    "replicasets": {
        one.key: one
        for one in (
            _workload("web", "shop", team="a"),
            _workload("api", "shop", team="b"),
            _workload("web", "ml"),
            Item(ObjectKey("ml", "odd"), "", ResourceVersion("1"), b'{"metadata": {"labels": 1}}'),
        )
    },
    "clusters": {},
}


def _chosen(**asked: Any) -> set[str] | None:
    found = choose(Request(**asked), PLACES, OBJECTS)
    return None if found is None else {str(key) for _, key in found}


def test_without_a_filter_nothing_is_chosen() -> None:
    assert _chosen() is None


@pytest.mark.parametrize(
    ("asked", "chosen"),
    [
        ({"of": (reference("rs/web"),)}, {"shop/web", "ml/web"}),
        ({"of": (reference("shop/web"), reference("api"))}, {"shop/web", "shop/api"}),
        ({"of": (reference("web"),), "namespace": "ml"}, {"ml/web"}),
        ({"namespace": "shop"}, {"shop/web", "shop/api"}),
        ({"labels": parse_labels("team=a")}, {"shop/web"}),
        ({"labels": parse_labels("!team")}, {"ml/web", "ml/odd"}),
        ({"labels": parse_labels("team"), "namespace": "ml"}, set()),
    ],
)
def test_workloads_are_chosen_by_names_namespace_and_labels(
    asked: dict[str, Any], chosen: set[str]
) -> None:
    assert _chosen(**asked) == chosen


def test_name_that_no_workload_has_is_told() -> None:
    with pytest.raises(NotFound, match=r"^api: there is no such workload in namespace ml$"):
        _chosen(of=(reference("web"), reference("api")), namespace="ml")
    with pytest.raises(NotFound, match=r"^nothing: there is no such workload$"):
        _chosen(of=(reference("nothing"),))


def _effect(name: str) -> Effect:
    return Effect("replicasets", ObjectKey("shop", name), f"u-{name}", "moves", ("a",), ("b",))


def test_what_is_left_out_is_counted_in_a_note() -> None:
    web, api, ads = effects = _effect("web"), _effect("api"), _effect("ads")
    chosen = choose(Request(of=(reference("shop/web"),)), PLACES, OBJECTS)
    assert shown(chosen, effects) == ([web], ["2 other workloads are affected too, and not shown"])
    assert shown(chosen, [api])[1] == ["1 other workload is affected too, and not shown"]
    assert shown(chosen, [web]) == ([web], [])
    assert shown(None, effects) == ([web, api, ads], [])


def test_forecast_is_of_what_is_shown_with_the_approvals_of_all() -> None:
    web, api = _effect("web"), _effect("api")
    hold = Withheld("mass", "many", "fewer")
    whole = Forecast({identity(web): 1.0, identity(api): 9.0}, {identity(api): hold}, (hold,))
    found = narrowed(whole, [web])
    assert (found.lasts, dict(found.held), found.holds) == (1.0, {}, (hold,))
