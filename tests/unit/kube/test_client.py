from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncGenerator
from contextlib import suppress
from pathlib import Path

import pytest
from aiohttp import web
from prometheus_client import REGISTRY

from kube_sync.certificates import write_certificates
from kube_sync.config import Kubernetes
from kube_sync.errors import (
    Conflict,
    Expired,
    NotFound,
    Overloaded,
    Refused,
    Retriable,
    SyncError,
    Terminal,
)
from kube_sync.kube import client as client_module
from kube_sync.kube.client import KubeClient, Silent, failure, kube_client
from kube_sync.runtime.tls import server_context
from tests.fakes.apiserver import FakeApiServer, fake_apiserver, write_kubeconfig
from tests.fakes.clients import REPLICASETS, key, kube_of
from tests.fakes.http import Proceed, Recorded, answer, hang, served, stream

PATH = REPLICASETS.path()


def anything(_recorded: Recorded) -> bool:
    return True


@pytest.fixture
async def api() -> AsyncGenerator[FakeApiServer]:
    async with fake_apiserver() as api:
        api.define(REPLICASETS, "ReplicaSet")
        yield api


@pytest.fixture
async def client(api: FakeApiServer, tmp_path: Path) -> AsyncGenerator[KubeClient]:
    async with kube_of(api, tmp_path) as client:
        yield client


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (401, Refused),
        (403, Refused),
        (404, NotFound),
        (409, Conflict),
        (410, Expired),
        (429, Overloaded),
        (500, Retriable),
        (503, Overloaded),
        (504, Overloaded),
        (302, Terminal),
        (400, Terminal),
        (422, Terminal),
    ],
)
async def test_status_raises_what_to_do_next(
    api: FakeApiServer, client: KubeClient, code: int, kind: type[SyncError]
) -> None:
    api.http.fault(anything, answer(code, b'{"message":"because","reason":"Why"}'))
    with pytest.raises(SyncError, match=f"^{code} because") as caught:
        await client.request("GET", PATH)
    assert type(caught.value) is kind


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"404 page not found\n", "500 404 page not found"),
        (b'{"reason":"Why"}', "500 Why"),
        (b"{}", "500 no message"),
        (b"", "500 no message"),
        (b"\xff" * 999, "500 " + "\ufffd" * 200),
        (b'{"message":null}', '500 {"message":null}'),
    ],
)
def test_failure_without_a_status_quotes_what_came(body: bytes, message: str) -> None:
    assert str(failure(500, body)) == message


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        ("etcdserver: request is too large", Terminal),
        ("etcdserver: request timed out", Retriable),
    ],
)
def test_object_that_is_too_large_for_etcd_is_not_tried_again(
    message: str, kind: type[SyncError]
) -> None:
    """Whoever makes one as large as can be would have us send it, and spend moves on it, for ever.

    The API server calls it a failure of its own (500).
    """
    assert type(failure(500, json.dumps({"message": message}).encode())) is kind


@pytest.mark.parametrize(
    ("header", "seconds"), [("7", 7.0), (None, None), ("Wed, 21 Oct 2015 07:28:00 GMT", None)]
)
async def test_retry_after_is_passed_on_in_seconds(
    api: FakeApiServer, client: KubeClient, header: str | None, seconds: float | None
) -> None:
    api.http.fault(anything, answer(429, b"{}", retry_after=header))
    with pytest.raises(Retriable) as caught:
        await client.request("GET", PATH)
    assert caught.value.retry_after == seconds


async def test_unauthorized_forgets_the_credentials(
    api: FakeApiServer, client: KubeClient, tmp_path: Path
) -> None:
    """A token may have been rotated a moment ago; a minute of 401 would follow otherwise."""
    api.token = "second"
    with pytest.raises(Refused, match=r"^401 Unauthorized \(have the credentials .* expired"):
        await client.request("GET", PATH)
    api.kubeconfig(tmp_path / "kubeconfig")
    await client.request("GET", PATH)
    assert api.http.requests[-1].headers["Authorization"] == "Bearer second"


