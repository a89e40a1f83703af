"""A collector of OpenTelemetry's: it takes traces by OTLP over HTTP and keeps what it gets.

It runs in a thread, since exporters may wait for it where the test's event loop does not run.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from kube_sync.config import Tracing
from kube_sync.observability import tracing


@dataclass(frozen=True)
class Seen:
    """A span that was exported."""

    service: str
    name: str
    kind: str
    trace: str
    span: str
    parent: str  # "" of a root
    links: tuple[tuple[str, str], ...]  # trace and span
    attributes: Mapping[str, Any]
    failed: bool
    seconds: float
    events: int


@dataclass
class Collector:
    """What was exported to one address."""

    url: str
    status: int = 200  # of its answers
    answers: threading.Event = field(default_factory=threading.Event)  # unset: it is silent
    spans: list[Seen] = field(default_factory=list)
    received: bytes = b""  # all bodies

    def named(self, name: str, service: str = "") -> list[Seen]:
        """Return the spans of this name."""
        return [s for s in self.spans if s.name == name and service in ("", s.service)]

    def chain(self, last: Seen) -> list[str]:
        """Return the services and names from the root of a trace to a span, as far as they came."""
        by_id = {(one.trace, one.span): one for one in self.spans}
        found: list[str] = []
        one: Seen | None = last
        while one is not None:
            found.insert(0, f"{one.service}: {one.name}")
            one = by_id.get((one.trace, one.parent))
        return found

    def take(self, body: bytes) -> None:
        """Keep what is in the body of an export."""
        self.received += body
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            attributes = {one.key: _plain(one.value) for one in resource.resource.attributes}
            self.spans += [
                _seen(str(attributes["service.name"]), span)
                for scope in resource.scope_spans
                for span in scope.spans
            ]


@contextmanager
def collector() -> Iterator[Collector]:
    """Run a collector until the block ends."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            running.answers.wait()
            if running.status == 200:
                running.take(body)
            self.send_response(running.status)
            self.send_header("Content-Type", "application/x-protobuf")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    running = Collector(f"http://127.0.0.1:{server.server_port}")
    running.answers.set()
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield running
    finally:
        running.answers.set()
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def recorded(command: str) -> Iterator[Collector]:
    """Record every span of this process while the block lasts; all are there after it."""
    with collector() as running, pytest.MonkeyPatch.context() as patched:
        patched.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", running.url)
        with tracing.traced(Tracing(enabled=True, ratio=1), command):
            yield running


def _seen(service: str, span: Span) -> Seen:
    return Seen(
        service,
        span.name,
        Span.SpanKind.Name(span.kind).removeprefix("SPAN_KIND_").lower(),
        span.trace_id.hex(),
        span.span_id.hex(),
        span.parent_span_id.hex(),
        tuple((link.trace_id.hex(), link.span_id.hex()) for link in span.links),
        {one.key: _plain(one.value) for one in span.attributes},
        span.status.code == Status.STATUS_CODE_ERROR,
        (span.end_time_unix_nano - span.start_time_unix_nano) / 1e9,
        len(span.events),
    )


def _plain(value: AnyValue) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_plain(one) for one in value.array_value.values]
    return None if kind is None else getattr(value, kind)
