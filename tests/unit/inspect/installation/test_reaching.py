from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPException
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yaml

from kube_sync.config import Decisions, Kubernetes, Opa, Remediate, Settings
from kube_sync.errors import Misconfigured, Refused, Retriable
from kube_sync.inspect.installation.reaching import (
    Place,
    Server,
    context_namespace,
    installed_settings,
    local_url,
    port_of,
    reached,
    replaced,
)
from tests.fakes.apiserver import fake_apiserver, write_kubeconfig
from tests.fakes.http import failing
from tests.fakes.installations import define, forwarding, forwards, put_pod

STREAM = Decisions(token_file="/run/decisions/token", listen="127.0.0.1:9400")


class Page(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(self.headers["Authorization"].encode())

    def log_message(self, *_: object) -> None:
        return


@pytest.fixture
def page() -> Iterator[int]:
    server = HTTPServer(("127.0.0.1", 0), Page)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server.server_address[1]
    server.shutdown()
    thread.join()
    server.server_close()


def ask(settings: Settings) -> str:
    token = Path(settings.decisions.token_file or "").read_text(encoding="utf-8").strip()
    parts = urlsplit(settings.decisions.url)
    connection = HTTPConnection(parts.hostname or "", parts.port, timeout=10)
    try:
        connection.request("GET", parts.path, headers={"Authorization": f"Bearer {token}"})
        return connection.getresponse().read().decode()
    except HTTPException as error:
        raise ConnectionError(*error.args) from error
    finally:
        connection.close()


async def test_a_server_is_reached_with_its_token_which_goes_afterwards(
    tmp_path: Path, page: int
) -> None:
    async with fake_apiserver() as api:
        define(api)
        put_pod(api, "a", "replicate")
        place = Place(Kubernetes(api.kubeconfig(tmp_path / "k")), None, {})
        api.http.fault(forwards("a"), forwarding(page))

        def run() -> tuple[str, Path]:
            with reached(place, Settings(decisions=STREAM), "decisions") as found:
                copy = Path(found.settings.decisions.token_file or "")
                assert copy.stat().st_mode & 0o077 == 0
                return ask(found.settings), copy

        said, copy = await asyncio.to_thread(run)
        assert said == "Bearer s3cret"
        assert not copy.parent.exists()


async def test_why_there_is_no_connection_is_what_the_command_says(tmp_path: Path) -> None:
    async with fake_apiserver() as api:
        define(api)
        put_pod(api, "a", "replicate")
        place = Place(Kubernetes(api.kubeconfig(tmp_path / "k")), None, {})
        api.http.fault(forwards("a"), failing(403, "no"))

        def run() -> None:
            with reached(place, Settings(decisions=STREAM), "decisions") as found:
                try:
                    ask(found.settings)
                except OSError as error:
                    raise Retriable(str(error)) from error

        with pytest.raises(Refused, match="port 9400 of pod kube-sync/a: 403"):
            await asyncio.to_thread(run)


async def test_what_fails_by_itself_keeps_its_reason(tmp_path: Path) -> None:
    async with fake_apiserver() as api:
        define(api)
        put_pod(api, "a", "replicate")
        place = Place(Kubernetes(api.kubeconfig(tmp_path / "k")), None, {})

        def run() -> None:
            with reached(place, Settings(decisions=STREAM), "decisions"):
                msg = "its own"
                raise Retriable(msg)

        with pytest.raises(Retriable, match=r"^its own$"):
            await asyncio.to_thread(run)


async def test_a_file_that_nobody_else_can_read_is_named_unless_the_caller_has_one(
    tmp_path: Path,
) -> None:
    async with fake_apiserver() as api:
        define(api)
        put_pod(api, "a", "replicate")
        place = Place(Kubernetes(api.kubeconfig(tmp_path / "k")), None, {})
        settings = Settings(decisions=Decisions(token_file="/run/own"))

        def run(*given: str) -> str | None:
            with reached(place, settings, "decisions", frozenset(given)) as found:
                return found.settings.decisions.token_file

        with pytest.raises(Misconfigured, match="its file /run/own is of no ConfigMap and no"):
            await asyncio.to_thread(run)
        assert await asyncio.to_thread(lambda: run("token_file")) == "/run/own"


async def test_certificates_are_read_only_where_they_are_checked(tmp_path: Path) -> None:
    async with fake_apiserver() as api:
        define(api)
        put_pod(api, "a", "replicate")
        place = Place(Kubernetes(api.kubeconfig(tmp_path / "k")), None, {})

        def run(scheme: str) -> str | None:
            stream = Decisions(url=f"{scheme}://127.0.0.1:9400/v1/decisions", ca_file="/none/ca")
            with reached(place, Settings(decisions=stream), "decisions") as found:
                return found.settings.decisions.ca_file

        assert await asyncio.to_thread(run, "http") == "/none/ca"
        with pytest.raises(Misconfigured, match="its file /none/ca"):
            await asyncio.to_thread(run, "https")


async def test_the_configuration_of_the_container_is_the_commands(tmp_path: Path) -> None:
    async with fake_apiserver() as api:
        define(api)
        put_pod(api, "a", "replicate")
        place = Place(Kubernetes(api.kubeconfig(tmp_path / "k")), None, {})
        found = await installed_settings(place, "replicate")
        assert found.decisions.token_file == "/run/decisions/token"


@pytest.mark.parametrize(
    ("server", "settings", "port"),
    [
        ("decisions", Settings(decisions=Decisions(listen="0.0.0.0:9500")), 9500),
        ("remediate", Settings(remediate=Remediate(listen="127.0.0.1:9600")), 9600),
        ("opa", Settings(opa=Opa(url="https://localhost:8181")), 8181),
        ("opa", Settings(opa=Opa(url="https://opa")), 443),
        ("opa", Settings(opa=Opa(url="http://opa")), 80),
    ],
)
def test_a_server_is_at_the_port_that_it_listens_on(
    server: Server, settings: Settings, port: int
) -> None:
    assert port_of(settings, server) == port


@pytest.mark.parametrize(
    ("url", "local"),
    [
        ("https://127.0.0.1:9400/v1/decisions", "https://127.0.0.1:7/v1/decisions"),
        ("https://localhost:8181", "https://localhost:7"),
        ("http://replicator.kube-sync.svc:9400/v1", "http://localhost:7/v1"),
        ("http://10.0.0.7:9400/v1", "http://localhost:7/v1"),
    ],
)
def test_a_forwarded_server_is_asked_by_a_name_of_the_loopback(url: str, local: str) -> None:
    assert local_url(url, 7) == local


def test_the_remediators_port_takes_the_place_of_its_address() -> None:
    found = replaced(Settings(), "remediate", 7, {"token_file": "t"})
    assert (found.remediate.listen, found.remediate.token_file) == ("127.0.0.1:7", "t")


@pytest.mark.parametrize("namespace", ["shop", None])
async def test_the_namespace_of_the_context_is_known(tmp_path: Path, namespace: str | None) -> None:
    async with fake_apiserver() as api:
        file = tmp_path / "k"
        write_kubeconfig(file, api.http.url, {})
        if namespace is not None:
            text = file.read_text(encoding="utf-8")
            file.write_text(_with_namespace(text, namespace), encoding="utf-8")
        assert await context_namespace(Kubernetes(str(file))) == namespace


def _with_namespace(text: str, namespace: str) -> str:
    whole = yaml.safe_load(text)
    for context in whole["contexts"]:
        context["context"]["namespace"] = namespace
    return yaml.safe_dump(whole)
