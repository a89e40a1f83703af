"""Certificates that are replaced under a server that goes on serving."""

from __future__ import annotations

import asyncio
import os
import shutil
import ssl
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from cryptography import x509
from prometheus_client import REGISTRY
from structlog.testing import capture_logs

from kube_sync.certificates import Authority, issue, make_authority
from kube_sync.errors import Misconfigured
from kube_sync.observability.readiness import Readiness
from kube_sync.runtime.httpserver import serving
from kube_sync.runtime.servertls import ServerTls, TlsFiles
from kube_sync.runtime.tls import client_context
from tests.unit.async_tools import running

_CONDITION = "admission certificate"


@dataclass
class World:
    """A folder as the kubelet mounts it, a server on it, and one look at the files at a time."""

    folder: Path
    readiness: Readiness = field(default_factory=Readiness)
    now: datetime = field(default_factory=lambda: datetime.now(UTC))
    client_ca: bool = False
    port: int = 0
    turns: int = 0
    look: asyncio.Event = field(default_factory=asyncio.Event)
    looked: asyncio.Event = field(default_factory=asyncio.Event)

    def mount(self, **files: bytes) -> None:
        """Replace all files at once, by swapping a symbolic link."""
        self.turns += 1
        versioned = self.folder / f"..{self.turns}"
        versioned.mkdir()
        for name, content in files.items():
            (versioned / f"{name}.pem").write_bytes(content)
            if not (self.folder / f"{name}.pem").is_symlink():
                (self.folder / f"{name}.pem").symlink_to(f"..data/{name}.pem")
        (self.folder / "..new").symlink_to(versioned.name)
        os.replace(self.folder / "..new", self.folder / "..data")  # noqa: PTH105 - it is atomic
        if self.turns > 1:
            shutil.rmtree(self.folder / f"..{self.turns - 1}")

    def issue(self, authority: Authority, name: str, **also: bytes) -> None:
        """Mount a new pair."""
        pair = issue(authority, name, ["127.0.0.1"])
        self.mount(cert=pair.cert_pem, key=pair.key_pem, **also)

    def files(self) -> TlsFiles:
        """Return where they are."""
        cert, key, ca = (str(self.folder / f"{name}.pem") for name in ("cert", "key", "ca"))
        return TlsFiles(cert, key, ca if self.client_ca else None)

    async def sleep(self, _seconds: float) -> None:
        """Wait until the test wants another look."""
        self.looked.set()
        await self.look.wait()
        self.look.clear()

    async def next_look(self) -> None:
        """Return when the files have been looked at (again)."""
        self.looked.clear()
        self.look.set()
        await self.looked.wait()

    async def served(self, tls: ssl.SSLContext) -> str:
        """Return the common name that a new connection is shown."""
        _, writer = await asyncio.open_connection("127.0.0.1", self.port, ssl=tls)
        subject = writer.get_extra_info("peercert")["subject"]
        writer.close()
        return str(subject[0][0][1])

    @property
    def said(self) -> str:
        """What the readiness page says."""
        return self.readiness.conditions[_CONDITION]


@asynccontextmanager
async def _serving(world: World) -> AsyncGenerator[ServerTls]:
    found = ServerTls(
        "admission", world.files(), world.readiness, sleep=world.sleep, now=lambda: world.now
    )

    async def hello(_request: web.Request) -> web.Response:
        return web.Response(text="hello")

    app = web.Application()
    app.router.add_get("/", hello)
    async with (
        serving(app, ("127.0.0.1", 0), found.context, 0.05) as world.port,
        running(found.follow()),
    ):
        await world.looked.wait()
        yield found


@pytest.fixture
def authority() -> Authority:
    return make_authority("servers")


@pytest.fixture
def trust(tmp_path: Path, authority: Authority) -> ssl.SSLContext:
    (tmp_path / "trusted.pem").write_bytes(authority.cert_pem)
    return client_context(str(tmp_path / "trusted.pem"))


@pytest.fixture
def world(tmp_path: Path, authority: Authority) -> World:
    world = World(tmp_path / "mounted")
    world.folder.mkdir()
    world.issue(authority, "first")
    return world


async def test_a_new_pair_is_served_without_a_restart(
    world: World, authority: Authority, trust: ssl.SSLContext
) -> None:
    async with _serving(world):
        assert await world.served(trust) == "first"
        world.issue(authority, "second")
        await world.next_look()
        assert await world.served(trust) == "second"
        world.issue(authority, "third")
        await world.next_look()
        assert await world.served(trust) == "third"
    assert world.said == "ok"


async def test_a_client_that_names_no_server_gets_the_new_pair_too(
    world: World, authority: Authority, trust: ssl.SSLContext
) -> None:
    """As the API server where the webhook has a URL with an address."""
    trust.check_hostname = False
    async with _serving(world):
        world.issue(authority, "second")
        await world.next_look()
        _, writer = await asyncio.open_connection(
            "127.0.0.1", world.port, ssl=trust, server_hostname=""
        )
        assert writer.get_extra_info("peercert")["subject"] == ((("commonName", "second"),),)
        writer.close()


async def test_an_open_connection_outlives_its_certificate(
    world: World, authority: Authority, trust: ssl.SSLContext
) -> None:
    async with _serving(world), aiohttp.ClientSession() as session:
        for name in ("second", "third"):
            url = f"https://127.0.0.1:{world.port}/"
            async with session.get(url, ssl=trust) as response:
                assert await response.text() == "hello"
            world.issue(authority, name)
            await world.next_look()


