from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from prometheus_client import REGISTRY

from kube_sync.decisions import stream
from kube_sync.decisions.changelog import Entry
from kube_sync.decisions.decision import Decision
from kube_sync.decisions.evaluator import Outcome
from kube_sync.decisions.hub import DecisionHub
from kube_sync.decisions.records import (
    BookmarkRecord,
    DecisionRecord,
    Record,
    StatusRecord,
    Target,
    decode,
    decode_grouped,
)
from kube_sync.decisions.stream import PATH, stream_app
from kube_sync.decisions.subscription import Subscription
from kube_sync.runtime.httpserver import serving
from kube_sync.runtime.tokenfile import TokenFile
from tests.memory import remembered
from tests.unit.async_tools import PATIENCE, until

KNOWN = "io/k8s/federation/admission"


def _target(name: str) -> Target:
    return Target("apps", "v1", "replicasets", name, "ns")


def _update(hub: DecisionHub, name: str, text: str) -> None:
    hub.publish(
        _target(name).gvr, _target(name).key, Outcome("u", Decision({"place": text})), "data", ""
    )


@asynccontextmanager
async def _served(hub: DecisionHub, token_file: Path | None = None) -> AsyncGenerator[str]:
    token = TokenFile(str(token_file) if token_file else None)
    async with serving(stream_app(hub, token), ("127.0.0.1", 0), grace=0.05) as port:
        yield f"http://127.0.0.1:{port}{PATH}"


@asynccontextmanager
async def _opened(url: str, token: str | None = None) -> AsyncGenerator[aiohttp.ClientResponse]:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with (
        asyncio.timeout(PATIENCE),
        aiohttp.ClientSession(read_bufsize=1 << 20) as session,
        session.get(url, headers=headers) as response,
    ):
        yield response


def _subscribers() -> float | None:
    return REGISTRY.get_sample_value("kube_sync_decision_subscribers")


async def _records(response: aiohttp.ClientResponse, count: int) -> list[Record]:
    return [decode(await response.content.readline()) for _ in range(count)]


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    file = tmp_path / "token"
    file.write_text("secret\n")
    return file


async def test_a_stream_is_a_snapshot_then_a_bookmark_then_changes() -> None:
    hub = DecisionHub("me")
    _update(hub, "a", "1")
    async with _served(hub) as url, _opened(url) as response:
        assert response.headers["Content-Type"] == "application/x-ndjson"
        assert await _records(response, 4) == [
            StatusRecord(("the decisions are being sent",), "me"),
            hub.records[_target("a")],
            StatusRecord((), "me"),
            BookmarkRecord(1, "me"),
        ]
        _update(hub, "b", "2")
        assert await _records(response, 2) == [hub.records[_target("b")], BookmarkRecord(2, "me")]


@pytest.mark.parametrize("query", ["?watch", ""])
@pytest.mark.parametrize(
    ("preferences", "grouped"),
    [("grouped", True), ("wait=5, grouped", True), ("ungrouped", False), (None, False)],
)
async def test_only_a_client_that_prefers_it_gets_one_line_for_a_class(
    preferences: str | None, *, grouped: bool, query: str
) -> None:
    hub, gvr = DecisionHub("me"), _target("a").gvr
    members = [(_target(name).key, "u") for name in "ab"]
    hub.publish_shared(gvr, members, Outcome("u", Decision({"place": "1"})), "load", "")
    headers = {} if preferences is None else {"Prefer": preferences}
    async with (
        _served(hub) as url,
        aiohttp.ClientSession() as session,
        session.get(f"{url}/{KNOWN}{query}", headers=headers) as response,
    ):
        async with asyncio.timeout(PATIENCE):
            await response.content.readline()
            line = await response.content.readline()
        found = [*decode_grouped(line)]
    assert found == [*hub.records.values()][: 2 if grouped else 1]
    assert (b'"decisions"' in line) is grouped


async def test_the_right_token_opens_the_stream(token_file: Path) -> None:
    async with _served(DecisionHub("me"), token_file) as url, _opened(url, "secret") as response:
        assert response.status == 200


async def test_a_rotated_token_replaces_the_old_one(token_file: Path) -> None:
    async with _served(DecisionHub("me"), token_file) as url:
        token_file.with_name("new").write_text("rotated")
        token_file.with_name("new").rename(token_file)
        async with _opened(url, "secret") as response:
            assert response.status == 401
        async with _opened(url, "rotated") as response:
            assert response.status == 200


async def test_old_and_new_token_overlap_while_both_are_in_the_file(token_file: Path) -> None:
    async with _served(DecisionHub("me"), token_file) as url:
        for content, statuses in (("secret\nnext", [200, 200]), ("next", [401, 200])):
            token_file.with_name("new").write_text(content)
            token_file.with_name("new").rename(token_file)
            for token, status in zip(("secret", "next"), statuses, strict=True):
                async with _opened(url, token) as response:
                    assert response.status == status


