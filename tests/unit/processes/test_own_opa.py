from __future__ import annotations

import asyncio
import os
import stat
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from kube_sync.cli.runner import awaited
from kube_sync.config import Decisions, Opa, Settings, Source
from kube_sync.errors import Misconfigured
from kube_sync.processes.own_opa import arguments, may_start, own_opa
from tests.eventually import eventually
from tests.unit.async_tools import running
from tools.servers.running import free_port

ADDRESS = "127.0.0.1:7"


def test_policies_come_from_this_process_where_it_serves_them_without_a_token() -> None:
    found = arguments(Decisions(listen="0.0.0.0:9500"), ADDRESS)
    assert found[:3] == ["run", "--server", "--addr=127.0.0.1:7"]
    assert "--set=services.replicator.url=http://127.0.0.1:9500" in found
    found = arguments(Decisions(listen="[::1]:9500"), ADDRESS)
    assert "--set=services.replicator.url=http://[::1]:9500" in found
    secured = arguments(Decisions(token_file="t"), ADDRESS)
    assert not [one for one in secured if one.startswith("--set")]


def test_none_is_started_in_a_pod_nor_where_an_address_is_set() -> None:
    """In a pod the OPA beside it may listen a moment later."""
    nothing = Source(None, {})
    assert may_start(nothing, b"")
    assert not may_start(nothing, b"opa: {url: 'https://opa.example'}")
    assert not may_start(Source(None, {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}), b"")


async def test_an_opa_that_is_there_is_used() -> None:
    server = await asyncio.start_server(lambda _reader, writer: writer.close(), "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        assert await own_opa(Settings(opa=Opa(url=f"http://127.0.0.1:{port}"))) is None


async def test_without_an_opa_and_without_its_program_it_says_what_to_install() -> None:
    settings = Settings(opa=Opa(url=f"http://127.0.0.1:{free_port()}", binary="no-such-opa"))
    with pytest.raises(Misconfigured, match=r"^opa.url: .*install OPA .*, or set opa.url$"):
        await own_opa(settings)


async def test_it_is_started_again_when_it_ends_and_ends_with_this_process(tmp_path: Path) -> None:
    pids, again = tmp_path / "pids", tmp_path / "again"
    text = f"#!/bin/sh\necho $$ >> {pids}\n[ -e {again} ] || {{ touch {again}; exit 2; }}\n"
    program = tmp_path / "opa"
    program.write_text(text + "exec sleep 1000\n", encoding="utf-8")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    settings = Settings(opa=Opa(url=f"http://127.0.0.1:{free_port()}", binary=str(program)))
    found = await own_opa(settings)
    assert found is not None
    assert found.url != settings.opa.url

    def started() -> list[str]:
        return pids.read_text(encoding="utf-8").split() if pids.exists() else []

    with capture_logs() as logs:
        async with running(awaited(found.run())):
            await eventually(lambda: len(started()), 2)
    with pytest.raises(ProcessLookupError):
        os.kill(int(started()[1]), 0)
    assert [log["event"] for log in logs] == ["opa_started", "opa_ended", "opa_started"]
