"""What an attempt tells of every way to fail; a stand-in that is not OPA plays them."""

from __future__ import annotations

import json
import ssl
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from prometheus_client import REGISTRY

from kube_sync.admission.engine import EngineClient, engine_client
from kube_sync.admission.engine_errors import Evaluation, Failed, NoAnswer, Passing
from kube_sync.admission.engine_formats import DIALECTS, Answer
from kube_sync.admission.target import Target
from kube_sync.certificates import write_certificates
from kube_sync.errors import Misconfigured
from kube_sync.runtime.httpserver import serving
from kube_sync.runtime.tls import server_context
from tests.fakes.engine import PATH, WEB, StandIn, review, stand_in
from tests.fakes.http import answer, hang, lose_answer, stream

EVALUATION_ERROR = {
    "code": "internal_error",
    "message": "error(s) occurred while evaluating query",
    "errors": [{"code": "eval_type_error", "message": "not an object"}],
}


async def _ask(client: EngineClient) -> Answer:
    asked = review()
    return await client.ask(asked, asked.object)


async def _failure(engine: StandIn, **target: Any) -> Failed | Passing:
    async with engine_client(engine.target(**target)) as client:
        try:
            await _ask(client)
        except (Failed, Passing) as error:
            return error
    msg = "it was answered"
    raise AssertionError(msg)


async def test_any_engine_that_answers_the_call_decides() -> None:
    async with stand_in(
        lambda asked: {"annotations": {"was": asked["spec"]["replicas"]}}
    ) as engine:
        async with engine_client(engine.target()) as client:
            assert (await _ask(client)).decision == b'{"annotations": {"was": 3}}'
        (request,) = engine.http.requests
    assert (request.method, request.path, request.json()) == ("POST", PATH, {"input": WEB})
    assert request.headers["Content-Type"] == "application/json"
    assert "Authorization" not in request.headers


@pytest.mark.parametrize(("dialect", "query"), [("v1", {"provenance": "true"}), ("v0", {})])
async def test_where_it_came_from_is_asked_for_where_there_is_a_place_for_it(
    dialect: str, query: dict[str, str]
) -> None:
    async with stand_in() as engine:
        engine.http.fault(lambda _: True, answer(200, b"{}"))
        async with engine_client(engine.target(dialect)) as client:
            await client.probe()
        assert engine.http.requests[0].query == query


async def test_a_query_in_the_configured_url_is_kept() -> None:
    async with stand_in() as engine:
        target = Target(engine.http.url + "/d?a=b", DIALECTS["v1"])
        async with engine_client(target) as client:
            await _ask(client)
        assert engine.http.requests[0].query == {"a": "b", "provenance": "true"}


async def test_a_connection_is_used_again() -> None:
    ports: set[object] = set()

    async def handle(request: web.Request) -> web.Response:
        assert request.transport is not None
        ports.add(request.transport.get_extra_info("peername"))
        return web.json_response({"result": {}})

    app = web.Application()
    app.router.add_post("/d", handle)
    async with (
        serving(app, ("127.0.0.1", 0), grace=0.05) as port,
        engine_client(Target(f"http://127.0.0.1:{port}/d", DIALECTS["v1"])) as client,
    ):
        for _ in range(3):
            await _ask(client)
    assert len(ports) == 1


@pytest.mark.parametrize(
    ("status", "body", "why"),
    [
        (401, b"", "unauthorized"),
        (403, b'{"code":"unauthorized","message":"no"}', "unauthorized"),
        (404, b'{"code":"undefined_document","message":"no"}', "undefined"),
        (200, b"{}", "undefined"),
        (200, b"{", "malformed"),
        (200, b"[]", "malformed"),
        (500, json.dumps(EVALUATION_ERROR).encode(), "evaluation-error"),
        (400, b"what?", "rejected"),
        (501, b"", "rejected"),
        (307, b"", "rejected"),
    ],
)
async def test_what_asking_again_does_not_change_is_not_asked_again(
    status: int, body: bytes, why: str
) -> None:
    async with stand_in() as engine:
        engine.http.fault(lambda _: True, answer(status, body))
        error = await _failure(engine)
        assert str(error).startswith(f"policy engine {engine.http.url}{PATH}: ")
    assert isinstance(error, Failed)
    assert error.why == why


async def test_opas_account_of_an_evaluation_error_is_kept() -> None:
    async with stand_in() as engine:
        engine.http.fault(lambda _: True, answer(500, json.dumps(EVALUATION_ERROR).encode()))
        error = await _failure(engine)
    assert isinstance(error, Evaluation)
    assert error.error.errors == EVALUATION_ERROR["errors"]


@pytest.mark.parametrize(
    ("status", "why", "answered"),
    [
        (429, "overloaded", True),
        (502, "overloaded", False),
        (503, "overloaded", False),
        (504, "overloaded", False),
        (500, "failing", True),
    ],
)
async def test_a_status_that_may_pass_is_told_with_the_wait_that_it_asks_for(
    status: int, why: str, *, answered: bool
) -> None:
    async with stand_in() as engine:
        engine.http.fault(lambda _: True, answer(status, b"", retry_after="3"))
        error = await _failure(engine)
    assert isinstance(error, Passing)
    assert isinstance(error, NoAnswer) is not answered
    assert (error.why, error.retry_after) == (why, 3.0)


@pytest.mark.parametrize("said", [None, "Wed, 21 Oct 2026 07:28:00 GMT", "-1", "²"])
async def test_a_wait_that_is_no_number_of_seconds_is_left_to_the_backoff(said: str | None) -> None:
    async with stand_in() as engine:
        headers = {"Retry-After": said} if said else {}

        async def busy(_request: web.Request, _proceed: object) -> web.StreamResponse:
            return web.Response(status=429, headers=headers)

        engine.http.fault(lambda _: True, busy)
        error = await _failure(engine)
    assert isinstance(error, Passing)
    assert error.retry_after is None