async def test_forbidden_keeps_the_credentials(
    api: FakeApiServer, client: KubeClient, tmp_path: Path
) -> None:
    api.http.fault(anything, answer(403))
    with pytest.raises(Refused):
        await client.request("GET", PATH)
    (tmp_path / "kubeconfig").unlink()
    await client.request("GET", PATH)


async def test_redirect_is_not_followed(api: FakeApiServer, client: KubeClient) -> None:
    """The token would go wherever the answer says."""

    async def elsewhere(_request: web.Request, _proceed: Proceed) -> web.StreamResponse:
        return web.Response(status=307, headers={"Location": "/stolen"})

    api.http.fault(lambda r: r.path == PATH, elsewhere)
    with pytest.raises(Terminal, match="307"):
        await client.request("GET", PATH)
    assert [request.path for request in api.http.requests] == [PATH]


async def test_refused_connection_is_retriable_and_names_the_server(
    api: FakeApiServer, client: KubeClient
) -> None:
    await api.http.stop()
    with pytest.raises(Retriable, match=f"API server {api.http.url}: .*[Cc]onnect"):
        await client.request("GET", PATH)


def counted(method: str, status: str) -> float:
    labels = {"method": method, "status": status}
    return REGISTRY.get_sample_value("kube_sync_api_requests_total", labels) or 0.0


@pytest.mark.parametrize("status", ["200", "403"])
async def test_request_is_counted_by_its_status(
    api: FakeApiServer, client: KubeClient, status: str
) -> None:
    before = counted("GET", status)
    if status == "403":
        api.http.fault(anything, answer(403))
    with suppress(SyncError):
        await client.request("GET", PATH)
    assert counted("GET", status) - before == 1


async def test_request_that_nobody_answers_is_counted_too(
    api: FakeApiServer, client: KubeClient
) -> None:
    before = counted("DELETE", "none")
    await api.http.stop()
    with pytest.raises(Retriable):
        await client.request("DELETE", PATH)
    assert counted("DELETE", "none") - before == 1


async def test_connection_cut_in_mid_answer_is_retriable(
    api: FakeApiServer, client: KubeClient
) -> None:
    api.http.fault(anything, stream(b'{"items":[', cut=True))
    with pytest.raises(Retriable, match=f"API server {api.http.url}: "):
        await client.request("GET", PATH)


async def test_request_without_an_answer_is_retriable(
    api: FakeApiServer, client: KubeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "_REQUEST_SECONDS", 0.05)
    api.http.fault(anything, hang())
    with pytest.raises(Retriable, match="no answer in time"):
        await client.request("GET", PATH)


async def test_silent_stream_is_retriable(api: FakeApiServer, client: KubeClient) -> None:
    """A watch whose connection died without a word must not be waited on for ever."""
    params = {"watch": "1", "resourceVersion": "100"}
    with pytest.raises(Silent, match="nothing for 0 s"):  # noqa: PT012 - the open is not it
        async with client.stream(PATH, params=params, accept="*/*", silence=0.05) as content:
            async for _ in content.iter_any():
                pass
    assert api.http.requests[-1].query["watch"] == "1"


