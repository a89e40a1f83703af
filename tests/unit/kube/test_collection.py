from __future__ import annotations

import asyncio
import gc
import json
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
from prometheus_client import REGISTRY

from kube_sync.errors import Expired, Retriable
from kube_sync.kube.client import KubeClient
from kube_sync.kube.collection import Event, KubeCollection, ResourceVersion
from kube_sync.kube.nesting import is_cut, shallow
from tests.fakes.apiserver import (
    FakeApiServer,
    continues,
    error_event,
    fake_apiserver,
    lists,
    watches,
)
from tests.fakes.clients import CLUSTERS, CONFIGMAPS, REPLICASETS, SECRETS, key, kube_of
from tests.fakes.http import answer, hang, stream
from tests.fakes.listing import whole
from tests.unit.async_tools import until

_DEEP = 3000  # levels of nesting; Kubernetes lets 10,000 through, Python's stack does not


@pytest.fixture
async def api() -> AsyncGenerator[FakeApiServer]:
    async with fake_apiserver() as api:
        api.define(REPLICASETS, "ReplicaSet")
        api.define(CONFIGMAPS, "ConfigMap")
        api.define(SECRETS, "Secret")
        api.define(CLUSTERS, "ClusterProfile", builtin=False)
        yield api


@pytest.fixture
async def client(api: FakeApiServer, tmp_path: Path) -> AsyncGenerator[KubeClient]:
    async with kube_of(api, tmp_path) as client:
        yield client


async def events(collection: KubeCollection, since: str, count: int) -> list[Event]:
    """Read the first `count` events of a watch, and close it."""
    found: list[Event] = []
    async with asyncio.timeout(30), aclosing(collection.watch(ResourceVersion(since))) as watch:
        async for event in watch:
            found.append(event)
            if len(found) == count:
                break
    return found


def line(kind: str, **metadata: Any) -> bytes:
    body = {"type": kind, "object": {"kind": "ReplicaSet", "metadata": metadata}}
    return json.dumps(body).encode() + b"\n"


async def test_list_of_builtin_kind_gets_api_version_and_kind(
    api: FakeApiServer, client: KubeClient
) -> None:
    """A policy that asks for `input.kind` must see the same after a LIST as after a WATCH."""
    stored = api.put(REPLICASETS, key("web"), spec={"replicas": 3})
    listing = await whole(KubeCollection(client, REPLICASETS))
    (item,) = listing.items
    assert json.loads(item.body) == stored
    assert item.key == key("web")
    assert (item.uid, item.version) == (
        stored["metadata"]["uid"],
        stored["metadata"]["resourceVersion"],
    )


async def test_list_of_core_kind_gets_the_bare_version(
    api: FakeApiServer, client: KubeClient
) -> None:
    api.put(CONFIGMAPS, key("a"))
    listing = await whole(KubeCollection(client, CONFIGMAPS))
    body = json.loads(listing.items[0].body)
    assert (body["apiVersion"], body["kind"]) == ("v1", "ConfigMap")


async def test_list_of_custom_kind_passes_bytes_through(
    api: FakeApiServer, client: KubeClient
) -> None:
    stored = api.put(CLUSTERS, key("c1"), status={"conditions": []})
    listing = await whole(KubeCollection(client, CLUSTERS))
    assert listing.items[0].body == json.dumps(stored).encode()


async def test_list_reads_every_page_of_one_moment(api: FakeApiServer, client: KubeClient) -> None:
    for number in range(7):
        version = api.put(REPLICASETS, key(f"r{number}"))["metadata"]["resourceVersion"]
    api.page_size = 3
    listing = await whole(KubeCollection(client, REPLICASETS))
    assert [item.key.name for item in listing.items] == [f"r{n}" for n in range(7)]
    assert listing.version == version
    assert len(api.http.requests) == 3
    assert {request.query["limit"] for request in api.http.requests} == {"500"}


