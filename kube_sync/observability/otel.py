"""Records spans with OpenTelemetry's SDK and exports them by OTLP over HTTP.

Imported only if traces are on. The SDK reads its own variables (`OTEL_EXPORTER_OTLP_*`,
`OTEL_RESOURCE_ATTRIBUTES`, `OTEL_SERVICE_NAME`, `OTEL_BSP_SCHEDULE_DELAY`). Invariant: a thread of
its own exports, so the event loop never waits for a collector; the queue is bounded, and what it
has no room for is counted; a trace has a bounded number of spans of this process. The log says when
spans begin to be lost, and not each time: the SDK complains at every retry, in lines that are no
JSON.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Final
from urllib.parse import urlsplit

import structlog
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import (
    Decision,
    ParentBased,
    Sampler,
    SamplingResult,
    TraceIdRatioBased,
)
from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode, TraceState
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from opentelemetry.util.types import Attributes as OtelAttributes

from kube_sync import __version__
from kube_sync.errors import Misconfigured
from kube_sync.observability import metrics
from kube_sync.observability.tracing import Attributes, Kind, Request, is_sampled

log: structlog.stdlib.BoundLogger = structlog.get_logger()

_QUEUE: Final = 2048  # spans, as the SDK's own default
_END_SECONDS: Final = 3.0  # for the last export; a pod has 30 s to end
_MOST_SPANS: Final = 200  # of one trace, recorded by this process
_MOST_TRACES: Final = 1000  # whose spans are counted
_MOST_LINKS: Final = 32
_QUIET_SECONDS: Final = 60.0  # between two lines of the log about a full queue
_REASON: Final = 300  # characters
_SDK: Final = logging.getLogger("opentelemetry")
_KINDS: Final[Mapping[Kind, SpanKind]] = {
    "internal": SpanKind.INTERNAL,
    "server": SpanKind.SERVER,
    "client": SpanKind.CLIENT,
}
_propagator = TraceContextTextMapPropagator()


def otel_recorder(ratio: float, command: str) -> OtelRecorder:
    """Return a recorder that samples this share of traces. Raises Misconfigured."""
    try:
        exporter = Exporter(OTLPSpanExporter())
        processor = Queue(exporter)
    except (OSError, ValueError) as error:
        msg = f"observe.tracing: a variable of OpenTelemetry has a wrong value: {error}"
        raise Misconfigured(msg) from error
    resource = Resource.create({"service.version": __version__})
    if str(resource.attributes["service.name"]).startswith("unknown_service"):
        resource = resource.merge(Resource({"service.name": f"kube-sync-{command}"}))
    sampler = Bounded(ParentBased(TraceIdRatioBased(ratio)))
    provider = TracerProvider(sampler, resource, shutdown_on_exit=False)
    provider.add_span_processor(processor)
    return OtelRecorder(provider, processor, exporter)


class OtelRecorder:
    """Records spans with the tracer of one provider."""

    def __init__(self, provider: TracerProvider, queue: Queue, exporter: Exporter) -> None:
        self._tracer = provider.get_tracer("kube_sync", __version__)
        self._queue = queue
        self._exporter = exporter

    def span(
        self, name: str, kind: Kind, causes: Iterable[str], since: float | None, about: Attributes
    ) -> AbstractContextManager[Span]:
        """Record a span, current within the block; see `tracing.span`."""
        found = sorted(filter(None, dict.fromkeys(causes)), key=is_sampled, reverse=True)
        parent = _extracted(found[0]) if found else None
        linked = [one for one in found[1 : 1 + _MOST_LINKS] if is_sampled(one)]
        links = [Link(trace.get_current_span(_extracted(one)).get_span_context()) for one in linked]
        began = None if since is None else time.time_ns() - int((time.monotonic() - since) * 1e9)
        return self._recorded(name, kind, about, parent, links, began)

    def request(self, peer: str, method: str, url: str) -> AbstractContextManager[Request]:
        """Record a request that belongs to the current span; see `tracing.request`."""
        current = trace.get_current_span()
        if not current.is_recording():
            return nullcontext(_request(current))
        return self._requested(f"{method} {peer}", method, urlsplit(url).path)

    @contextmanager
    def _requested(self, name: str, method: str, path: str) -> Iterator[Request]:
        about = {"http.request.method": method, "url.path": path}
        with self._recorded(name, "client", about) as span:
            yield _request(span)

    def describe(self, about: Attributes) -> None:
        """Set attributes of the current span."""
        trace.get_current_span().set_attributes(about)

    def context(self) -> str:
        """Return the context of the current span, "" without one."""
        return _traceparent(trace.get_current_span())

    def close(self) -> None:
        """Export what is recorded, in bounded time; the thread that exports holds nothing up."""
        ending = threading.Thread(target=self._queue.shutdown, daemon=True)
        ending.start()
        ending.join(_END_SECONDS)
        if ending.is_alive():
            self._exporter.shutdown()  # ends its retries

    @contextmanager
    def _recorded(
        self,
        name: str,
        kind: Kind,
        about: Attributes,
        parent: Context | None = None,
        links: Sequence[Link] = (),
        began: int | None = None,
    ) -> Iterator[Span]:
        with self._tracer.start_as_current_span(
            name,
            parent,
            _KINDS[kind],
            about,
            links,
            began,
            record_exception=False,  # its text may quote what is not to be told
            set_status_on_exception=False,
        ) as span:
            try:
                yield span
            except Exception as error:
                span.set_attribute("error.type", type(error).__name__)
                span.set_status(Status(StatusCode.ERROR))
                raise


class Bounded(Sampler):
    """Samples as another sampler, but at most so many spans of one trace."""

    def __init__(self, sampler: Sampler, most: int = _MOST_SPANS) -> None:
        self._sampler = sampler
        self._most = most
        self._spans: OrderedDict[int, int] = OrderedDict()  # by trace

    def should_sample(
        self,
        parent_context: Context | None,
        trace_id: int,
        name: str,
        kind: SpanKind | None = None,
        attributes: OtelAttributes = None,
        links: Sequence[Link] | None = None,
        trace_state: TraceState | None = None,
    ) -> SamplingResult:
        """Return whether a new span is recorded."""
        of = parent_context, trace_id, name, kind, attributes, links, trace_state
        found = self._sampler.should_sample(*of)
        if found.decision is not Decision.RECORD_AND_SAMPLE or self._has_room(trace_id):
            return found
        metrics.trace_spans.labels("over_limit").inc()
        return SamplingResult(Decision.DROP, trace_state=found.trace_state)

    def get_description(self) -> str:
        """Return its name and what it is made of."""
        return f"Bounded{{{self._most},{self._sampler.get_description()}}}"

    def _has_room(self, trace_id: int) -> bool:
        number = self._spans.pop(trace_id, 0) + 1
        self._spans[trace_id] = number
        if len(self._spans) > _MOST_TRACES:
            self._spans.popitem(last=False)
        return number <= self._most


class Complaints(logging.Handler):
    """Takes the SDK's log lines in place of printing them; `first` is the first of an export."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.first = ""

    def emit(self, record: logging.LogRecord) -> None:
        """Take one line."""
        self.first = self.first or record.getMessage()[:_REASON]


