"""An OPA beside `kube-sync run`, where the configuration names none and none is there.

It listens on a free port of the loopback, without tokens, fetches its policies from this process,
is started again when it ends, and ends with this process.
"""

from __future__ import annotations

import asyncio
import shutil
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final
from urllib.parse import urlsplit

import structlog

from kube_sync.config import Decisions, Settings, Source, parse_listen
from kube_sync.errors import Misconfigured
from kube_sync.runtime.backoff import Backoff
from kube_sync.runtime.services import Service
from kube_sync.runtime.subprocess_limits import reaped

log: structlog.stdlib.BoundLogger = structlog.get_logger()

_POD: Final = "KUBERNETES_SERVICE_HOST"
_LOOK_SECONDS: Final = 2.0
_LONGEST: Final = 5.0  # seconds between two starts
_ANYWHERE: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - to ask at, not to listen on


@dataclass(frozen=True, slots=True)
class OwnOpa:
    """An OPA to start: where it will listen, and what runs it."""

    url: str
    run: Service


def may_start(source: Source, content: bytes) -> bool:
    """Return whether one may be started: no address is set, and this is no pod.

    In a pod (`KUBERNETES_SERVICE_HOST`, as client-go tells) OPA is a sidecar that may listen later.
    Raises Misconfigured.
    """
    return _POD not in source.environment and not source.names(content, "opa.url")


async def own_opa(settings: Settings) -> OwnOpa | None:
    """Return an OPA to start, None if somebody listens at `opa.url`. Raises Misconfigured."""
    url = settings.opa.url
    if await _is_taken(url):
        log.info("opa_found", url=url)
        return None
    program = shutil.which(settings.opa.binary)
    if program is None:
        msg = (
            f"opa.url: nobody listens at {url}, and there is no program"
            f' "{settings.opa.binary}" to start one: install OPA'
            " (https://www.openpolicyagent.org/docs), or set opa.url"
        )
        raise Misconfigured(msg)
    address = f"127.0.0.1:{_free_port()}"
    found = f"http://{address}"
    return OwnOpa(found, partial(_serve, program, arguments(settings.decisions, address), found))


def arguments(decisions: Decisions, address: str) -> list[str]:
    """Return the command line of that OPA."""
    return [
        "run",
        "--server",
        f"--addr={address}",
        "--log-level=error",
        "--skip-version-check",
        *_bundle(decisions),
    ]


def _bundle(decisions: Decisions) -> list[str]:
    """Return by which options OPA fetches policies from this process; with a token it does not.

    Then they come one by one.
    """
    if decisions.token_file or decisions.cert_file:
        return []
    host, port = parse_listen("decisions.listen", decisions.listen)
    host = _ANYWHERE.get(host, host)
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    bundle = "bundles.kube-sync"
    return [
        f"--set=services.replicator.url=http://{address}",
        f"--set={bundle}.service=replicator",
        f"--set={bundle}.resource=v1/bundles/policies",
        f"--set={bundle}.polling.min_delay_seconds=1",
        f"--set={bundle}.polling.max_delay_seconds=2",
        f"--set={bundle}.polling.long_polling_timeout_seconds=30",
    ]


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port


async def _is_taken(url: str) -> bool:
    parts = urlsplit(url)
    try:
        async with asyncio.timeout(_LOOK_SECONDS):
            _, writer = await asyncio.open_connection(parts.hostname, parts.port)
    except (OSError, TimeoutError):
        return False
    writer.close()
    return True


async def _serve(program: str, options: Sequence[str], url: str) -> None:
    backoff = Backoff(longest=_LONGEST)
    while True:
        # In a session of its own: Ctrl-C is for this process, which ends it.
        process = await asyncio.create_subprocess_exec(
            program, *options, stdin=asyncio.subprocess.DEVNULL, start_new_session=True
        )
        log.info("opa_started", program=program, url=url, authorization="none")
        try:
            status = await process.wait()
        finally:
            if process.returncode is None:
                process.kill()
                await reaped(process)
        log.warning("opa_ended", status=status)
        await backoff.wait()