async def test_an_engine_that_is_not_there_is_unreachable() -> None:
    async with stand_in() as engine:
        await engine.http.stop()
        error = await _failure(engine)
    assert isinstance(error, NoAnswer)
    assert error.why == "unreachable"


@pytest.mark.parametrize("broken", [lose_answer(), stream(b'{"resu', cut=True)], ids=["", "half"])
async def test_a_connection_that_breaks_is_no_answer(broken: Any) -> None:
    async with stand_in() as engine:
        engine.http.fault(lambda _: True, broken)
        error = await _failure(engine)
    assert isinstance(error, NoAnswer)
    assert error.why == "unreachable"


async def test_an_engine_that_hangs_is_given_up_on() -> None:
    async with stand_in() as engine:
        engine.http.fault(lambda _: True, hang())
        error = await _failure(engine, timeout_seconds=0.05)
    assert isinstance(error, NoAnswer)
    assert error.why == "timeout"


async def test_a_long_text_in_place_of_json_is_told_in_one_short_line() -> None:
    async with stand_in() as engine:
        engine.http.fault(lambda _: True, answer(400, b"<html>\n" * 1000))
        error = await _failure(engine)
    assert "\n" not in str(error)
    assert len(str(error)) < 400


async def test_the_token_of_the_file_is_shown_and_read_again(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("one")
    async with (
        stand_in() as engine,
        engine_client(engine.target(token_file=str(file))) as client,
    ):
        await _ask(client)
        file.unlink()
        with pytest.raises(Failed, match=r"token file .*: No such file") as raised:
            await _ask(client)
        assert raised.value.why == "unauthorized"
        file.write_text("another")
        await _ask(client)
        shown = [request.headers["Authorization"] for request in engine.http.requests]
    assert shown == ["Bearer one", "Bearer another"]


async def test_a_token_of_the_configuration_is_shown_and_wins_over_a_file() -> None:
    async with stand_in() as engine:
        target = engine.target(token="s3cret", token_file="/gone")
        async with engine_client(target) as client:
            await _ask(client)
        assert engine.http.requests[0].headers["Authorization"] == "Bearer s3cret"


async def test_a_token_file_that_is_missing_at_the_start_is_a_mistake() -> None:
    with pytest.raises(Misconfigured, match=r"^token file /gone"):
        async with engine_client(Target("http://e/", DIALECTS["v1"], token_file="/gone")):
            pass


async def test_a_redirect_does_not_take_the_token_elsewhere() -> None:
    async with stand_in() as engine, stand_in() as elsewhere:

        async def move(_request: web.Request, _proceed: object) -> web.StreamResponse:
            return web.Response(status=308, headers={"Location": elsewhere.http.url})

        engine.http.fault(lambda _: True, move)
        assert (await _failure(engine, token="t")).why == "rejected"
        assert elsewhere.http.requests == []


async def test_a_password_in_the_url_is_in_no_reason() -> None:
    target = Target("http://me:s3cret@127.0.0.1:1/d", DIALECTS["v1"])
    async with engine_client(target) as client:
        with pytest.raises(NoAnswer) as raised:
            await _ask(client)
        assert "s3cret" not in str(raised.value) + client.where


async def test_an_engine_over_tls_may_ask_for_our_certificate(tmp_path: Path) -> None:
    write_certificates(tmp_path, ["127.0.0.1"])
    cert, key, ca = (str(tmp_path / name) for name in ("tls.crt", "tls.key", "ca.crt"))
    tls = server_context(cert, key)
    tls.verify_mode = ssl.CERT_REQUIRED
    tls.load_verify_locations(ca)
    async with stand_in() as engine:
        await engine.http.stop()
        engine.http.tls = tls
        await engine.http.start()
        shown = engine.target(ca_file=ca, cert_file=cert, key_file=key)
        async with engine_client(shown) as client:
            assert (await _ask(client)).decision == b"{}"
        assert (await _failure(engine, ca_file=ca)).why == "unreachable"
        assert "certificate is not accepted" in str(await _failure(engine))


@pytest.mark.parametrize(
    ("status", "body"),
    [(200, b'{"result":{}}'), (200, b"{}"), (500, json.dumps(EVALUATION_ERROR).encode())],
)
async def test_whatever_a_policy_makes_of_nothing_shows_that_the_engine_answers(
    status: int, body: bytes
) -> None:
    async with stand_in() as engine, engine_client(engine.target()) as client:
        engine.http.fault(lambda _: True, answer(status, body))
        await client.probe()
        assert engine.inputs == [{}]


@pytest.mark.parametrize("status", [401, 429, 400])
async def test_a_probe_that_finds_no_engine_says_so(status: int) -> None:
    async with stand_in() as engine, engine_client(engine.target()) as client:
        engine.http.fault(lambda _: True, answer(status))
        with pytest.raises((Failed, Passing)):
            await client.probe()


async def test_attempts_are_counted_by_outcome() -> None:
    def count(outcome: str) -> float:
        name = "kube_sync_admission_engine_attempts_total"
        return REGISTRY.get_sample_value(name, {"outcome": outcome}) or 0.0

    before = count("answered"), count("overloaded")
    async with stand_in() as engine, engine_client(engine.target()) as client:
        await _ask(client)
        engine.http.fault(lambda _: True, answer(429))
        with pytest.raises(Passing):
            await _ask(client)
    assert (count("answered"), count("overloaded")) == (before[0] + 1, before[1] + 1)
