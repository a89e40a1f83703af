from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import pytest

from kube_sync import __version__
from kube_sync.config import Decisions, Kubernetes, Opa, Settings
from kube_sync.errors import NotFound, Refused, Retriable, SyncError
from kube_sync.inspect import versions
from kube_sync.inspect.versions import Client, Version, Versions
from tests.fakes.apiserver import fake_apiserver
from tests.fakes.http import FakeServer, Handler, answer, served

SAID = {"v": 1, "version": "0.1.0", "policies": "ab12", "opa": "1.22.0"}


async def of(handler: Handler) -> versions.Server:
    server = FakeServer(lambda _request, _recorded: _never())
    async with served(server, server):
        server.fault(lambda one: one.path == "/v1/version", handler)
        return await versions.of_replicator(Decisions(url=f"{server.url}/v1/decisions"))


async def _never() -> None:
    raise AssertionError


def saying(**changes: Any) -> Handler:
    return answer(200, json.dumps(SAID | changes).encode())


async def test_the_replicator_says_what_runs_there() -> None:
    found = await of(saying())
    assert found == versions.Server(Version("0.1.0"), Version("1.22.0"), Version("ab12"))


async def test_what_the_replicator_does_not_know_has_a_reason() -> None:
    found = await of(saying(opa=None, opa_error="OPA: refused", policies=""))
    assert str(found.opa) == "not known: OPA: refused"
    assert str(found.policies) == "not known: no policies are in force"
    assert str((await of(saying(opa=None))).opa) == "not known: OPA does not say it"


@pytest.mark.parametrize(
    ("handler", "kind", "said"),
    [
        (answer(401), Refused, "is decisions.token_file the right one"),
        (answer(404), NotFound, "older than this question"),
        (answer(500), Retriable, "500"),
        (answer(200, b"<html>"), Retriable, "what answers is no replicator"),
    ],
)
async def test_another_answer_is_an_error(
    handler: Handler, kind: type[SyncError], said: str
) -> None:
    with pytest.raises(kind, match=said):
        await of(handler)


async def test_the_api_server_says_its_version_or_why_not(tmp_path: Path) -> None:
    async with fake_apiserver() as api:
        kubernetes = Kubernetes(api.kubeconfig(tmp_path / "k"))
        api.http.fault(lambda _: True, answer(200, b'{"gitVersion": "v1.36.0"}'))
        assert await versions.of_api_server(kubernetes) == Version("v1.36.0")
        api.http.fault(lambda _: True, answer(200, b"{}"))
        assert "no API server" in str(await versions.of_api_server(kubernetes))
    assert "API server http://127.0.0.1" in str(await versions.of_api_server(kubernetes))
    assert "nowhere" in str(await versions.of_api_server(Kubernetes(str(tmp_path / "nowhere"))))


@pytest.mark.parametrize(
    ("text", "said"), [("Version: 1.22.0\nBuild: x", "1.22.0"), ("x", "does not say it")]
)
async def test_this_program_knows_itself_and_asks_its_opa(
    tmp_path: Path, text: str, said: str
) -> None:
    program = tmp_path / "opa"
    program.write_text(f"#!/bin/sh\ncat <<.\n{text}\n.\n", encoding="utf-8")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    found = await versions.of_client(Settings(opa=Opa(binary=str(program))))
    assert found.version == __version__
    assert said in str(found.opa)


async def test_without_an_opa_its_line_says_so() -> None:
    found = await versions.of_client(Settings(opa=Opa(binary="no-such-opa")))
    assert str(found.opa).startswith('not known: opa.binary: there is no program "no-such-opa"')


def test_text_has_a_line_for_each_that_was_asked() -> None:
    client = Client("0.1.0", "3.11.2", Version("1.22.0"))
    assert versions.as_text(Versions(client)).splitlines() == [
        "Client Version: 0.1.0",
        "Client Python: 3.11.2",
        "Client OPA: 1.22.0",
    ]
    away = versions.unknown("away")
    found = Versions(client, Version("v1.36.0"), away.server, away.opa, away.policies)
    assert versions.as_text(found).splitlines()[3:] == [
        "Kubernetes Version: v1.36.0",
        "Server Version: not known: away",
        "Server OPA: not known, as above",
        "Policies Revision: not known, as above",
    ]
