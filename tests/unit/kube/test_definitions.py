from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from kube_sync.errors import Terminal
from kube_sync.kube.collection import Event, Item, ResourceVersion
from kube_sync.kube.definitions import Definitions, Version, definition_of
from kube_sync.objects import GroupVersionResource, ObjectKey
from tests.fakes.definitions import POLICY, definition
from tests.fakes.listing import Listing, listed
from tests.unit.async_tools import running

GROUP = "shop.example"
_VERSION = ResourceVersion("7")
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=6,
)


def established(body: dict[str, Any], status: str = "True") -> dict[str, Any]:
    return {**body, "status": {"conditions": [{"type": "Established", "status": status}]}}


def item(body: dict[str, Any], **changed: Any) -> Item:
    name = body["metadata"]["name"]
    return Item(ObjectKey("", name), "u", _VERSION, json.dumps({**body, **changed}).encode())


def event(kind: str, found: Item | None) -> Event:
    return Event(kind, _VERSION, found)


SHOP = definition("Shop", GROUP, "v1")


def test_a_definition_is_read() -> None:
    body = established(definition("Shop", GROUP, "v1beta1", "v1", "v2", unserved=["v2"]))
    body["metadata"] |= {"labels": POLICY, "annotations": {"a": "b"}, "uid": "u-1"}
    found = definition_of(body)
    assert (found.name, found.uid, found.group) == (f"shops.{GROUP}", "u-1", GROUP)
    assert (found.kind, found.namespaced) == ("Shop", True)
    assert (found.labels, found.annotations, found.body) == (POLICY, {"a": "b"}, body)
    assert [version.name for version in found.versions] == ["v1", "v1beta1"]
    assert found.gvr == GroupVersionResource(GROUP, "v1", "shops")


def test_a_version_that_is_not_served_is_none() -> None:
    found = definition_of(definition("Shop", GROUP, "v1", "v2", unserved=["v2"]))
    assert found.version("v2") is None
    assert found.version("v1") is found.versions[0]


@pytest.mark.parametrize(
    "body",
    [
        SHOP,
        established(SHOP, "False"),
        established(definition("Shop", GROUP, "v1", unserved=["v1"])),
        {**SHOP, "status": {"conditions": None}},
        {**SHOP, "status": None},
    ],
)
def test_what_is_not_established_or_not_served_has_no_resource(body: dict[str, Any]) -> None:
    assert definition_of(body).gvr is None


def test_a_definition_may_have_neither_labels_nor_a_schema() -> None:
    body = deepcopy(definition("Shop", GROUP, "v1", namespaced=False))
    del body["metadata"]["labels"], body["metadata"]["annotations"]
    del body["spec"]["versions"][0]["schema"]
    found = definition_of(body)
    assert (found.labels, found.annotations, found.versions[0].schema) == ({}, {}, {})
    assert not found.namespaced


def test_the_type_of_a_field_is_what_the_schema_says() -> None:
    fields = {"targetRef": {"type": "object"}, "any": {}, "odd": {"type": 3}, "broken": 7}
    schema = {"properties": {"spec": {"properties": fields}, "status": {"properties": []}}}
    version = Version("v1", schema)
    assert version.type_of("spec", "targetRef") == "object"
    assert version.type_of("spec", "any") == ""
    assert version.type_of("spec", "odd") == ""
    assert version.type_of("spec") == ""
    assert version.type_of("spec", "targetRefs") is None
    assert version.type_of("spec", "broken") is None
    assert version.type_of("spec", "broken", "below") is None
    assert version.type_of("status", "ancestors") is None


@given(st.dictionaries(st.sampled_from(["properties", "spec", "type"]), json_values))
def test_no_schema_breaks_the_reading_of_it(schema: dict[str, Any]) -> None:
    found = Version("v1", schema).type_of("spec", "targetRef")
    assert found is None or isinstance(found, str)


@given(json_values)
def test_no_definition_breaks_the_reading_of_it(value: object) -> None:
    for body in ({"spec": value}, {**SHOP, "spec": value}, {**SHOP, "metadata": value}):
        with pytest.raises(Terminal, match="cannot be read"):
            definition_of(body)