async def test_stream_that_does_not_begin_is_no_silent_one(
    api: FakeApiServer, client: KubeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that takes connections and says nothing is not there."""
    monkeypatch.setattr(client_module, "_ANSWER_SECONDS", 0.05)
    api.http.fault(anything, hang())
    with pytest.raises(Retriable, match="no answer in time") as caught:
        async with client.stream(PATH, params={}, accept="*/*", silence=60):
            pass
    assert not isinstance(caught.value, Silent)


async def test_body_of_a_request_has_its_type_and_others_have_none(
    api: FakeApiServer, client: KubeClient
) -> None:
    api.http.fault(anything, answer(200, b"{}"), times=2)
    await client.request("POST", PATH, body=b"{}")
    assert api.http.requests[-1].headers["Content-Type"] == "application/json"
    await client.request("GET", PATH, accept="text/plain")
    assert "Content-Type" not in api.http.requests[-1].headers
    assert api.http.requests[-1].headers["Accept"] == "text/plain"
    assert api.http.requests[-1].headers["User-Agent"].startswith("kube-sync/")


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tls")
    write_certificates(folder, ["api.example", "127.0.0.1"])
    return folder


@pytest.fixture
async def https(certificates: Path) -> AsyncGenerator[FakeApiServer]:
    api = FakeApiServer()
    api.define(REPLICASETS, "ReplicaSet")
    tls = server_context(str(certificates / "tls.crt"), str(certificates / "tls.key"))
    tls.load_verify_locations(certificates / "ca.crt")
    api.http.tls = tls
    async with served(api, api.http):
        yield api


async def test_certificate_of_an_unknown_authority_is_named(
    https: FakeApiServer, tmp_path: Path
) -> None:
    write_kubeconfig(tmp_path / "kubeconfig", https.http.url, {"token": "t"})
    async with kube_client(Kubernetes(kubeconfig=str(tmp_path / "kubeconfig"))) as client:
        with pytest.raises(Retriable, match=r"its certificate is not accepted: .*verify failed"):
            await client.request("GET", PATH)


async def test_known_authority_and_server_name_are_accepted(
    https: FakeApiServer, certificates: Path, tmp_path: Path
) -> None:
    https.put(REPLICASETS, key("web"))
    trusted = {"certificate-authority": str(certificates / "ca.crt")}
    write_kubeconfig(
        tmp_path / "kubeconfig", https.http.url, {}, **trusted, **{"tls-server-name": "api.example"}
    )
    async with kube_client(Kubernetes(kubeconfig=str(tmp_path / "kubeconfig"))) as client:
        async with asyncio.timeout(30):
            assert b'"web"' in await client.request("GET", PATH)
    write_kubeconfig(
        tmp_path / "kubeconfig", https.http.url, {}, **trusted, **{"tls-server-name": "other"}
    )
    async with kube_client(Kubernetes(kubeconfig=str(tmp_path / "kubeconfig"))) as client:
        with pytest.raises(Retriable, match=r"certificate is not accepted: .*other"):
            await client.request("GET", PATH)


async def test_verification_is_skipped_only_where_the_kubeconfig_says_so(
    https: FakeApiServer, tmp_path: Path
) -> None:
    skipped = {"insecure-skip-tls-verify": True}
    write_kubeconfig(tmp_path / "kubeconfig", https.http.url, {}, **skipped)
    async with kube_client(Kubernetes(kubeconfig=str(tmp_path / "kubeconfig"))) as client:
        await client.request("GET", PATH)


async def test_client_certificate_is_presented(
    https: FakeApiServer, certificates: Path, tmp_path: Path
) -> None:
    assert https.http.tls is not None
    https.http.tls.verify_mode = ssl.CERT_REQUIRED
    user = {
        "client-certificate": str(certificates / "tls.crt"),
        "client-key": str(certificates / "tls.key"),
    }
    trusted = {"certificate-authority": str(certificates / "ca.crt")}
    write_kubeconfig(tmp_path / "kubeconfig", https.http.url, user, **trusted)
    async with kube_client(Kubernetes(kubeconfig=str(tmp_path / "kubeconfig"))) as client:
        await client.request("GET", PATH)
    assert "Authorization" not in https.http.requests[-1].headers


async def test_without_tls_no_certificate_is_read(
    api: FakeApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ssl, "create_default_context", None)
    api.put(REPLICASETS, key("web"))
    write_kubeconfig(tmp_path / "kubeconfig", api.http.url, {"token": "t"})
    async with kube_client(Kubernetes(kubeconfig=str(tmp_path / "kubeconfig"))) as client:
        assert b'"web"' in await client.request("GET", PATH)
