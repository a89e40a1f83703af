"""The decision stream as any reader gets it: the latest decision of each object, by its key."""

from __future__ import annotations

import asyncio
import ssl
from typing import Any

import aiohttp
import msgspec

from tools.servers.stack import RunningStack
from tools.soak.comparing import Key

_AGAIN = 0.5  # seconds between two tries


class _Object(msgspec.Struct, frozen=True):
    namespace: str = ""
    name: str = ""


class _Line(msgspec.Struct, frozen=True):
    """What is looked at of a line: the decision itself only when somebody asks."""

    type: str
    object: _Object = _Object()
    decision: msgspec.Raw = msgspec.Raw(b"null")
    held: tuple[str, ...] = ()


_lines = msgspec.json.Decoder(_Line)


class Told:
    """What the stream told; a connection that begins anew tells everything anew."""

    def __init__(self) -> None:
        self.held: tuple[str, ...] = ("not read yet",)
        self._latest: dict[Key, msgspec.Raw] = {}
        self._anew: dict[Key, msgspec.Raw] | None = None

    def begin(self) -> None:
        """Take what comes until the next bookmark for all that there is."""
        self._anew = {}

    def take(self, line: bytes) -> None:
        """Take one line. Raises msgspec.DecodeError."""
        record = _lines.decode(line)
        latest = self._latest if self._anew is None else self._anew
        key = (record.object.namespace, record.object.name)
        match record.type:
            case "decision":
                latest[key] = record.decision
            case "deleted":
                latest.pop(key, None)
            case "status":
                self.held = record.held
            case "bookmark" if self._anew is not None:
                self._latest, self._anew = self._anew, None

    def decision(self, key: Key) -> Any:
        """Return the latest decision on an object, None where there is none."""
        raw = self._latest.get(key)
        return None if raw is None else msgspec.json.decode(bytes(raw))

    @property
    def keys(self) -> frozenset[Key]:
        """The objects that decisions were told of."""
        return frozenset(self._latest)


async def follow(stack: RunningStack, told: Told) -> None:
    """Read the stream until cancelled, whatever becomes of the replicator."""
    client = {name: str(value) for name, value in stack.endpoint.client().items()}
    tls = ssl.create_default_context(cafile=client["ca_file"])
    token = stack.endpoint.token_file.read_text(encoding="utf-8").strip()
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(ssl=tls),
        headers={"Authorization": f"Bearer {token}"},
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=5),
        read_bufsize=1 << 20,
    ) as session:
        while True:
            try:
                await _read(session, client["url"], told)
            except (aiohttp.ClientError, TimeoutError, ValueError):
                told.held = ("not connected",)
            await asyncio.sleep(_AGAIN)


async def _read(session: aiohttp.ClientSession, url: str, told: Told) -> None:
    async with session.get(url) as response:
        response.raise_for_status()
        told.begin()
        async for line in response.content:
            if not line.endswith(b"\n"):
                return  # it was cut within
            told.take(line)
