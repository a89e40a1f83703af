from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog
from prometheus_client import REGISTRY
from structlog.testing import capture_logs

from kube_sync.config import Tracing
from kube_sync.errors import Misconfigured
from kube_sync.observability import tracing
from tests.eventually import eventually
from tests.fakes.otlp import Collector, collector

SECRET = "value-of-an-annotation"


@pytest.fixture
def collected(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    """A collector that the SDK finds as it finds every other."""
    for name in ("OTEL_SERVICE_NAME", "OTEL_RESOURCE_ATTRIBUTES"):
        monkeypatch.delenv(name, raising=False)
    with collector() as running:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", running.url)
        yield running


def everything() -> Tracing:
    return Tracing(enabled=True, ratio=1)


def counted(outcome: str) -> float:
    name = "kube_sync_trace_spans_total"
    return REGISTRY.get_sample_value(name, {"outcome": outcome}) or 0.0


def test_a_span_is_exported_with_its_requests_as_children(collected: Collector) -> None:
    before = counted("exported")
    with tracing.traced(everything(), "admit"), tracing.span("review", {"kube_sync.object": "a/b"}):
        with tracing.request("OPA", "POST", "http://me:secret@opa:1/v1/data/x?a=b") as request:
            request.answered(200)
        headers = dict(request.headers)
    [review], [asked] = collected.named("review"), collected.named("POST OPA")
    assert (review.service, review.kind, review.parent) == ("kube-sync-admit", "internal", "")
    assert review.attributes == {"kube_sync.object": "a/b"}
    assert (asked.kind, asked.trace, asked.parent) == ("client", review.trace, review.span)
    assert asked.attributes == {
        "http.request.method": "POST",
        "http.response.status_code": 200,
        "url.path": "/v1/data/x",
    }
    assert headers["traceparent"].startswith(f"00-{asked.trace}-{asked.span}-")
    assert counted("exported") == before + 2


def test_the_variables_of_the_sdk_count(
    collected: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_SERVICE_NAME", "placement")
    with tracing.traced(everything(), "admit"), tracing.span("review"):
        pass
    assert [span.service for span in collected.spans] == ["placement"]


def test_a_variable_with_a_wrong_value_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "4096")
    told = pytest.raises(Misconfigured, match=r"^observe\.tracing: .*max_export_batch_size")
    with told, tracing.traced(everything(), "admit"):
        pass
    assert tracing.recorder is None


def test_a_request_outside_of_a_span_begins_no_trace(collected: Collector) -> None:
    """Heartbeats, Leases and audits would otherwise be most of what is recorded."""
    with tracing.traced(everything(), "replicate"):
        with tracing.request("OPA", "PATCH", "/v1/data") as request:
            request.answered(204)
        assert request.headers == {}
    assert collected.spans == []


def test_the_first_sampled_cause_is_the_parent_and_the_others_are_links(
    collected: Collector,
) -> None:
    with tracing.traced(everything(), "replicate"):
        causes = []
        for name in ("first", "second"):
            with tracing.span(name):
                causes.append(tracing.context())
        dropped = causes[0].replace(causes[0][3:35], "c" * 32).removesuffix("1") + "0"
        with tracing.span("evaluate", causes=[dropped, "", *causes, *causes]):
            pass
    [first], [second], [evaluate] = map(collected.named, ("first", "second", "evaluate"))
    assert (evaluate.trace, evaluate.parent) == (first.trace, first.span)
    assert evaluate.links == ((second.trace, second.span),)


def test_links_are_bounded(collected: Collector) -> None:
    causes = [f"00-{number:032x}-{number:016x}-01" for number in range(1, 1000)]
    with tracing.traced(everything(), "replicate"), tracing.span("evaluate", causes=causes):
        pass
    assert len(collected.spans[0].links) == 32


@pytest.mark.parametrize("cause", ["", "nonsense", "00-" + "a" * 32 + "-" + "b" * 16 + "-00"])
def test_what_is_not_sampled_is_not_recorded_and_told_nowhere(
    collected: Collector, cause: str
) -> None:
    nothing = Tracing(enabled=True, ratio=0)
    with tracing.traced(nothing, "admit"), tracing.span("review", causes=[cause]):
        with tracing.request("OPA", "POST", "/") as request:
            pass
        # So that OPA records none either.
        assert not tracing.is_sampled(request.headers["traceparent"])
        assert (tracing.sampled(), tracing.exemplar(), dict(tracing.ids())) == ("", None, {})
    assert collected.spans == []


def test_a_callers_trace_is_recorded_if_the_caller_records_it(collected: Collector) -> None:
    cause = "00-" + "a" * 32 + "-" + "b" * 16 + "-01"
    nothing = Tracing(enabled=True, ratio=0)
    with tracing.traced(nothing, "admit"), tracing.span("review", causes=[cause], kind="server"):
        pass
    [review] = collected.spans
    assert (review.kind, review.trace, review.parent) == ("server", "a" * 32, "b" * 16)


def test_a_span_begins_when_its_event_arrived(collected: Collector) -> None:
    arrived = time.monotonic() - 5
    with tracing.traced(everything(), "replicate"), tracing.span("replicate", since=arrived):
        pass
    assert collected.spans[0].seconds > 4.9


def test_of_an_error_only_its_kind_is_told(collected: Collector) -> None:
    traced, raised = tracing.traced(everything(), "remediate"), pytest.raises(ValueError)  # noqa: PT011
    with traced, raised, tracing.span("remediate"), tracing.request("API server", "PATCH", "/"):
        raise ValueError(SECRET)
    assert [(one.failed, one.attributes["error.type"]) for one in collected.spans] == [
        (True, "ValueError"),
        (True, "ValueError"),
    ]
    assert SECRET.encode() not in collected.received
    assert not any(one.events for one in collected.spans)


async def test_a_cancelled_span_is_no_failure(collected: Collector) -> None:
    async def wait() -> None:
        with tracing.span("remediate"):
            begun.set()
            await asyncio.Event().wait()

    with tracing.traced(everything(), "remediate"):
        begun = asyncio.Event()
        task = asyncio.create_task(wait())
        await begun.wait()
        task.cancel()
        await asyncio.wait([task])
        assert tracing.context() == ""
    assert [one.failed for one in collected.spans] == [False]


def test_the_spans_of_a_trace_are_bounded(collected: Collector) -> None:
    before = counted("over_limit")
    with tracing.traced(everything(), "remediate"):
        with tracing.span("evaluate"):
            cause = tracing.context()
        for _ in range(300):
            with tracing.span("remediate", causes=[cause]):
                pass
        with tracing.span("other"):
            pass
    assert len(collected.named("remediate")) == 199
    assert len(collected.named("other")) == 1
    assert counted("over_limit") == before + 101


def test_what_the_queue_has_no_room_for_is_dropped_and_counted(
    collected: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing leaves the queue while it waits for its first batch."""
    monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "2048")
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "3600000")
    collected.answers.clear()
    before = counted("dropped")
    with capture_logs() as logs, tracing.traced(everything(), "admit"):
        for _ in range(5000):
            with tracing.span("review"):
                pass
        dropped = counted("dropped") - before
        collected.answers.set()
    assert dropped >= 5000 - 2 * 2048
    assert [line["event"] for line in logs] == ["spans_dropped"]
    assert len(collected.spans) == 5000 - dropped


async def test_a_collector_that_refuses_is_counted_and_said_until_it_takes_spans_again(
    collected: Collector, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The SDK's own lines, one for each retry, are no JSON: they are not printed."""
    monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "1")  # each span is an export
    collected.status, before = 400, counted("failed")
    with capture_logs() as logs, tracing.traced(everything(), "admit"):
        for expected in (1, 2):
            with tracing.span("review"):
                pass
            await eventually(lambda: counted("failed") - before, expected)
        collected.status = 200
        with tracing.span("review"):
            pass
    assert [line["event"] for line in logs] == ["spans_not_exported", "spans_exported_again"]
    assert "400" in logs[0]["reason"]
    assert caplog.records == []


def test_a_silent_collector_holds_up_neither_work_nor_the_end(
    collected: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kube_sync.observability.otel._END_SECONDS", 0.05)
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "1")
    collected.answers.clear()
    with tracing.traced(everything(), "admit"):
        for _ in range(100):
            with tracing.span("review"):
                pass
    # It ended although nothing was answered; what still waits holds up no exit.
    assert collected.spans == []
    waiting = [one for one in threading.enumerate() if one.name.startswith("Otel")]
    assert all(one.daemon for one in waiting)
    collected.answers.set()
    for one in waiting:
        one.join(30)


def test_log_lines_within_a_span_carry_its_ids(collected: Collector) -> None:
    output = structlog.testing.LogCapture()
    structlog.configure(processors=[output])
    try:
        with tracing.traced(everything(), "admit"):
            log = structlog.get_logger()
            log.info("before")
            with tracing.span("review"):
                log.info("within")
        assert structlog.get_config()["processors"] == [output]
    finally:
        structlog.reset_defaults()
    before, within = output.entries
    [review] = collected.spans
    assert "trace_id" not in before
    assert (within["trace_id"], within["span_id"]) == (review.trace, review.span)


def test_the_module_that_needs_the_extra_is_imported_by_none_but_the_switch() -> None:
    package = Path(tracing.__file__).parents[1]
    importing = [
        str(path.relative_to(package))
        for path in sorted(package.rglob("*.py"))
        if "opentelemetry" in path.read_text(encoding="utf-8").split('"""', 2)[-1]
    ]
    assert importing == ["observability/otel.py"]