async def test_pages_are_asked_for_while_the_first_one_is_worked_on(
    api: FakeApiServer, client: KubeClient
) -> None:
    """It may be kept waiting until it is known what to keep of it."""
    _put_pages(api, 4)
    async with asyncio.timeout(30), aclosing(KubeCollection(client, REPLICASETS).list()) as pages:
        await anext(pages)
        await until(lambda: len(api.http.requests) == 4)
        assert [page.items[0].key.name async for page in pages] == ["r1", "r2", "r3"]


async def test_pages_that_wait_have_a_limit(api: FakeApiServer, client: KubeClient) -> None:
    _put_pages(api, 4)
    collection = KubeCollection(client, REPLICASETS, ahead=1)
    async with asyncio.timeout(30), aclosing(collection.list()) as pages:
        await anext(pages)
        for number in (2, 3, 4):
            await _asked_and_no_more(api, number)
            await anext(pages)
        with pytest.raises(StopAsyncIteration):
            await anext(pages)


async def test_pages_before_a_failure_come_before_it(
    api: FakeApiServer, client: KubeClient
) -> None:
    _put_pages(api, 3)
    api.http.fault(lambda _request: len(api.http.requests) == 3, answer(500, b"{}"))
    found = []
    pages = KubeCollection(client, REPLICASETS).list()
    with suppress(Retriable):
        async for page in pages:
            found += [item.key.name for item in page.items]
        pytest.fail("it broke off")
    assert found == ["r0", "r1"]


async def test_failure_of_a_page_that_nobody_waits_for_is_not_left_behind(
    api: FakeApiServer, client: KubeClient, caplog: pytest.LogCaptureFixture
) -> None:
    _put_pages(api, 2)
    api.http.fault(lambda _request: len(api.http.requests) == 2, answer(500, b"{}"))
    async with asyncio.timeout(30), aclosing(KubeCollection(client, REPLICASETS).list()) as pages:
        await anext(pages)
        await _asked_and_no_more(api, 2)
    gc.collect()
    assert not caplog.records


def _put_pages(api: FakeApiServer, number: int) -> None:
    """Have so many pages of one object each."""
    api.page_size = 1
    for index in range(number):
        api.put(REPLICASETS, key(f"r{index}"))


async def _asked_and_no_more(api: FakeApiServer, number: int) -> None:
    await until(lambda: len(api.http.requests) == number)
    await asyncio.sleep(0.02)  # one that is not to be made would come in this time
    assert len(api.http.requests) == number


async def test_list_of_one_namespace_asks_for_it(api: FakeApiServer, client: KubeClient) -> None:
    api.put(CONFIGMAPS, key("a", "one"))
    api.put(CONFIGMAPS, key("b", "two"))
    listing = await whole(KubeCollection(client, CONFIGMAPS, namespace="two"))
    assert [item.key for item in listing.items] == [key("b", "two")]


async def test_empty_list_with_null_items_is_empty(api: FakeApiServer, client: KubeClient) -> None:
    """Go writes an empty slice that was never made as null."""
    body = b'{"kind":"ConfigMapList","metadata":{"resourceVersion":"7"},"items":null}'
    api.http.fault(lists(CONFIGMAPS), answer(200, body))
    assert (await whole(KubeCollection(client, CONFIGMAPS))).items == []


async def test_metadata_only_list_asks_for_and_names_partial_objects(
    api: FakeApiServer, client: KubeClient
) -> None:
    api.put(REPLICASETS, key("web"), spec={"replicas": 3})
    listing = await whole(KubeCollection(client, REPLICASETS, metadata_only=True))
    body = json.loads(listing.items[0].body)
    assert (body["apiVersion"], body["kind"]) == ("meta.k8s.io/v1", "PartialObjectMetadata")
    assert "spec" not in body
    assert listing.items[0].key == key("web")


async def test_metadata_only_watch_asks_for_partial_objects(
    api: FakeApiServer, client: KubeClient
) -> None:
    api.put(REPLICASETS, key("web"), spec={"replicas": 3})
    collection = KubeCollection(client, REPLICASETS, metadata_only=True)
    _, event = await events(collection, "100", 2)
    assert event.item is not None
    assert json.loads(event.item.body)["kind"] == "PartialObjectMetadata"