@pytest.mark.parametrize("token", [None, "wrong", "secret2", "secre"])
async def test_a_missing_or_wrong_token_is_401(token_file: Path, token: str | None) -> None:
    hub = DecisionHub("me")
    _update(hub, "a", "confidential")
    async with _served(hub, token_file) as url, _opened(url, token) as response:
        assert response.status == 401
        assert response.headers["WWW-Authenticate"] == "Bearer"
        assert await response.text() == "a bearer token is needed\n"


async def test_another_scheme_with_the_right_token_is_401(token_file: Path) -> None:
    async with (
        _served(DecisionHub("me"), token_file) as url,
        aiohttp.ClientSession(headers={"Authorization": "Basic secret"}) as session,
        session.get(url) as response,
    ):
        assert response.status == 401


async def test_a_token_that_is_no_text_is_401(token_file: Path) -> None:
    async with _served(DecisionHub("me"), token_file) as url:
        port = int(url.split(":")[2].split("/")[0])
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(f"GET {PATH} HTTP/1.1\r\nHost: x\r\n".encode())
        writer.write(b"Authorization: Bearer \xff\xfe\r\n\r\n")
        async with asyncio.timeout(PATIENCE):
            assert b" 401 " in await reader.readline()
        writer.close()
        await writer.wait_closed()


async def test_a_token_file_that_is_gone_opens_no_door(token_file: Path) -> None:
    async with _served(DecisionHub("me"), token_file) as url:
        token_file.unlink()  # noqa: ASYNC240 - a file of the test's own
        async with _opened(url, "secret") as response:
            assert response.status == 500


async def test_another_path_needs_a_token_too(token_file: Path) -> None:
    async with _served(DecisionHub("me"), token_file) as url, _opened(url + "/x") as response:
        assert response.status == 401


async def test_a_quiet_stream_gives_signs_of_life(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "KEEPALIVE_SECONDS", 0.01)
    async with _served(DecisionHub("me")) as url, _opened(url) as response:
        await _records(response, 3)
        assert await _records(response, 2) == [BookmarkRecord(0, "me")] * 2


async def test_a_slow_reader_gets_the_latest_and_not_every_step() -> None:
    hub, steps = DecisionHub("me"), 400
    async with _served(hub) as url, _opened(url) as response:
        await _records(response, 3)
        padding = "x" * 100_000  # more than the kernel and both processes buffer
        for number in range(steps):
            _update(hub, "a", f"{number} {padding}")
            _update(hub, "b", f"{number}")
            for _ in range(5):
                await asyncio.sleep(0)
        latest: dict[Target, DecisionRecord] = {}
        told = 0
        while latest != hub.records:
            (record,) = await _records(response, 1)
            if isinstance(record, DecisionRecord):
                latest[record.object] = record
                told += 1
    assert told < steps


async def test_a_reader_that_is_gone_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "KEEPALIVE_SECONDS", 0.01)
    hub = DecisionHub("me")
    async with _served(hub) as url:
        async with _opened(url) as response:
            await _records(response, 3)
            assert _subscribers() == 1
        await until(lambda: _subscribers() == 0)


async def test_a_server_that_stops_ends_its_streams() -> None:
    hub = DecisionHub("me")
    async with _served(hub) as url:
        session = aiohttp.ClientSession()
        response = await session.get(url)
        await _records(response, 3)
        assert _subscribers() == 1
    assert _subscribers() == 0
    async with session, response:
        with pytest.raises(aiohttp.ClientPayloadError):
            await response.content.read()


async def test_what_is_served_beside_the_stream_needs_the_same_token(token_file: Path) -> None:
    async def policies(_request: web.Request) -> web.Response:
        return web.Response(text="bundle")

    routes = [web.get("/v1/bundles/policies", policies)]
    app = stream_app(DecisionHub("me"), TokenFile(str(token_file)), routes)
    headers = {"Authorization": "Bearer secret"}
    async with (
        serving(app, ("127.0.0.1", 0), grace=0.05) as port,
        aiohttp.ClientSession() as session,
    ):
        url = f"http://127.0.0.1:{port}/v1/bundles/policies"
        async with session.get(url) as response:
            assert response.status == 401
        async with session.get(url, headers=headers) as response:
            assert await response.text() == "bundle"


async def test_decisions_are_served_under_the_path_of_the_policy() -> None:
    hub = DecisionHub("me")
    _update(hub, "a", "1")
    async with _served(hub) as url, _opened(f"{url}/{KNOWN}?watch") as response:
        assert response.headers["Content-Type"] == "application/x-ndjson"
        assert (await _records(response, 4))[1:] == [
            hub.records[_target("a")],
            StatusRecord((), "me"),
            BookmarkRecord(1, "me"),
        ]
        _update(hub, "a", "2")
        assert await _records(response, 1) == [hub.records[_target("a")]]


