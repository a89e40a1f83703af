from __future__ import annotations

import base64
import io
import json
import ssl
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from kube_sync.admission import server
from kube_sync.admission.judge import Judge
from kube_sync.admission.policygate import PolicyGate
from kube_sync.admission.server import PATH, webhook_app
from kube_sync.certificates import write_certificates
from kube_sync.errors import SyncError, Undecided
from kube_sync.runtime.httpserver import serving
from kube_sync.runtime.tls import client_context, server_context


@dataclass
class Engine:
    """Answers what the test says; the bodies it was asked with are kept."""

    answer: bytes | SyncError | None = b"{}"
    asked: list[bytes] = field(default_factory=list)

    async def query(self, path: str, body: bytes) -> bytes | None:
        assert path == "p"
        self.asked.append(body)
        if isinstance(self.answer, SyncError):
            raise self.answer
        return self.answer


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("certificates")
    write_certificates(folder, ["127.0.0.1"])
    return folder


@dataclass
class Webhook:
    """The webhook over TLS, called as the API server does."""

    session: aiohttp.ClientSession
    url: str
    engine: Engine

    async def post(self, body: bytes, **params: str) -> tuple[int, str]:
        async with self.session.post(self.url, data=io.BytesIO(body), params=params) as response:
            return response.status, await response.text()

    async def review(self, resource: object, **request: object) -> dict[str, Any]:
        status, text = await self.post(_body(resource, **request), timeout="5s")
        assert status == 200
        response: dict[str, Any] = json.loads(text)["response"]
        assert response.pop("uid") == "r1"
        return response


@asynccontextmanager
async def _webhook(
    folder: Path, engine: Engine, judge: Judge | None = None
) -> AsyncGenerator[Webhook]:
    app = webhook_app(judge or Judge(engine, "p", PolicyGate([], static=True)))
    tls = server_context(str(folder / "tls.crt"), str(folder / "tls.key"))
    connector = aiohttp.TCPConnector(ssl=client_context(str(folder / "ca.crt")))
    async with (
        serving(app, ("127.0.0.1", 0), tls, grace=0.05) as port,
        aiohttp.ClientSession(connector=connector) as session,
    ):
        yield Webhook(session, f"https://127.0.0.1:{port}{PATH}", engine)


def _body(resource: object, **request: object) -> bytes:
    return json.dumps(
        {
            "apiVersion": "admission.k8s.io/v1",
            "kind": "AdmissionReview",
            "request": {"uid": "r1", "operation": "CREATE", "object": resource} | request,
        }
    ).encode()


RESOURCE = {"metadata": {"name": "web"}}


async def test_a_decision_comes_back_as_a_patch(certificates: Path) -> None:
    engine = Engine(b'{"annotations":{"a":"1"}}')
    async with _webhook(certificates, engine) as webhook:
        response = await webhook.review(RESOURCE)
    assert json.loads(base64.b64decode(response.pop("patch"))) == [
        {
            "op": "add",
            "path": "/metadata/annotations",
            "value": {"a": "1", "kube-sync.io/requested": '{"a":null}'},
        }
    ]
    assert response == {"allowed": True, "patchType": "JSONPatch"}
    assert json.loads(engine.asked[0]) == {"input": RESOURCE}


async def test_errors_of_the_policy_deny_with_all_reasons(certificates: Path) -> None:
    async with _webhook(certificates, Engine(b'{"errors":["no PCI","no EU"]}')) as webhook:
        assert await webhook.review(RESOURCE) == {
            "allowed": False,
            "status": {"code": 403, "message": "no PCI; no EU", "reason": "Forbidden"},
        }


@pytest.mark.parametrize("answer", [None, Undecided("conflict"), b"[]"])
async def test_no_decision_denies_with_a_reason(
    certificates: Path, answer: bytes | SyncError | None
) -> None:
    async with _webhook(certificates, Engine(answer)) as webhook:
        response = await webhook.review(RESOURCE)
    assert response["allowed"] is False
    assert response["status"]["code"] == 503
    assert response["status"]["message"].startswith(
        "there is a placement policy, but no decision of it: "
    )


async def test_a_deletion_is_allowed_and_nobody_is_asked(certificates: Path) -> None:
    """The only way out when a policy refuses everything."""
    engine = Engine(b'{"errors":["no"]}')
    async with _webhook(certificates, engine) as webhook:
        assert await webhook.review(None, operation="DELETE") == {"allowed": True}
    assert engine.asked == []


@pytest.mark.parametrize("body", [b"", b"{", b"{}", b"hello"])
async def test_a_malformed_body_is_400_with_the_reason(certificates: Path, body: bytes) -> None:
    async with _webhook(certificates, Engine()) as webhook:
        status, text = await webhook.post(body)
    assert status == 400
    assert text.startswith("not an AdmissionReview: ")


async def test_a_body_past_the_limit_is_413(
    certificates: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "_MAX_BODY", 1000)
    async with _webhook(certificates, Engine()) as webhook:
        assert (await webhook.post(_body({"metadata": {"name": "x" * 2000}})))[0] == 413
        assert (await webhook.post(_body({"metadata": {"name": "x" * 500}})))[0] == 200


async def test_a_review_as_large_as_any_object_fits(certificates: Path) -> None:
    """etcd takes objects of 1.5 MiB, and an update carries the old one too."""
    resource = {"metadata": {"name": "web"}, "data": "x" * 1_500_000}
    async with _webhook(certificates, Engine()) as webhook:
        assert await webhook.review(resource, oldObject=resource) == {"allowed": True}


async def test_another_path_and_another_method_are_not_answered(certificates: Path) -> None:
    async with _webhook(certificates, Engine()) as webhook:
        async with webhook.session.get(webhook.url) as response:
            assert response.status == 405
        async with webhook.session.post(webhook.url + "/x") as response:
            assert response.status == 404


async def test_a_client_without_the_authority_is_not_talked_to(certificates: Path) -> None:
    async with _webhook(certificates, Engine()) as webhook, aiohttp.ClientSession() as stranger:
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            await stranger.post(webhook.url, ssl=ssl.create_default_context())


class Deadline(Judge):
    """A judge that only notes how long it may take."""

    def __init__(self) -> None:
        super().__init__(Engine(), "p", PolicyGate([], static=False))
        self.seconds: list[float] = []

    async def verdict(self, resource: Any, seconds: float) -> Any:
        self.seconds.append(seconds)
        return await super().verdict(resource, seconds)


@pytest.mark.parametrize(
    ("given", "seconds"),
    [
        ("5s", 4.0),
        ("1m30s", 72.0),
        ("500ms", 0.4),
        ("2.5s", 2.0),
        ("1s500ms", 1.2),
        ("0s", 8.0),
        ("", 8.0),
        ("soon", 8.0),
    ],
)
async def test_a_fifth_of_the_api_servers_time_is_left_for_the_way_back(
    certificates: Path, given: str, seconds: float
) -> None:
    judge = Deadline()
    async with _webhook(certificates, Engine(), judge) as webhook:
        await webhook.post(_body(RESOURCE), timeout=given)
        await webhook.post(_body(RESOURCE))
    assert judge.seconds == pytest.approx([seconds, 8.0])
