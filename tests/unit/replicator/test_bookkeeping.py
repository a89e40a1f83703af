from __future__ import annotations

import json

import pytest

from kube_sync.opa.client import OpaClient
from kube_sync.replicator.bookkeeping import RootIndex
from tests.fakes.opa import FakeOpa


async def test_new_opa_has_nothing_stale(client: OpaClient, opa: FakeOpa) -> None:
    holdings = RootIndex(client, "root", ["b", "a"])
    await holdings.open()
    assert holdings.stale == ()
    assert opa.data == {"kube_sync": {"collections": {"root": {"a": True, "b": True}}}}


async def test_what_is_listed_and_not_coming_is_stale_and_stays_listed(
    client: OpaClient, opa: FakeOpa
) -> None:
    await RootIndex(client, "root", ["a", "z/~0%"]).open()
    holdings = RootIndex(client, "root", ["b"])
    for _ in range(2):  # an answer may be lost
        await holdings.open()
        assert holdings.stale == ("a", "z/~0%")
        assert set(opa.data["kube_sync"]["collections"]["root"]) == {"a", "b", "z/~0%"}


async def test_another_root_is_not_touched(client: OpaClient, opa: FakeOpa) -> None:
    await RootIndex(client, "other", ["a"]).open()
    holdings = RootIndex(client, "root", [])
    await holdings.open()
    assert holdings.stale == ()
    assert opa.data["kube_sync"]["collections"]["other"] == {"a": True}


@pytest.mark.parametrize("document", [[1], "x", 3, None])
async def test_list_that_is_none_of_ours_names_nothing(
    client: OpaClient, opa: FakeOpa, document: object
) -> None:
    opa.data = {"kube_sync": {"collections": {"root": document}}}
    holdings = RootIndex(client, "root", ["a"])
    await holdings.open()
    assert holdings.stale == ()
    assert opa.data["kube_sync"]["collections"]["root"] == {"a": True}


async def test_collection_is_struck_out_together_with_its_data(
    client: OpaClient, opa: FakeOpa
) -> None:
    holdings = RootIndex(client, "root", ["a/b", "c"])
    await holdings.open()
    opa.data["root"] = {"a/b": {"x": 1}, "c": {}}
    assert holdings.path("a/b") == ("root", "a/b")
    await client.patch_data([holdings.enter("a/b"), *holdings.strike("c")])
    await client.patch_data(holdings.strike("a/b"))
    assert opa.data == {"root": {}, "kube_sync": {"collections": {"root": {}}}}
    assert json.loads(holdings.enter("c")) == {
        "op": "add",
        "path": "/kube_sync/collections/root/c",
        "value": True,
    }