@pytest.mark.parametrize(
    ("broken", "why"),
    [
        ({"cert": None}, "are not a certificate and its key"),  # of another key
        ({"cert": b""}, "are not a certificate and its key"),
        ({"key": b"-----BEGIN PRIVATE KEY-----\n"}, "are not a certificate and its key"),
        ({"key": ...}, "key.pem: No such file"),
    ],
)
async def test_a_bad_pair_leaves_the_last_good_one_in_use_is_told_once_and_mended(
    world: World,
    authority: Authority,
    trust: ssl.SSLContext,
    broken: dict[str, object],
    why: str,
) -> None:
    async with _serving(world):
        pair, other = (issue(authority, name, ["127.0.0.1"]) for name in ("second", "other"))
        files = {"cert": pair.cert_pem, "key": pair.key_pem}
        for name, content in broken.items():
            if isinstance(content, bytes):
                files[name] = content
            elif content is None:
                files[name] = other.cert_pem
            else:
                del files[name]
        with capture_logs() as logs:
            world.mount(**files)
            await world.next_look()
            await world.next_look()
        assert await world.served(trust) == "first"
        assert [log["event"] for log in logs] == ["certificate_not_good"]
        assert world.said.startswith("the last good certificate is in use, since ")
        assert why in world.said
        assert world.readiness.reasons == {}  # it serves on
        world.mount(cert=pair.cert_pem, key=pair.key_pem)
        await world.next_look()
        assert await world.served(trust) == "second"
        assert world.said == "ok"


async def test_an_authority_that_was_taken_out_is_no_longer_trusted(
    world: World, tmp_path: Path, authority: Authority, trust: ssl.SSLContext
) -> None:
    world.client_ca = True
    old, new = make_authority("old clients"), make_authority("new clients")
    client = issue(old, "client", ["client"])
    (tmp_path / "client.pem").write_bytes(client.cert_pem + client.key_pem)
    trust.load_cert_chain(str(tmp_path / "client.pem"))
    world.issue(authority, "first", ca=old.cert_pem)

    async def status() -> int:
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"https://127.0.0.1:{world.port}/", ssl=trust) as response,
        ):
            return response.status

    async with _serving(world):
        assert await status() == 200
        world.issue(authority, "second", ca=old.cert_pem + new.cert_pem)
        await world.next_look()
        assert await status() == 200
        world.issue(authority, "third", ca=new.cert_pem)
        await world.next_look()
        with pytest.raises(aiohttp.ClientError):
            await status()


async def test_no_session_of_a_client_with_a_certificate_is_resumed(
    world: World, tmp_path: Path, authority: Authority, trust: ssl.SSLContext
) -> None:
    """It would go on although its authority is no longer trusted."""
    world.client_ca = True
    client = issue(authority, "client", ["client"])
    (tmp_path / "client.pem").write_bytes(client.cert_pem + client.key_pem)
    trust.load_cert_chain(str(tmp_path / "client.pem"))
    world.issue(authority, "first", ca=authority.cert_pem)
    async with _serving(world):
        reader, writer = await asyncio.open_connection("127.0.0.1", world.port, ssl=trust)
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert b" 200 " in await reader.readline()
        session = writer.get_extra_info("ssl_object").session
        writer.close()
    assert session is None or not session.has_ticket


@pytest.mark.parametrize(
    ("name", "why"),
    [("cert", "are not a certificate"), ("key", "are not a certif"), ("ca", "no certificate auth")],
)
def test_a_file_that_is_wrong_at_the_start_is_named(world: World, name: str, why: str) -> None:
    pair = issue(make_authority("a"), "b", ["c"])
    files = {"cert": pair.cert_pem, "key": pair.key_pem, "ca": pair.cert_pem} | {name: b"hello"}
    world.client_ca = True
    world.mount(**files)
    with pytest.raises(Misconfigured, match=rf"{name}\.pem.* {why}"):
        ServerTls("admission", world.files(), world.readiness)


def test_a_file_that_is_missing_at_the_start_is_named(world: World) -> None:
    world.client_ca = True
    with pytest.raises(Misconfigured, match=r"ca\.pem: No such file"):
        ServerTls("admission", world.files(), world.readiness)


class Swapped(TlsFiles):
    """Files that are swapped between two readings of them."""

    def content(self) -> tuple[bytes, ...]:
        return (b"half of a certificate", b"")


def test_a_certificate_that_was_being_replaced_as_it_was_read_is_named(world: World) -> None:
    files = world.files()
    with pytest.raises(Misconfigured, match=r"cert\.pem: "):
        ServerTls("admission", Swapped(files.cert, files.key), world.readiness)


async def test_when_a_certificate_expires_is_measured(world: World, authority: Authority) -> None:
    async with _serving(world):
        world.issue(authority, "second")
        await world.next_look()
        expires = x509.load_pem_x509_certificate(
            (world.folder / "cert.pem").read_bytes()
        ).not_valid_after_utc
    assert (
        REGISTRY.get_sample_value(
            "kube_sync_certificate_expiry_timestamp_seconds", {"server": "admission"}
        )
        == expires.timestamp()
    )


async def test_an_expired_certificate_is_told(world: World) -> None:
    async with _serving(world):
        world.now += timedelta(days=366)
        with capture_logs() as logs:
            await world.next_look()
        assert "cert.pem: expired on 2" in world.said
        assert [log["event"] for log in logs] == ["not_ready"]
