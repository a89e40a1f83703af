"""Spans of reviews, writes to OPA, evaluations and PATCHes, if traces are on (docs/tracing.md).

Everything else records spans through this module. While traces are off, `recorder` is None, each
function returns at once, and OpenTelemetry is not imported.

A context is a `traceparent` (W3C Trace Context, section 3.2). Work that goes on in another task or
process is told the context of what caused it. Invariant: attributes are names, numbers and ids,
never a body, the value of an annotation, or the text of an error, which may quote either.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Literal

from kube_sync.config import Tracing
from kube_sync.errors import Misconfigured
from kube_sync.observability.logs import add_to_each_record

if TYPE_CHECKING:  # slow, and optional
    from kube_sync.observability.otel import OtelRecorder

Attributes = Mapping[str, str | int | Sequence[str]]
Kind = Literal["internal", "server", "client"]
NOTHING: Final[Mapping[str, str]] = MappingProxyType({})
_TRACE: Final = 35  # characters of a context up to the end of its trace id
_ODD: Final = tuple("13579bdf")  # the last digit of flags with `sampled`
_MOST_OBJECTS: Final = 10  # named in an attribute


@dataclass(frozen=True, slots=True)
class Request:
    """A request to a server, as its span records it."""

    headers: Mapping[str, str]  # by which the server's own spans join the trace
    answered: Callable[[int], None]  # records the status of the response


_UNTRACED: Final = nullcontext(Request(NOTHING, lambda _status: None))
recorder: OtelRecorder | None = None  # None: traces are off


@contextmanager
def traced(settings: Tracing, command: str) -> Iterator[None]:
    """Record spans while the block lasts, if they are enabled. Raises Misconfigured."""
    global recorder  # noqa: PLW0603 - one for the process, as metrics and loggers
    if not settings.enabled:
        yield
        return
    try:
        from kube_sync.observability.otel import otel_recorder  # noqa: PLC0415 - as above
    except ImportError as error:
        msg = (
            f"observe.tracing.enabled: {error.name} is not installed;"
            " install it with: pip install 'kube-sync[otel]'"
        )
        raise Misconfigured(msg) from error
    recorder = otel_recorder(settings.ratio, command)
    leave_out = add_to_each_record(ids)
    try:
        yield
    finally:
        leave_out()
        recorder.close()
        recorder = None


def span(
    name: str,
    about: Attributes = NOTHING,
    *,
    causes: Iterable[str] = (),
    since: float | None = None,
    kind: Kind = "internal",
) -> AbstractContextManager[object]:
    """Record a span, current within the block; it began at `since` on the monotonic clock.

    Of the contexts in `causes`, the first that is sampled is the parent, and the others are links.
    Without any, the parent is the current span, or a trace begins.
    """
    if recorder is None:
        return nullcontext()
    return recorder.span(name, kind, causes, since, about)


def request(peer: str, method: str, url: str) -> AbstractContextManager[Request]:
    """Record a request to a `peer`, if there is a current span; of the URL, only the path."""
    return _UNTRACED if recorder is None else recorder.request(peer, method, url)


def describe(about: Attributes) -> None:
    """Set attributes of the current span."""
    if recorder is not None:
        recorder.describe(about)


def context() -> str:
    """Return the context of the current span, "" if there is none."""
    return "" if recorder is None else recorder.context()


def sampled() -> str:
    """Return the context of the current span, "" unless it is recorded."""
    return found if is_sampled(found := context()) else ""


def is_sampled(found: str) -> bool:
    """Return whether spans of a context are recorded (the flag `sampled`, section 3.2.2.5)."""
    return found.endswith(_ODD)


def continued(cause: str, evaluation: str) -> str:
    """Return the context in which a decision is carried out: of its evaluation, or its cause.

    The evaluation may be older, and for another object. "" if the decision has no trace.
    """
    if not cause or cause[:_TRACE] == evaluation[:_TRACE]:
        return evaluation
    return cause if is_sampled(cause) else ""


def ids() -> Mapping[str, str]:
    """Return `trace_id` and `span_id` of the current span, for logs and exemplars."""
    if recorder is None or not (found := sampled()):
        return NOTHING
    return {"trace_id": trace_id(found), "span_id": found.split("-")[2]}


def trace_id(found: str) -> str:
    """Return the id of the trace of a context, "" without one."""
    return found.split("-")[1] if found else ""


def exemplar() -> dict[str, str] | None:
    """Return the exemplar of an observation in the current span, None if it is not recorded."""
    return None if recorder is None else dict(ids()) or None


def objects(names: Sequence[str], count: int | None = None) -> Attributes:
    """Return the attributes that name objects, the first ones of many."""
    count = len(names) if count is None else count
    return {"kube_sync.object.count": count, "kube_sync.objects": names[:_MOST_OBJECTS]}
