"""Whatever is sent to the webhook gets a clear status, and the server lives on."""

from __future__ import annotations

import asyncio
import gzip
import json
import resource
from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from kube_sync.admission.server import PATH
from kube_sync.config import Admission
from tests.fakes.reviewing import RESOURCE, Judge, Webhook, webhook
from tests.fakes.reviews import body as review_body
from tests.unit.async_tools import until

_LIMIT = 100_000
_HUGE = 10 << 20
_HEAD = f"POST {PATH}?timeout=500ms HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"


@pytest.fixture
async def server(certificates: Path) -> AsyncGenerator[Webhook]:
    """A webhook that answers a good review after whatever the test did to it."""
    async with webhook(certificates, Judge(), Admission(max_body_bytes=_LIMIT)) as server:
        yield server
        assert await server.review(RESOURCE) == {"allowed": True}


def _nested(depth: int) -> bytes:
    return b'{"a":' * depth + b"1" + b"}" * depth


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "not an AdmissionReview: "),
        (b"{", "not an AdmissionReview: "),
        (b"hello", "not an AdmissionReview: "),
        (b"\xff\xfe{}", "not an AdmissionReview: "),
        (b"[]", "not an AdmissionReview: "),
        (b"{}", "missing required field `apiVersion`"),
        (b'{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}', "field `request`"),
        (review_body(RESOURCE, uid=7), "`$.uid`"),
        (review_body(7), "not an AdmissionReview: "),
        (review_body({"metadata": {"annotations": {"a": 1}}}), "annotations"),
        (review_body(RESOURCE).replace(b"io/v1", b"io/v1beta1"), "found admission.k8s.io/v1beta1"),
        (_nested(10_000), "not an AdmissionReview: "),
        (review_body(RESOURCE)[:-2] + b',"x":' + _nested(10_000) + b"}}", "not an AdmissionReview"),
        (b"[" * 50_000, "not an AdmissionReview: "),
    ],
)
async def test_a_malformed_review_is_400_and_says_what_is_wrong(
    server: Webhook, body: bytes, reason: str
) -> None:
    status, text = await server.post(body)
    assert (status, reason in text) == (400, True), text


async def test_what_was_sent_is_not_quoted_at_length(server: Webhook) -> None:
    with capture_logs() as logs:
        body = review_body(RESOURCE).replace(b"AdmissionReview", b"s3cret" * 1000)
        assert len((await server.post(body))[1]) < 400
    assert len(logs[0]["reason"]) < 400


async def test_an_object_that_is_nested_too_deeply_is_400(server: Webhook) -> None:
    body = review_body(RESOURCE).replace(b'"web"', b'"web", "deep": ' + _nested(10_000))
    assert (await server.post(body))[0] == 400


@pytest.mark.parametrize("depth", [600, 940, 4_000])
async def test_deeply_nested_managed_fields_are_left_out_of_a_review(
    server: Webhook, depth: int
) -> None:
    """Else nobody could write such an object any more, the remediator least of all."""
    managed = b'"web", "managedFields": [{"fieldsV1": ' + _nested(depth) + b"}]"
    body = review_body(RESOURCE, oldObject=RESOURCE).replace(b'"web"', managed)
    status, text = await server.post(body)
    assert status == 200, text
    assert json.loads(text)["response"]["allowed"]


@pytest.mark.parametrize("kind", ["text/plain", "application/yaml", "application/jsonx", ""])
async def test_another_content_type_is_415_and_named(server: Webhook, kind: str) -> None:
    headers = {"Content-Type": kind}
    async with server.session.post(server.url, data=b"{}", headers=headers) as response:
        assert response.status == 415
        assert (kind or "missing") in await response.text()


async def test_a_content_type_may_have_parameters_and_capitals(server: Webhook) -> None:
    headers = {"Content-Type": "Application/JSON; charset=utf-8"}
    body = review_body(RESOURCE)
    async with server.session.post(server.url, data=body, headers=headers) as response:
        assert response.status == 200


