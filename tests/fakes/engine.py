"""A policy engine that is not OPA: ten lines that answer the REST call. And reviews to ask it."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from kube_sync.admission.engine_formats import DIALECTS
from kube_sync.admission.review import Review, parse_review
from kube_sync.admission.target import Target
from tests.fakes.http import FakeServer, Recorded, served

PATH = "/v1/data/io/k8s/federation/admission"
WEB = {"metadata": {"name": "web"}, "spec": {"replicas": 3}}


class StandIn:
    """Answers `{"result": …}` with what `decide` makes of the input."""

    def __init__(self, decide: Callable[[Any], Any]) -> None:
        self.decide = decide
        self.http = FakeServer(self._serve)

    async def _serve(self, _request: web.Request, recorded: Recorded) -> web.Response:
        return web.json_response({"result": self.decide(recorded.json()["input"])})

    @property
    def inputs(self) -> list[Any]:
        """What it was asked about, in order."""
        return [recorded.json()["input"] for recorded in self.http.requests]

    def target(self, dialect: str = "v1", timeout_seconds: float = 2.0, **also: Any) -> Target:
        """Return how to ask it."""
        url, spoken = self.http.url + PATH, DIALECTS[dialect]
        return Target(url, spoken, timeout_seconds=timeout_seconds, **also)


@asynccontextmanager
async def stand_in(decide: Callable[[Any], Any] = lambda _: {}) -> AsyncGenerator[StandIn]:
    """Serve a stand-in until the block ends."""
    engine = StandIn(decide)
    async with served(engine, engine.http):
        yield engine


def review(resource: object = WEB, **request: Any) -> Review:
    """Return the review of a create of `resource`."""
    asked = {"uid": "r1", "operation": "CREATE", "object": resource} | request
    document = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": asked}
    return parse_review(json.dumps(document).encode())
