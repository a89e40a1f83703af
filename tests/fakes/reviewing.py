"""The webhook over TLS, called as the API server does, with a judge that says what it is told."""

from __future__ import annotations

import asyncio
import io
import json
import ssl
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from kube_sync.admission.decision_client import Admitted, Verdict
from kube_sync.admission.review import Review
from kube_sync.admission.route import OnRefusal, Route, nobody
from kube_sync.admission.server import PATH, webhook_app
from kube_sync.config import Admission
from kube_sync.decisions.decision import Decision
from kube_sync.runtime.draining import Drain
from kube_sync.runtime.httpserver import serving
from kube_sync.runtime.tls import client_context, server_context
from tests.fakes.reviews import body

RESOURCE = {"metadata": {"name": "web"}}
_JSON = {"Content-Type": "application/json"}


@dataclass
class Judge:
    """Says what the test says; what it was asked, and how long it had, are kept."""

    answer: Verdict = field(default_factory=lambda: Admitted(Decision()))
    asked: list[Review] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    takes: float = 0.0  # seconds

    async def verdict(self, review: Review, seconds: float) -> Verdict:
        """Answer."""
        self.asked.append(review)
        self.seconds.append(seconds)
        await asyncio.sleep(self.takes)
        return self.answer


@dataclass
class Webhook:
    """One webhook, and a client that trusts it."""

    session: aiohttp.ClientSession
    url: str
    port: int
    trusting: ssl.SSLContext  # what a client without the session connects with

    async def post(self, body: bytes, **params: str) -> tuple[int, str]:
        """Post a body as JSON; return status and text."""
        async with self.session.post(
            self.url, data=io.BytesIO(body), params=params, headers=_JSON
        ) as response:
            return response.status, await response.text()

    async def review(self, resource: object, **request: object) -> dict[str, Any]:
        """Ask for a review; return the response but its uid."""
        status, text = await self.post(body(resource, **request), timeout="5s")
        assert status == 200
        response: dict[str, Any] = json.loads(text)["response"]
        assert response.pop("uid") == "r1"
        return response


@asynccontextmanager
async def webhook(
    folder: Path,
    judge: Judge,
    settings: Admission | None = None,
    drain: Drain | None = None,
    denied: OnRefusal = nobody,
    ways: Sequence[Route] = (),
) -> AsyncGenerator[Webhook]:
    """Serve with the certificate in `folder`, as long as the block lasts."""
    settings = settings or Admission()
    app = webhook_app(judge, settings, drain, denied, ways)
    tls = server_context(str(folder / "tls.crt"), str(folder / "tls.key"), settings.client_ca_file)
    trusting = client_context(str(folder / "ca.crt"))
    connector = aiohttp.TCPConnector(ssl=trusting)
    async with (
        serving(app, ("127.0.0.1", 0), tls, 0.05, drain) as port,
        aiohttp.ClientSession(connector=connector) as session,
    ):
        yield Webhook(session, f"https://127.0.0.1:{port}{PATH}", port, trusting)