async def test_another_path_and_another_method_are_not_answered(server: Webhook) -> None:
    async with server.session.get(server.url) as response:
        assert response.status == 405
    async with server.session.post(server.url + "/x") as response:
        assert response.status == 404


async def test_a_body_past_the_limit_is_413_and_one_at_it_is_taken(server: Webhook) -> None:
    padding = _LIMIT - len(review_body(RESOURCE | {"x": ""}))
    assert (await server.post(review_body(RESOURCE | {"x": "x" * padding})))[0] == 200
    status, text = await server.post(review_body(RESOURCE | {"x": "x" * (padding + 1)}))
    assert status == 413
    assert text == f"the body is longer than the {_LIMIT} bytes of admission.max_body_bytes\n"


async def _pieces(size: int) -> AsyncIterator[bytes]:
    for _ in range(size // 65536):
        yield b"x" * 65536


@pytest.mark.parametrize("chunked", [True, False])
async def test_10_mb_are_413_and_never_held(server: Webhook, chunked: bool) -> None:  # noqa: FBT001
    headers = {"Content-Type": "application/json"}
    if not chunked:
        headers["Content-Length"] = str(_HUGE)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(3):
        async with server.session.post(server.url, data=_pieces(_HUGE), headers=headers) as answer:
            assert answer.status == 413
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 8 << 10  # KB


async def test_a_small_body_that_unpacks_to_10_mb_is_413(server: Webhook) -> None:
    headers = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
    body = gzip.compress(b" " * _HUGE)
    async with server.session.post(server.url, data=body, headers=headers) as response:
        assert response.status == 413


async def test_a_review_as_large_as_any_object_fits_by_default(certificates: Path) -> None:
    """etcd takes objects of 1.5 MiB, and an update carries the old one too."""
    large = RESOURCE | {"data": "x" * 1_500_000}
    async with webhook(certificates, Judge()) as server:
        assert await server.review(large, oldObject=large) == {"allowed": True}


async def _connected(server: Webhook) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", server.port, ssl=server.trusting)


async def test_a_body_that_does_not_arrive_in_time_is_408(server: Webhook) -> None:
    reader, writer = await _connected(server)
    writer.write(f"{_HEAD}Content-Length: 100\r\n\r\n{{".encode())
    assert b" 408 " in await reader.readline()
    await reader.readuntil(b"\r\n\r\n")
    assert await reader.readline() == b"the body did not arrive within 0.4 s\n"
    writer.close()


async def test_a_body_that_is_not_packed_as_it_says_is_400(server: Webhook) -> None:
    headers = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
    body = review_body(RESOURCE)
    async with server.session.post(server.url, data=body, headers=headers) as response:
        assert response.status == 400
        assert "the body cannot be read: " in await response.text()


async def test_a_chunk_without_its_length_is_refused(server: Webhook) -> None:
    reader, writer = await _connected(server)
    writer.write(f"{_HEAD}Transfer-Encoding: chunked\r\n\r\n".encode())
    writer.write(b"5\r\nhello\r\nno-number\r\n")
    assert b" 40" in await reader.readline()
    writer.close()


async def test_a_client_that_leaves_in_mid_body_is_no_error(server: Webhook) -> None:
    with capture_logs() as logs:
        _, writer = await _connected(server)
        writer.write(f"{_HEAD}Content-Length: 100\r\n\r\n{{".encode())
        await writer.drain()
        writer.close()
        await until(lambda: logs)
    assert [log["event"] for log in logs] == ["request_refused"]


async def test_what_is_no_http_is_400(server: Webhook) -> None:
    reader, writer = await _connected(server)
    writer.write(b"EHLO mail\r\n\r\n")
    assert b" 400 " in await reader.readline()
    writer.close()


async def test_why_a_request_was_refused_is_told(server: Webhook) -> None:
    with capture_logs() as logs:
        await server.post(b"[]")
    assert logs[0]["event"] == "request_refused"
    assert logs[0]["status"] == 400
    assert "not an AdmissionReview" in logs[0]["reason"]