class Bench:
    """Definitions, with a count of its news."""

    def __init__(self, matters: Callable[[Any], bool] = lambda _definition: True) -> None:
        self.news = 0
        self.definitions = Definitions(self.heard, matters)

    def heard(self) -> None:
        self.news += 1

    def listed(self, *bodies: dict[str, Any], known: bool = True) -> None:
        listed(self.definitions, Listing([item(b) for b in bodies], _VERSION), known=known)

    @property
    def kinds(self) -> list[str]:
        return [found.kind for found in self.definitions]


def test_what_a_list_holds_is_held_by_name() -> None:
    bench = Bench()
    bench.listed(SHOP, definition("Mall", GROUP, "v1"))
    assert (bench.kinds, bench.definitions.listed, bench.news) == (["Mall", "Shop"], True, 1)
    assert bench.definitions.of(GROUP, "shops") is not None
    assert bench.definitions.of(GROUP, "shop") is None


def test_the_next_list_replaces_it() -> None:
    bench = Bench()
    bench.listed(SHOP)
    bench.listed()
    assert (bench.kinds, bench.news) == ([], 2)


async def test_a_list_that_broke_off_is_forgotten() -> None:
    bench = Bench()
    await bench.definitions.page([item(SHOP)])
    bench.definitions.abandon()
    bench.definitions.finish(known=True)
    assert bench.kinds == []


async def test_others_run_while_a_large_list_is_read() -> None:
    definitions = Bench().definitions
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    bodies = (definition(f"Shop{number}", GROUP, "v1") for number in range(100))
    items = [item(body) for body in bodies]
    async with running(other()):
        await definitions.page(items)
        assert turns >= 4
    definitions.finish(known=True)
    assert len(list(definitions)) == 100


def test_a_404_changes_nothing() -> None:
    # The API server may be about to start.
    bench = Bench()
    bench.listed(known=False)
    assert not bench.definitions.listed
    bench.listed(SHOP)
    bench.listed(known=False)
    assert (bench.kinds, bench.news) == (["Shop"], 1)


def test_events_are_taken_in() -> None:
    bench = Bench()
    bench.listed()
    bench.definitions.apply(event("ADDED", item(SHOP)))
    assert bench.kinds == ["Shop"]
    bench.definitions.apply(event("MODIFIED", item(established(SHOP))))
    assert [found.established for found in bench.definitions] == [True]
    bench.definitions.apply(event("DELETED", item(SHOP)))
    assert (bench.kinds, bench.news) == ([], 4)


def test_what_does_not_matter_is_neither_held_nor_news() -> None:
    bench = Bench(lambda found: "x" in found.labels)
    bench.listed(SHOP)
    for kind in ("ADDED", "MODIFIED", "DELETED"):
        bench.definitions.apply(event(kind, item(SHOP)))
    bench.definitions.apply(event("BOOKMARK", None))
    assert (bench.kinds, bench.news) == ([], 1)


def test_what_matters_no_more_is_let_go() -> None:
    bench = Bench(lambda found: found.namespaced)
    bench.listed(SHOP)
    bench.definitions.apply(event("MODIFIED", item(definition("Shop", GROUP, namespaced=False))))
    assert (bench.kinds, bench.news) == ([], 2)


@pytest.mark.parametrize("body", [b'{"spec": 3}', b"{", b"[]"])
def test_what_cannot_be_read_stays_what_it_was_and_harms_no_other(body: bytes) -> None:
    bench = Bench()
    bench.listed(SHOP)
    torn = Item(ObjectKey("", f"shops.{GROUP}"), "u", _VERSION, body)
    new = Item(ObjectKey("", f"malls.{GROUP}"), "u", _VERSION, body)
    with capture_logs() as logs:
        bench.definitions.apply(event("MODIFIED", torn))
        bench.definitions.apply(event("ADDED", new))
        other = item(definition("Other", GROUP, "v1"))
        listed(bench.definitions, Listing([torn, new, other], _VERSION))
    assert bench.kinds == ["Other", "Shop"]
    assert {(log["event"], log["key"]) for log in logs} == {
        ("definition_not_read", f"shops.{GROUP}"),
        ("definition_not_read", f"malls.{GROUP}"),
    }
