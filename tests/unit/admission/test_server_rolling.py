"""A rolling update of two webhooks under a client that never stops sending."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import pytest

from kube_sync.runtime.draining import Drain
from kube_sync.runtime.tls import client_context
from tests.fakes.reviewing import RESOURCE, Judge, webhook
from tests.fakes.reviews import body as review_body
from tests.unit.async_tools import running, until

_JSON = {"Content-Type": "application/json"}
_SENDERS = 8


@dataclass
class Service:
    """Like a Service: sends to those that are ready, as far as it has heard."""

    folder: Path
    urls: list[str] = field(default_factory=list)
    answered: int = 0
    failures: list[object] = field(default_factory=list)

    @asynccontextmanager
    async def pod(self) -> AsyncGenerator[Drain]:
        """Run one webhook, found by clients until a moment after it is no longer ready."""
        loop = asyncio.get_running_loop()

        def not_ready(_condition: str, _reason: str) -> None:
            loop.call_later(0.1, self.urls.remove, server.url)

        drain = Drain(0.3, not_ready)
        async with webhook(self.folder, Judge(takes=0.01), drain=drain) as server:
            self.urls.append(server.url)
            yield drain

    async def send(self, session: aiohttp.ClientSession) -> None:
        """Send reviews for ever, over connections that are kept."""
        for turn in range(1_000_000):
            url = self.urls[turn % len(self.urls)]
            try:
                async with session.post(url, data=review_body(RESOURCE), headers=_JSON) as response:
                    if not json.loads(await response.read())["response"]["allowed"]:
                        self.failures.append(response.status)
            except (aiohttp.ClientError, ValueError) as error:
                self.failures.append(error)
            self.answered += 1


async def test_a_rolling_update_loses_no_review(certificates: Path) -> None:
    service = Service(certificates)
    async with AsyncExitStack() as pods, AsyncExitStack() as last:
        first = await pods.enter_async_context(service.pod())
        second_pod = AsyncExitStack()
        second = await second_pod.enter_async_context(service.pod())
        tls = client_context(str(certificates / "ca.crt"))
        async with (
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=tls)) as session,
            running(*(service.send(session) for _ in range(_SENDERS))),
        ):
            await until(lambda: service.answered > 100)
            await last.enter_async_context(service.pod())
            await first.run()
            await pods.aclose()
            await last.enter_async_context(service.pod())
            await second.run()
            await second_pod.aclose()
            seen = service.answered
            await until(lambda: service.answered > seen + 100)
    assert service.failures == []
    assert len(service.urls) == 2


async def test_while_it_ends_each_answer_asks_for_a_new_connection(certificates: Path) -> None:
    drain = Drain(0.2, lambda _condition, _reason: None)
    async with webhook(certificates, Judge(), drain=drain) as server:
        async with server.session.post(server.url, data=b"{}", headers=_JSON) as response:
            assert "Connection" not in response.headers
        ending = asyncio.create_task(drain.run())
        await until(lambda: drain.draining)
        for body in (review_body(RESOURCE), b"{}"):
            async with server.session.post(server.url, data=body, headers=_JSON) as response:
                assert response.headers["Connection"] == "close"
        await ending
        with pytest.raises(aiohttp.ClientConnectorError):
            await server.session.post(server.url, data=b"{}", headers=_JSON)
