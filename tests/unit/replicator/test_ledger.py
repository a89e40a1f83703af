from __future__ import annotations

import json

import pytest

from kube_sync.opa.client import OpaClient
from kube_sync.replicator.ledger import Ledger
from tests.fakes.opa import FakeOpa


async def test_new_opa_has_nothing_stale(client: OpaClient, opa: FakeOpa) -> None:
    ledger = Ledger(client, "root", ["b", "a"])
    await ledger.open()
    assert ledger.stale == ()
    assert opa.data == {"kube_sync": {"collections": {"root": {"a": True, "b": True}}}}


async def test_what_is_listed_and_not_coming_is_stale_and_stays_listed(
    client: OpaClient, opa: FakeOpa
) -> None:
    await Ledger(client, "root", ["a", "z/~0%"]).open()
    ledger = Ledger(client, "root", ["b"])
    for _ in range(2):  # an answer may be lost
        await ledger.open()
        assert ledger.stale == ("a", "z/~0%")
        assert set(opa.data["kube_sync"]["collections"]["root"]) == {"a", "b", "z/~0%"}


async def test_another_root_is_not_touched(client: OpaClient, opa: FakeOpa) -> None:
    await Ledger(client, "other", ["a"]).open()
    ledger = Ledger(client, "root", [])
    await ledger.open()
    assert ledger.stale == ()
    assert opa.data["kube_sync"]["collections"]["other"] == {"a": True}


@pytest.mark.parametrize("document", [[1], "x", 3, None])
async def test_list_that_is_none_of_ours_names_nothing(
    client: OpaClient, opa: FakeOpa, document: object
) -> None:
    opa.data = {"kube_sync": {"collections": {"root": document}}}
    ledger = Ledger(client, "root", ["a"])
    await ledger.open()
    assert ledger.stale == ()
    assert opa.data["kube_sync"]["collections"]["root"] == {"a": True}


async def test_collection_is_struck_out_together_with_its_data(
    client: OpaClient, opa: FakeOpa
) -> None:
    ledger = Ledger(client, "root", ["a/b", "c"])
    await ledger.open()
    opa.data["root"] = {"a/b": {"x": 1}, "c": {}}
    assert ledger.path("a/b") == ("root", "a/b")
    await client.patch_data([ledger.enter("a/b"), *ledger.strike("c")])
    await client.patch_data(ledger.strike("a/b"))
    assert opa.data == {"root": {}, "kube_sync": {"collections": {"root": {}}}}
    assert json.loads(ledger.enter("c")) == {
        "op": "add",
        "path": "/kube_sync/collections/root/c",
        "value": True,
    }
