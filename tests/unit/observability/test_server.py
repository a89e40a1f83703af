from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import aiohttp
from prometheus_client import CONTENT_TYPE_LATEST
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as openmetrics_families,
)
from prometheus_client.parser import text_string_to_metric_families

from kube_sync.observability import metrics, tracing
from kube_sync.observability.readiness import Readiness
from kube_sync.observability.server import observability_app
from kube_sync.runtime.httpserver import serving
from tests.fakes.otlp import recorded


@asynccontextmanager
async def _page(
    readiness: Readiness, path: str, **headers: str
) -> AsyncGenerator[aiohttp.ClientResponse]:
    async with (
        serving(observability_app(readiness), ("127.0.0.1", 0), grace=0.05) as port,
        aiohttp.ClientSession() as session,
        session.get(f"http://127.0.0.1:{port}{path}", headers=headers) as response,
    ):
        yield response


async def test_a_ready_process_answers_200_with_every_condition() -> None:
    readiness = Readiness()
    readiness.met("opa")
    readiness.met("data")
    async with _page(readiness, "/readyz") as response:
        assert response.status == 200
        assert await response.text() == "data: ok\nopa: ok\nready\n"


async def test_a_process_that_waits_answers_503_with_the_reason() -> None:
    readiness = Readiness()
    readiness.met("data")
    readiness.waiting("opa", "OPA http://x: 401 (is opa.token_file the right one?)")
    async with _page(readiness, "/readyz") as response:
        assert response.status == 503
        assert await response.text() == (
            "data: ok\nopa: OPA http://x: 401 (is opa.token_file the right one?)\nnot ready\n"
        )


async def test_liveness_does_not_depend_on_the_world_outside() -> None:
    """Restarting a sidecar never mends an OPA that is away."""
    readiness = Readiness()
    readiness.waiting("opa", "away")
    async with _page(readiness, "/livez") as response:
        assert (response.status, await response.text()) == (200, "ok\n")


async def test_metrics_are_served_as_prometheus_reads_them() -> None:
    async with _page(Readiness(), "/metrics") as response:
        assert response.status == 200
        assert response.headers["Content-Type"] == CONTENT_TYPE_LATEST
        text = await response.text()
    names = {family.name for family in text_string_to_metric_families(text)}
    assert {"kube_sync_pending_changes", "kube_sync_decision_changes"} <= names


async def test_while_traces_are_on_whoever_asks_for_openmetrics_gets_exemplars() -> None:
    asked = "application/openmetrics-text;version=1.0.0;q=0.75,text/plain;version=0.0.4;q=0.5"
    with recorded("admit") as collected:
        with tracing.span("review"):
            metrics.admission_seconds.labels("admitted").observe(0.004, tracing.exemplar())
        async with _page(Readiness(), "/metrics", Accept=asked) as response:
            assert response.headers["Content-Type"].startswith("application/openmetrics-text")
            found = [*openmetrics_families(await response.text())]  # type: ignore[no-untyped-call]
        async with _page(Readiness(), "/metrics") as response:
            assert response.headers["Content-Type"].startswith("text/plain")
    samples = [sample for family in found for sample in family.samples]
    traces = [sample.exemplar.labels["trace_id"] for sample in samples if sample.exemplar]
    assert collected.spans[0].trace in traces
    async with _page(Readiness(), "/metrics", Accept=asked) as response:
        assert response.headers["Content-Type"] == CONTENT_TYPE_LATEST


async def test_metrics_tell_what_readyz_tells() -> None:
    """So that an alert needs no probe of its own."""
    readiness = Readiness()
    async with (
        serving(observability_app(readiness), ("127.0.0.1", 0), grace=0.05) as port,
        aiohttp.ClientSession() as session,
    ):

        async def ready() -> str:
            async with session.get(f"http://127.0.0.1:{port}/metrics") as response:
                lines = (await response.text()).splitlines()
            return next(line for line in lines if line.startswith("kube_sync_ready "))

        readiness.waiting("opa", "away")
        assert await ready() == "kube_sync_ready 0.0"
        readiness.met("opa")
        assert await ready() == "kube_sync_ready 1.0"