@pytest.mark.parametrize("query", ["", "?watch=false", "?watch=0"])
async def test_without_watch_the_response_ends_with_a_bookmark(query: str) -> None:
    hub = DecisionHub("me")
    _update(hub, "a", "1")
    async with _served(hub) as url, _opened(f"{url}/{KNOWN}{query}") as response:
        lines = (await response.read()).splitlines(keepends=True)
    assert [decode(line) for line in lines] == [
        StatusRecord(("the decisions are being sent",), "me"),
        hub.records[_target("a")],
        StatusRecord((), "me"),
        BookmarkRecord(1, "me"),
    ]
    assert remembered(hub, Subscription) == []


async def test_another_path_names_the_one_that_is_known() -> None:
    async with _served(DecisionHub("me")) as url, _opened(f"{url}/io/other?watch") as response:
        assert response.status == 404
        assert await response.text() == f"no decisions are made there; known: {PATH}/{KNOWN}\n"


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("watch=maybe", "watch: say"),
        ("since=7", "since: say <instance>:<seq>"),
        ("watch&since=me:x", "since: say <instance>:<seq>"),
        ("watch&since=me:-1", "since: say <instance>:<seq>"),
    ],
)
async def test_a_question_that_means_nothing_is_400(query: str, said: str) -> None:
    async with _served(DecisionHub("me")) as url, _opened(f"{url}/{KNOWN}?{query}") as response:
        assert response.status == 400
        assert (await response.text()).startswith(said)


@pytest.mark.parametrize("path", [f"/{KNOWN}?watch&", f"/{KNOWN}?", "?"])
async def test_since_leaves_out_what_was_read_before(path: str) -> None:
    hub = DecisionHub("me")
    _update(hub, "a", "1")
    _update(hub, "b", "2")
    async with _served(hub) as url, _opened(f"{url}{path}since=me:1") as response:
        assert response.headers["Kube-Sync-Resumed"] == "me:1"
        assert (await _records(response, 4))[1:] == [
            hub.records[_target("b")],
            StatusRecord((), "me"),
            BookmarkRecord(2, "me"),
        ]


@pytest.mark.parametrize("query", ["since=other:0", "watch&since=other:0", "watch&since=me:9"])
async def test_a_bookmark_of_another_process_is_410_with_a_reason(query: str) -> None:
    async with _served(DecisionHub("me")) as url, _opened(f"{url}/{KNOWN}?{query}") as response:
        assert response.status == 410
        assert (await response.text()).endswith("this is me: start afresh\n")


async def test_a_bookmark_that_is_too_old_is_410() -> None:
    hub = DecisionHub("me", ended=0)
    _update(hub, "a", "1")
    hub.delete(_target("a"))
    async with _served(hub) as url, _opened(f"{url}/{KNOWN}?watch&since=me:1") as response:
        assert response.status == 410


async def test_a_reader_that_is_too_far_behind_is_ended() -> None:
    hub = DecisionHub("me", ended=0)
    async with _served(hub) as url, _opened(url) as response:
        await _records(response, 3)
        _update(hub, "a", "1")
        hub.delete(_target("a"))
        assert await response.content.readline() == b""


async def test_a_reader_that_stops_costs_no_memory_and_no_other_reader_anything() -> None:
    hub, padding = DecisionHub("me"), "x" * 5_000
    async with _served(hub) as url, _opened(url) as slow, _opened(url) as fast:
        for response in (slow, fast):
            await _records(response, 3)
        for number in range(10_000):
            _update(hub, f"{number % 20}", f"{number} {padding}")
            if number % 100 == 0:  # and nobody waits for the slow one
                await asyncio.sleep(0)
        assert len(hub.log) == 20
        assert len(remembered(hub, Entry)) < 1_100
        last = hub.seq
        for response in (fast, slow):
            told, latest = 0, dict[Target, DecisionRecord]()
            while (record := (await _records(response, 1))[0]) != BookmarkRecord(last, "me"):
                if isinstance(record, DecisionRecord):
                    latest[record.object], told = record, told + 1
            assert latest == hub.records
            assert told < 10_000 / 2


async def test_a_snapshot_that_nobody_reads_to_its_end_ends() -> None:
    hub = DecisionHub("me")
    for number in range(1_000):
        _update(hub, f"{number}", f"{number} {'x' * 20_000}")
    async with _served(hub) as url:
        async with _opened(f"{url}/{KNOWN}") as response:
            await _records(response, 1)
        async with _opened(f"{url}/{KNOWN}") as response:
            assert len((await response.read()).splitlines()) == 1_003
