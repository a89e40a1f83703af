from __future__ import annotations

import json

import pytest

from kube_sync.kube.approvals import APPROVED, approvals, approved, with_approved
from kube_sync.kube.collection import Item, ResourceVersion
from kube_sync.objects import ObjectKey
from tests.fakes.listing import Listing, listed

NOW = 1_000_000.0
VERSION = ResourceVersion("1")


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", {}),
        ("a", {"a": None}),
        ("a@999990, b ,, c@x,@5", {"a": 999_990.0, "b": None}),
        ("old@900000,new@913601", {"new": 913_601.0}),
    ],
)
def test_names_are_approved_for_a_day_or_as_long_as_they_stand_there(
    text: str, names: dict[str, float | None]
) -> None:
    assert approved(text, NOW) == names


def test_an_approval_is_written_beside_what_still_holds() -> None:
    before = {APPROVED: "old@1,mine,moves@999999"}
    assert with_approved(before, ["new", "moves"], NOW) == "mine,moves@1000000,new@1000000"
    assert with_approved({}, ["new"], NOW) == "new@1000000"


def test_only_configmaps_that_approve_something_are_held() -> None:
    def item(name: str, **annotations: str) -> Item:
        body = json.dumps({"metadata": {"name": name, "annotations": annotations}})
        return Item(ObjectKey("policies", name), "u", VERSION, body.encode())

    news: list[None] = []
    (store,) = approvals(["policies"], lambda: news.append(None))
    items = [item("a", **{APPROVED: "x"}), item("b", other="x"), item("c")]
    listed(store, Listing(items, VERSION))
    assert [(one.key.name, one.text) for one in store] == [("a", "x")]
    assert len(news) == 1
