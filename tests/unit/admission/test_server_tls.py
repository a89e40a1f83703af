"""Who may call the webhook, and what becomes of whoever may not."""

from __future__ import annotations

import asyncio
import socket
import ssl
from contextlib import suppress
from pathlib import Path

import aiohttp
import pytest
from structlog.testing import capture_logs

from kube_sync.certificates import Authority, KeyPair, issue, make_authority, write_certificates
from kube_sync.config import Admission
from kube_sync.runtime.tls import client_context
from tests.fakes.reviewing import RESOURCE, Judge, Webhook, webhook
from tests.fakes.reviews import body as review_body
from tests.unit.async_tools import until

_JSON = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def authority() -> Authority:
    """Of the clients, which is not that of the server."""
    return make_authority("clients")


@pytest.fixture
def settings(tmp_path: Path, authority: Authority) -> Admission:
    (tmp_path / "clients.crt").write_bytes(authority.cert_pem)
    return Admission(client_ca_file=str(tmp_path / "clients.crt"), client_names=("api-server",))


def _client(certificates: Path, folder: Path, pair: KeyPair | None) -> ssl.SSLContext:
    context = client_context(str(certificates / "ca.crt"))
    if pair is not None:
        (folder / "client.pem").write_bytes(pair.cert_pem + pair.key_pem)
        context.load_cert_chain(str(folder / "client.pem"))
    return context


async def _status(server: Webhook, tls: ssl.SSLContext) -> tuple[int, str]:
    body = review_body(RESOURCE)
    async with (
        aiohttp.ClientSession() as session,
        session.post(server.url, data=body, headers=_JSON, ssl=tls) as response,
    ):
        return response.status, await response.text()


@pytest.mark.parametrize(
    ("common_name", "host"), [("api-server", "elsewhere"), ("somebody", "api-server")]
)
async def test_a_client_with_one_of_the_names_is_answered(
    certificates: Path,
    tmp_path: Path,
    settings: Admission,
    authority: Authority,
    common_name: str,
    host: str,
) -> None:
    tls = _client(certificates, tmp_path, issue(authority, common_name, [host]))
    async with webhook(certificates, Judge(), settings) as server:
        assert (await _status(server, tls))[0] == 200


async def test_a_client_with_another_name_is_403(
    certificates: Path, tmp_path: Path, settings: Admission, authority: Authority
) -> None:
    tls = _client(certificates, tmp_path, issue(authority, "somebody", ["elsewhere"]))
    async with webhook(certificates, Judge(), settings) as server:
        assert await _status(server, tls) == (
            403,
            "the client's certificate has none of the names in admission.client_names\n",
        )


async def test_names_without_an_authority_let_nobody_in(certificates: Path) -> None:
    """The settings refuse it; here nobody has shown a certificate."""
    settings = Admission(client_names=("api-server",))
    async with webhook(certificates, Judge(), settings) as server:
        assert (await server.post(review_body(RESOURCE)))[0] == 403


@pytest.mark.parametrize(
    ("pair", "reason"),
    [
        (None, "PEER_DID_NOT_RETURN_A_CERTIFICATE"),
        (issue(make_authority("another"), "api-server", ["x"]), "CERTIFICATE_VERIFY_FAILED"),
    ],
)
async def test_a_client_without_the_right_certificate_is_not_talked_to(
    certificates: Path, tmp_path: Path, settings: Admission, pair: KeyPair | None, reason: str
) -> None:
    tls = _client(certificates, tmp_path, pair)
    async with webhook(certificates, Judge(), settings) as server:
        with capture_logs() as logs:
            with pytest.raises(aiohttp.ClientError):
                await _status(server, tls)
            await until(lambda: logs)
        assert logs == [{"event": "tls_handshake_failed", "log_level": "info", "reason": reason}]


def _shake_hands(port: int, ca_file: Path) -> None:
    """As Go does: say why before leaving, which asyncio does not."""
    with socket.create_connection(("127.0.0.1", port)) as plain:
        client_context(str(ca_file)).wrap_socket(plain, server_hostname="127.0.0.1")


async def test_a_client_that_trusts_another_authority_leaves_and_the_reason_is_told(
    certificates: Path, tmp_path: Path
) -> None:
    write_certificates(tmp_path, ["127.0.0.1"])
    async with webhook(certificates, Judge()) as server:
        with capture_logs() as logs:
            with pytest.raises(ssl.SSLCertVerificationError):
                await asyncio.to_thread(_shake_hands, server.port, tmp_path / "ca.crt")
            await until(lambda: logs)
        assert [log["reason"] for log in logs] == ["TLSV1_ALERT_UNKNOWN_CA"]
        assert await server.review(RESOURCE) == {"allowed": True}


@pytest.mark.parametrize(
    ("sent", "reason"),
    [(b"GET / HTTP/1.1\r\n\r\n", "HTTP_REQUEST"), (b"\x00" * 100, "WRONG_VERSION_NUMBER")],
)
async def test_what_is_no_tls_is_told_and_the_server_lives_on(
    certificates: Path, sent: bytes, reason: str
) -> None:
    async with webhook(certificates, Judge()) as server:
        with capture_logs() as logs:
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(sent)
            with suppress(ConnectionError):
                await reader.read()
            writer.close()
            await until(lambda: logs)
        assert [log["event"] for log in logs] == ["tls_handshake_failed"]
        assert logs[0]["reason"] == reason
        assert await server.review(RESOURCE) == {"allowed": True}


async def test_a_port_scan_is_no_news(certificates: Path) -> None:
    async with webhook(certificates, Judge()) as server:
        with capture_logs() as logs:
            _, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.close()
            assert await server.review(RESOURCE) == {"allowed": True}
        assert [log["event"] for log in logs] == ["admission"]
