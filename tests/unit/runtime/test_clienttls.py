# ruff: noqa: ASYNC240 - a test has nothing else to do while it writes a small file
"""Authorities and client certificates that are replaced under clients that go on asking."""

from __future__ import annotations

import os
import ssl
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from structlog.testing import capture_logs

from kube_sync.certificates import Authority, KeyPair, issue, make_authority
from kube_sync.errors import Misconfigured
from kube_sync.runtime.clienttls import ClientTls, client_tls
from kube_sync.runtime.httpserver import serving
from kube_sync.runtime.tls import server_context

OLD, NEW = make_authority("old"), make_authority("new")


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def replace(path: Path, content: bytes) -> Path:
    """Replace a file at once, as a mounted Secret is."""
    path.with_suffix(".next").write_bytes(content)
    os.replace(path.with_suffix(".next"), path)  # noqa: PTH105 - it is atomic
    return path


def pair_in(folder: Path, pair: KeyPair) -> tuple[str, str]:
    cert = replace(folder / "tls.crt", pair.cert_pem)
    key = replace(folder / "tls.key", pair.key_pem)
    return str(cert), str(key)


@asynccontextmanager
async def server(
    folder: Path, authority: Authority, clients: Authority | None = None
) -> AsyncGenerator[str]:
    """Serve by a certificate of this authority, to clients of that one where it is given."""
    folder.mkdir(exist_ok=True)
    files = pair_in(folder, issue(authority, "server", ["127.0.0.1"]))
    ca = replace(folder / "clients.crt", clients.cert_pem) if clients else None
    app = web.Application()
    app.router.add_get("/", _hello)
    context = server_context(*files, str(ca) if ca else None)
    async with serving(app, ("127.0.0.1", 0), context) as port:
        yield f"https://127.0.0.1:{port}/"


async def _hello(_request: web.Request) -> web.Response:
    return web.Response(text="hello")


@pytest.fixture
async def session() -> AsyncGenerator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


async def status(session: aiohttp.ClientSession, url: str, tls: ClientTls) -> int | None:
    """Ask once; None where the one does not trust the other."""
    try:
        async with session.get(url, ssl=tls.current()) as response:
            return response.status
    except aiohttp.ClientError:
        return None


async def test_old_and_new_authority_overlap_and_the_old_one_ends(
    session: aiohttp.ClientSession, tmp_path: Path
) -> None:
    """A rotation in three steps: both are trusted, the server changes, one is trusted."""
    ca, clock = replace(tmp_path / "ca.crt", OLD.cert_pem), Clock()
    tls = ClientTls(str(ca), clock=clock)
    async with server(tmp_path / "1", OLD) as one, server(tmp_path / "2", NEW) as other:
        asked = [await status(session, url, tls) for url in (one, other)]
        assert asked == [200, None]
        replace(ca, OLD.cert_pem + NEW.cert_pem)
        clock.now += 5
        assert [await status(session, url, tls) for url in (one, other)] == [200, 200]
        replace(ca, NEW.cert_pem)
        clock.now += 5
        assert [await status(session, url, tls) for url in (one, other)] == [None, 200]


async def test_a_client_certificate_is_replaced(
    session: aiohttp.ClientSession, tmp_path: Path
) -> None:
    ca, clock = replace(tmp_path / "ca.crt", NEW.cert_pem), Clock()
    files = pair_in(tmp_path, issue(OLD, "client", ["client"]))
    tls = ClientTls(str(ca), *files, clock=clock)
    async with server(tmp_path / "1", NEW, clients=NEW) as url:
        assert await status(session, url, tls) is None
        pair_in(tmp_path, issue(NEW, "client", ["client"]))
        assert await status(session, url, tls) is None, "the files are not looked at each time"
        clock.now += 5
        assert await status(session, url, tls) == 200


def test_nothing_new_keeps_the_context_and_with_it_the_connections(tmp_path: Path) -> None:
    ca, clock = replace(tmp_path / "ca.crt", OLD.cert_pem), Clock()
    tls = ClientTls(str(ca), clock=clock)
    first = tls.current()
    replace(ca, OLD.cert_pem)
    clock.now += 60
    assert tls.current() is first


@pytest.mark.parametrize("half", [b"", b"-----BEGIN CERTIFICATE-----\nMII", None])
def test_what_is_half_written_or_gone_leaves_the_last_good_in_use_and_is_told_once(
    tmp_path: Path, half: bytes | None
) -> None:
    clock = Clock()
    files = pair_in(tmp_path, issue(OLD, "client", ["client"]))
    tls = ClientTls(None, *files, clock=clock)
    first = tls.current()
    if half is None:
        Path(files[0]).unlink()
    else:
        replace(Path(files[0]), half)
    with capture_logs() as logs:
        for _ in range(3):
            clock.now += 5
            assert tls.current() is first
    assert [log["event"] for log in logs] == ["client_certificates_not_good"]
    assert "tls.crt" in logs[0]["reason"]
    pair_in(tmp_path, issue(OLD, "client", ["client"]))
    clock.now += 5
    with capture_logs() as logs:
        assert tls.current() is not first
    assert [log["event"] for log in logs] == ["client_certificates_loaded"]


def test_a_key_that_comes_before_its_certificate_is_waited_for(tmp_path: Path) -> None:
    clock = Clock()
    cert, key = pair_in(tmp_path, issue(OLD, "client", ["client"]))
    tls = ClientTls(None, cert, key, clock=clock)
    first, renewed = tls.current(), issue(OLD, "client", ["client"])
    replace(Path(key), renewed.key_pem)
    clock.now += 5
    assert tls.current() is first
    replace(Path(cert), renewed.cert_pem)
    clock.now += 5
    assert tls.current() is not first


def test_a_file_that_is_missing_at_the_start_is_a_mistake(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match=r"gone\.crt: No such file"):
        client_tls("https://opa", str(tmp_path / "gone.crt"))


def test_an_address_without_tls_needs_no_files(tmp_path: Path) -> None:
    assert client_tls("http://opa", str(tmp_path / "gone.crt"))() is True


def test_without_files_the_machines_authorities_are_trusted() -> None:
    context = client_tls("https://opa", None)()
    assert isinstance(context, ssl.SSLContext)
    assert context.verify_mode is ssl.CERT_REQUIRED