async def test_expired_continue_token_raises_expired(
    api: FakeApiServer, client: KubeClient
) -> None:
    for number in range(4):
        api.put(REPLICASETS, key(f"r{number}"))
    api.page_size = 2
    api.http.fault(continues(REPLICASETS), answer(410, b'{"code":410,"message":"too old"}'))
    with pytest.raises(Expired, match="410 too old"):
        await whole(KubeCollection(client, REPLICASETS))


@pytest.mark.parametrize(
    "body",
    [b"<html>", b"[]", b"{}", b'{"metadata":{},"items":[{]}', b'{"metadata":{},"items":{}}', b""],
)
async def test_list_answer_that_is_no_list_is_retriable(
    api: FakeApiServer, client: KubeClient, body: bytes
) -> None:
    api.http.fault(lists(REPLICASETS), answer(200, body))
    with pytest.raises(Retriable, match="a LIST answer is not a list"):
        await whole(KubeCollection(client, REPLICASETS))


def nested(name: str, levels: int = _DEEP) -> bytes:
    inside = b'[{"a":' * (levels // 2) + b"1" + b"}]" * (levels // 2)
    metadata = f'{{"name":"{name}","namespace":"n","uid":"u","resourceVersion":"7"}}'
    return b'{"spec":{"x":"]}","y":' + inside + b'},"metadata":' + metadata.encode() + b"}"


def left_out(reason: str) -> float:
    labels = {"resource": str(REPLICASETS), "reason": reason}
    return REGISTRY.get_sample_value("kube_sync_objects_left_out_total", labels) or 0.0


async def test_listed_object_nested_deeper_than_the_stack_is_left_out_alone(
    api: FakeApiServer, client: KubeClient
) -> None:
    """A RecursionError would end the process, and again after each restart."""
    items = [nested("a"), b'{"metadata":{"name":"ok"}}', nested("b", 400), nested("c")]
    body = (
        b'{"kind":"XList","metadata":{"resourceVersion":"9"},"items":[' + b",".join(items) + b"]}"
    )
    api.http.fault(lists(REPLICASETS), answer(200, body), times=2)
    before = left_out("nested")
    found = (await whole(KubeCollection(client, REPLICASETS))).items
    assert [(one.key.name, one.whole) for one in found] == [("ok", True), ("b", True)]
    spec, same = (msgspec.json.decode(one)["spec"] for one in (found[1].body, items[2]))
    assert spec == same
    assert left_out("nested") - before == 2
    found = (await whole(KubeCollection(client, REPLICASETS, deep=True))).items
    assert [one.key.name for one in found if not one.whole] == ["a", "c"]
    assert (found[0].uid, found[0].version) == ("u", "7")
    assert msgspec.json.decode(found[0].body).keys() == {"metadata"}


async def test_watched_object_nested_deeper_than_the_stack_is_left_out_until_it_goes(
    api: FakeApiServer, client: KubeClient
) -> None:
    lines = [
        b'{"type":"%s","object":%s}\n' % (what, nested("a")) for what in (b"MODIFIED", b"DELETED")
    ]
    api.http.fault(watches(REPLICASETS), stream(*lines), times=2)
    _, gone = await events(KubeCollection(client, REPLICASETS), "100", 2)
    assert gone.item is not None
    assert (gone.type, gone.item.key, gone.version) == ("DELETED", key("a", "n"), "7")
    _, changed, _ = await events(KubeCollection(client, REPLICASETS, deep=True), "100", 3)
    assert changed.item is not None
    assert (changed.type, changed.item.whole) == ("MODIFIED", False)


@pytest.mark.parametrize("levels", [600, _DEEP])
async def test_object_of_which_only_the_managed_fields_are_nested_deeply_is_read_without_them(
    api: FakeApiServer, client: KubeClient, levels: int
) -> None:
    """Whoever may write an object may write these, and would have no policy applied to it."""
    fields = b'{"f:a":' * levels + b"{}" + b"}" * levels
    item = nested("a", 10)[:-2] + b',"managedFields":[{"fieldsV1":' + fields + b"}]}}"
    page = b'{"kind":"XList","metadata":{"resourceVersion":"9"},"items":[' + item + b"]}"
    api.http.fault(lists(REPLICASETS), answer(200, page))
    line = b'{"type":"MODIFIED","object":' + item + b"}\n"
    api.http.fault(watches(REPLICASETS), stream(line))
    collection, before = KubeCollection(client, REPLICASETS), left_out("nested")
    (listed,) = (await whole(collection)).items
    _, changed = await events(collection, "100", 2)
    for found in (listed, changed.item):
        assert found is not None
        assert (found.key, found.uid, found.whole) == (key("a", "n"), "u", True)
        body = msgspec.json.decode(found.body)
        assert body["spec"] == msgspec.json.decode(nested("a", 10))["spec"]
        assert "managedFields" not in body["metadata"]
    assert left_out("nested") == before


def test_what_is_no_json_is_none_when_it_is_cut() -> None:
    for body in (b"[" * 2000, b"]" * 2000, b'"', b"[" * 600 + b"]" * 700, b""):
        with pytest.raises(msgspec.DecodeError):
            msgspec.json.decode(shallow(body))
    text = b'{"a":"' + b"[" * 2000 + rb"\"]" + b'","b":[1,{}]}'
    assert shallow(text) == text
    assert not is_cut(text)


@pytest.mark.parametrize(
    "body",
    [
        b'{"kind":"ConfigMapList","metadata":{"resourceVersion":"0"},"items":[]}',
        b'{"kind":"ConfigMapList","metadata":{"resourceVersion":""},"items":[]}',
        b'{"kind":"ConfigMapList","metadata":{},"items":[]}',
        b'{"kind":"ConfigMapList","items":[]}',
        b'{"kind":"ConfigMapList","metadata":{"resourceVersion":"7"}}',
        b'{"kind":"Status","metadata":{"resourceVersion":"7"},"items":[]}',
        b'{"metadata":{"resourceVersion":"7"},"items":[]}',
        b'{"kind":"Status","metadata":{}}',
        b'{"items":null}',
        b"{}",
        b"[]",
        b"",
    ],
)
async def test_what_is_no_list_of_now_is_not_an_empty_one(
    api: FakeApiServer, client: KubeClient, body: bytes
) -> None:
    """A cache that is not filled yet, or a proxy: taken for a list, it would empty what is full."""
    api.http.fault(lists(CONFIGMAPS), answer(200, body))
    with pytest.raises(Retriable, match="a LIST answer is not a list"):
        await whole(KubeCollection(client, CONFIGMAPS))


async def test_listed_object_without_readable_metadata_is_left_out_alone(
    api: FakeApiServer, client: KubeClient
) -> None:
    items = b'[{"metadata":{"name":5}},{},{"metadata":{"name":"ok"}}]'
    body = b'{"kind":"XList","metadata":{"resourceVersion":"7"},"items":' + items + b"}"
    api.http.fault(lists(CONFIGMAPS), answer(200, body))
    listing = await whole(KubeCollection(client, CONFIGMAPS))
    assert [item.key.name for item in listing.items] == ["ok"]


async def test_watch_begins_with_connected_and_tells_what_changed(
    api: FakeApiServer, client: KubeClient
) -> None:
    first = api.put(REPLICASETS, key("web"))["metadata"]["resourceVersion"]
    api.put(REPLICASETS, key("web"), spec={"replicas": 2})
    api.delete(REPLICASETS, key("web"))
    found = await events(KubeCollection(client, REPLICASETS), first, 3)
    assert [event.type for event in found] == ["CONNECTED", "MODIFIED", "DELETED"]
    assert found[0].version == first
    assert found[1].item is not None
    assert json.loads(found[1].item.body)["spec"] == {"replicas": 2}
    assert found[2].version == "103"


async def test_bookmark_has_a_version_and_no_item(api: FakeApiServer, client: KubeClient) -> None:
    version = api.bookmark(REPLICASETS)
    _, bookmark = await events(KubeCollection(client, REPLICASETS), "100", 2)
    assert (bookmark.type, bookmark.version, bookmark.item) == ("BOOKMARK", version, None)


async def test_watch_that_says_nothing_ends_so_that_it_begins_again(
    api: FakeApiServer, client: KubeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection may die without a word, and would be waited on for ten minutes."""
    monkeypatch.setattr("kube_sync.kube.collection._SILENCE_SECONDS", 0.05)
    since = ResourceVersion("100")
    found = [event async for event in KubeCollection(client, REPLICASETS).watch(since)]
    assert [event.type for event in found] == ["CONNECTED"]
    api.http.fault(watches(REPLICASETS), hang())
    with pytest.raises(Retriable):
        await events(KubeCollection(client, REPLICASETS), since, 1)


async def test_watch_asks_for_bookmarks_and_a_jittered_end(
    api: FakeApiServer, client: KubeClient
) -> None:
    """Without jitter all watches of a fleet would come back in the same second."""
    collection = KubeCollection(client, REPLICASETS, jitter=lambda: 0.5)
    await events(collection, "100", 1)
    query = api.http.requests[-1].query
    assert query["allowWatchBookmarks"] == "true"
    assert query["timeoutSeconds"] == "450"
    assert query["resourceVersion"] == "100"


async def test_expired_inside_the_stream_raises_expired(
    api: FakeApiServer, client: KubeClient
) -> None:
    api.compact()
    api.put(REPLICASETS, key("web"))
    api.compact()
    with pytest.raises(Expired, match="too old"):
        await events(KubeCollection(client, REPLICASETS), "100", 2)


async def test_other_error_event_raises_what_its_code_means(
    api: FakeApiServer, client: KubeClient
) -> None:
    api.http.fault(watches(REPLICASETS), stream(error_event(500, "InternalError")))
    with pytest.raises(Retriable) as caught:
        await events(KubeCollection(client, REPLICASETS), "100", 2)
    assert not isinstance(caught.value, Expired)


@pytest.mark.parametrize(
    "body",
    [
        b"not json\n",
        b"[]\n",
        b'{"type":"ADDED"}\n',
        b'{"object":{}}\n',
        b'{"type":"ERROR","object":[]}\n',
    ],
)
async def test_line_that_is_no_event_is_retriable(
    api: FakeApiServer, client: KubeClient, body: bytes
) -> None:
    api.http.fault(watches(REPLICASETS), stream(body))
    with pytest.raises(Retriable, match="a WATCH line is not an event"):
        await events(KubeCollection(client, REPLICASETS), "100", 2)


async def test_watched_object_without_readable_metadata_is_left_out_alone(
    api: FakeApiServer, client: KubeClient
) -> None:
    """The watch would be told the same event again after each attempt, for ever."""
    odd = b'{"type":"ADDED","object":{"metadata":{"name":7}}}\n{"type":"ADDED","object":{}}\n'
    good = line("ADDED", name="ok", resourceVersion="9")
    api.http.fault(watches(REPLICASETS), stream(odd + good))
    _, event = await events(KubeCollection(client, REPLICASETS), "100", 2)
    assert event.version == "9"


async def test_torn_last_line_is_never_an_event(api: FakeApiServer, client: KubeClient) -> None:
    """Cut in the right place, half an object can be a whole, wrong, one."""
    whole = line("ADDED", name="a", resourceVersion="8")
    torn = line("ADDED", name="b", resourceVersion="9").rstrip(b"\n")
    api.http.fault(watches(REPLICASETS), stream(whole, torn))
    found = await events(KubeCollection(client, REPLICASETS), "100", 99)
    assert [event.version for event in found] == ["100", "8"]


async def test_connection_cut_in_mid_line_is_retriable(
    api: FakeApiServer, client: KubeClient
) -> None:
    whole = line("ADDED", name="a", resourceVersion="8")
    api.http.fault(watches(REPLICASETS), stream(whole, whole[:20], cut=True))
    found: list[Event] = []
    watch = KubeCollection(client, REPLICASETS).watch(ResourceVersion("7"))
    with pytest.raises(Retriable):  # noqa: PT012 - what came before the error counts too
        async with asyncio.timeout(30), aclosing(watch):
            async for event in watch:
                found.append(event)  # noqa: PERF401 - likewise
    assert [event.version for event in found] == ["7", "8"]


async def test_lines_split_anywhere_and_blank_lines_are_read_whole(
    api: FakeApiServer, client: KubeClient
) -> None:
    text = line("ADDED", name="a", resourceVersion="8") + b"\n\n"
    text += line("ADDED", name="ü", resourceVersion="9")
    chunks = [text[at : at + 3] for at in range(0, len(text), 3)]
    api.http.fault(watches(REPLICASETS), stream(*chunks))
    found = await events(KubeCollection(client, REPLICASETS), "7", 99)
    assert [event.version for event in found] == ["7", "8", "9"]
    assert found[2].item is not None
    assert found[2].item.key.name == "ü"


async def test_line_larger_than_every_buffer_is_one_event(
    api: FakeApiServer, client: KubeClient
) -> None:
    """aiohttp's own line reader gives up on a long line; objects may have megabytes."""
    api.put(CONFIGMAPS, key("big"), data={"blob": "x" * (5 << 20)})
    _, event = await events(KubeCollection(client, CONFIGMAPS), "100", 2)
    assert event.item is not None
    assert len(json.loads(event.item.body)["data"]["blob"]) == 5 << 20


async def test_watch_left_early_gives_its_connection_back(
    api: FakeApiServer, client: KubeClient
) -> None:
    await events(KubeCollection(client, REPLICASETS), "100", 1)
    await api.http.until(lambda: not api.http.under_way)


async def test_secret_of_a_list_is_named_a_secret(api: FakeApiServer, client: KubeClient) -> None:
    """What hides the values looks at the kind, which a LIST leaves out."""
    api.put(SECRETS, key("s"), data={"password": "eA=="})
    listing = await whole(KubeCollection(client, SECRETS))
    assert json.loads(listing.items[0].body)["kind"] == "Secret"


async def test_selectors_are_asked_of_every_page_and_of_the_watch(
    api: FakeApiServer, client: KubeClient
) -> None:
    api.page_size = 1
    for name in "abc":
        api.put(REPLICASETS, key(name), metadata={"labels": {"team": "x"}})
    api.put(REPLICASETS, key("other"))
    collection = KubeCollection(
        client, REPLICASETS, label_selector="team=x", field_selector="metadata.name!=b"
    )
    listing = await whole(collection)
    assert [item.key.name for item in listing.items] == ["a", "c"]
    await events(collection, listing.version, 1)
    for request in api.http.requests:
        assert request.query["labelSelector"] == "team=x"
        assert request.query["fieldSelector"] == "metadata.name!=b"


async def test_nothing_is_selected_by_default(api: FakeApiServer, client: KubeClient) -> None:
    await whole(KubeCollection(client, REPLICASETS))
    assert not {"labelSelector", "fieldSelector"} & set(api.http.requests[-1].query)


async def test_object_that_leaves_a_selector_is_deleted_and_may_come_back(
    api: FakeApiServer, client: KubeClient
) -> None:
    for team in ("y", "x", "x", "y", "x"):
        api.put(REPLICASETS, key("a"), metadata={"labels": {"team": team}})
    collection = KubeCollection(client, REPLICASETS, label_selector="team=x")
    found = await events(collection, "100", 5)
    assert [e.type for e in found[1:]] == ["ADDED", "MODIFIED", "DELETED", "ADDED"]