class Exporter(SpanExporter):
    """Counts what another exporter exports, and says when it begins to fail and works again."""

    def __init__(self, exporter: SpanExporter) -> None:
        self._exporter = exporter
        self._complaints = Complaints()
        self._works = True
        self._ended = False
        self.taken = 0  # spans that left the queue
        _SDK.handlers, _SDK.propagate = [self._complaints], False

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Export spans; called in the thread of the queue."""
        self.taken += len(spans)
        self._complaints.first = ""
        result = self._exporter.export(spans)
        works = result is SpanExportResult.SUCCESS
        metrics.trace_spans.labels("exported" if works else "failed").inc(len(spans))
        if works and not self._works:
            log.info("spans_exported_again")
        elif self._works and not works:
            log.warning("spans_not_exported", reason=self._complaints.first)
        self._works = works
        return result

    def shutdown(self) -> None:
        """End retries; later exports fail."""
        if not self._ended:  # it would warn
            self._ended = True
            self._exporter.shutdown()


# By inheritance, since the SDK does not tell what it drops.
class Queue(BatchSpanProcessor):
    """The spans that wait for their export, by a thread; one too many is dropped and counted."""

    def __init__(self, exporter: Exporter, most: int = _QUEUE) -> None:
        super().__init__(exporter, max_queue_size=most)
        self._taker = exporter
        self._most = most
        self._put = 0
        self._quiet_until = 0.0

    def on_end(self, span: ReadableSpan) -> None:
        """Add a span."""
        if self._put - self._taker.taken >= self._most:
            metrics.trace_spans.labels("dropped").inc()
            if (now := time.monotonic()) >= self._quiet_until:
                self._quiet_until = now + _QUIET_SECONDS
                log.warning("spans_dropped", queue=self._most)
            return
        self._put += 1
        super().on_end(span)


def _extracted(found: str) -> Context:
    return _propagator.extract({"traceparent": found}, Context())


def _request(span: Span) -> Request:
    found = _traceparent(span)
    answered = partial(span.set_attribute, "http.response.status_code")
    return Request({"traceparent": found} if found else {}, answered)


def _traceparent(span: Span) -> str:
    """Return the header of a span (W3C Trace Context, section 3.2), "" without a trace."""
    found = span.get_span_context()
    if not found.is_valid:
        return ""
    return f"00-{found.trace_id:032x}-{found.span_id:016x}-{found.trace_flags:02x}"
