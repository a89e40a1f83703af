"""`kube-sync version`: what runs here, in the cluster, and beside it.

Each part is asked by itself: one that does not answer leaves the others as they are, and its line
says why.
"""

from __future__ import annotations

import platform
import re
from typing import Final
from urllib.parse import urljoin

import aiohttp
import msgspec

from kube_sync import __version__
from kube_sync.config import Decisions, Kubernetes, Settings, masked
from kube_sync.errors import NO_JSON, NotFound, Refused, Retriable, SyncError, decoded
from kube_sync.kube.client import kube_client
from kube_sync.opa.process import LIMITS, OpaProgram, private_folder
from kube_sync.runtime.clienttls import client_tls
from kube_sync.runtime.httperrors import retriable
from kube_sync.runtime.tokenfile import TokenFile

_PATH: Final = "/v1/version"  # of the replicator, beside the decision stream
_SECONDS: Final = 10.0
_OPA_VERSION: Final = re.compile(r"^Version: (\S+)", re.MULTILINE)


class Version(msgspec.Struct, frozen=True, omit_defaults=True):
    """A version, or why it is not known."""

    version: str | None = None
    error: str | None = None

    def __str__(self) -> str:
        """Format for people."""
        return self.version or f"not known: {self.error}"


class Client(msgspec.Struct, frozen=True):
    """What runs on this machine."""

    version: str
    python: str
    opa: Version  # opa.binary


class Server(msgspec.Struct, frozen=True):
    """What a replicator says of itself, of its OPA, and of the policies in force."""

    server: Version
    opa: Version
    policies: Version


class Versions(msgspec.Struct, frozen=True, omit_defaults=True):
    """All of them; those that were not asked for are None."""

    client: Client
    kubernetes: Version | None = None
    server: Version | None = None
    opa: Version | None = None
    policies: Version | None = None


class _Kubernetes(msgspec.Struct, rename="camel"):
    git_version: str


class _Replicator(msgspec.Struct):
    version: str
    policies: str
    opa: str | None = None
    opa_error: str | None = None


async def of_client(settings: Settings) -> Client:
    """Return the versions on this machine."""
    return Client(__version__, platform.python_version(), await _of_binary(settings.opa.binary))


async def of_api_server(kubernetes: Kubernetes) -> Version:
    """Return the version of the API server."""
    try:
        async with kube_client(kubernetes) as client:
            body = await client.request("GET", "/version")
            return Version(msgspec.json.decode(body, type=_Kubernetes).git_version)
    except SyncError as error:
        return Version(error=str(error))
    except NO_JSON as error:
        return Version(error=f"what answers is no API server: {error}")


async def of_replicator(settings: Decisions) -> Server:
    """Return what the replicator says, by the settings of its stream. Raises SyncError."""
    found = await _asked(settings)
    no_policies = "" if found.policies else "no policies are in force"
    return Server(
        Version(found.version),
        Version(found.opa, found.opa_error or (None if found.opa else "OPA does not say it")),
        Version(found.policies or None, no_policies or None),
    )


def unknown(reason: str) -> Server:
    """Return that nothing is known of a replicator."""
    return Server(*(Version(error=reason) for _ in range(3)))


async def _asked(settings: Decisions) -> _Replicator:
    url = urljoin(settings.url, _PATH)
    name, tls = f"replicator {masked(url)}", client_tls(url, settings.ca_file)
    headers = TokenFile(settings.token_file).headers()
    timeout = aiohttp.ClientTimeout(total=_SECONDS)
    with retriable(name):
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.get(url, headers=headers, ssl=tls()) as response,
        ):
            body = await response.read()
    match response.status:
        case 200:
            pass
        case 401 | 403:
            msg = f"{name}: {response.status} (is decisions.token_file the right one?)"
            raise Refused(msg)
        case 404:
            msg = f"{name}: it is older than this question"
            raise NotFound(msg)
        case status:
            msg = f"{name}: {status}"
            raise Retriable(msg)
    return decoded(body, _Replicator, f"{name}: what answers is no replicator")


async def _of_binary(binary: str) -> Version:
    try:
        program = OpaProgram(binary, _SECONDS, LIMITS)
        async with private_folder({}) as folder:
            _, output, _ = await program.run(folder, ["version"])
    except SyncError as error:
        return Version(error=str(error))
    found = _OPA_VERSION.search(output.decode("utf-8", "replace"))
    return Version(found[1]) if found else Version(error=f"{binary} does not say it")


def as_text(found: Versions) -> str:
    """Return a line for each version, as kubectl has them; a reason is said once."""
    lines: dict[str, Version | str | None] = {
        "Client Version": found.client.version,
        "Client Python": found.client.python,
        "Client OPA": found.client.opa,
        "Kubernetes Version": found.kubernetes,
        "Server Version": found.server,
        "Server OPA": found.opa,
        "Policies Revision": found.policies,
    }
    said: set[str] = set()
    return "\n".join(
        f"{name}: {_once(one, said)}" for name, one in lines.items() if one is not None
    )


def _once(one: Version | str, said: set[str]) -> str:
    text = str(one)
    if text in said and isinstance(one, Version) and one.error:
        return "not known, as above"
    said.add(text)
    return text
