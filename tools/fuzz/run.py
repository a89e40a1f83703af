"""Runs input through parsers, out of which comes a valid answer or an error of ours, in time."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random
from types import FrameType
from typing import Final

from tools.fuzz.mutations import mutated

SECONDS: Final = 5.0  # for one input; they take a fraction of a millisecond
_TRIES: Final = 400  # to make an input smaller that was found
_PATIENCE: Final = 15.0  # seconds for that


class Hangs(BaseException):
    """A parser that did not come to an end; no parser may catch it."""


@dataclass(frozen=True)
class Parser:
    """Something that reads what others write; `read` asserts that what it gives is valid."""

    name: str
    samples: Sequence[bytes]
    read: Callable[[bytes], object]
    weight: int = 1  # how many inputs it gets of those of all


@dataclass
class Found:
    """An input that does harm, as small as it could be made."""

    parser: str
    error: str
    input: bytes


@dataclass
class Report:
    """What a run did."""

    inputs: dict[str, int] = field(default_factory=dict)
    refused: dict[str, int] = field(default_factory=dict)
    slowest: dict[str, float] = field(default_factory=dict)
    found: list[Found] = field(default_factory=list)


def fuzz(
    parsers: Sequence[Parser], number: int, seed: int, told: Callable[[Report], None]
) -> Report:
    """Give parsers so many inputs in all; `told` hears of the progress."""
    report = Report()
    whole = sum(parser.weight for parser in parsers)
    for parser in parsers:
        random = Random(f"{seed} {parser.name}")  # noqa: S311 - chance that can be repeated
        for _ in range(-(-number * parser.weight // whole)):
            _one(parser, mutated(random, parser.samples), report)
        told(report)
    return report


def harm(parser: Parser, content: bytes) -> str | None:
    """Return what a parser does that it must not, None: it answers, or refuses."""
    try:
        with _limited():
            parser.read(content)
    except Hangs:
        return f"takes longer than {SECONDS:.0f} s"
    except Exception as error:  # noqa: BLE001 - whatever it is
        return None if _is_ours(error) else _named(error)
    return None


def _one(parser: Parser, content: bytes, report: Report) -> None:
    begun = time.perf_counter()
    refused = False
    try:
        with _limited():
            parser.read(content)
    except Hangs:
        _keep(parser, content, f"takes longer than {SECONDS:.0f} s", report)
    except Exception as error:  # noqa: BLE001 - whatever it is
        refused = _is_ours(error)
        if not refused:
            _keep(parser, content, _named(error), report)
    seconds = time.perf_counter() - begun
    name = parser.name
    report.inputs[name] = report.inputs.get(name, 0) + 1
    report.refused[name] = report.refused.get(name, 0) + refused
    report.slowest[name] = max(report.slowest.get(name, 0.0), seconds)


def _keep(parser: Parser, content: bytes, error: str, report: Report) -> None:
    # One of a kind is enough.
    kind = error.partition(":")[0]
    if any((f.parser, f.error.partition(":")[0]) == (parser.name, kind) for f in report.found):
        return
    report.found.append(Found(parser.name, error, smaller(parser, content, kind)))


def smaller(parser: Parser, content: bytes, kind: str) -> bytes:
    """Return the smallest input that was found with the same kind of harm, by leaving out parts."""
    size, tries, end = len(content) // 2, 0, time.monotonic() + _PATIENCE
    while size:
        place = 0
        while place < len(content) and tries < _TRIES and time.monotonic() < end:
            tries += 1
            less = content[:place] + content[place + size :]
            if (harm(parser, less) or "").startswith(kind):
                content = less
            else:
                place += size
        size //= 2
    return content


def _is_ours(error: Exception) -> bool:
    return type(error).__module__.startswith("kube_sync.")


def _named(error: Exception) -> str:
    frames, at = error.__traceback__, ""
    while frames is not None:
        file = frames.tb_frame.f_code.co_filename
        if "/kube_sync/" in file:
            at = f"{file.partition('/kube_sync/')[2]}:{frames.tb_lineno}"
        frames = frames.tb_next
    return f"{type(error).__name__} at {at}: {str(error)[:200]}"


@contextmanager
def _limited() -> Iterator[None]:
    def late(_number: int, _frame: FrameType | None) -> None:
        raise Hangs

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def table(report: Report) -> Iterator[str]:
    """Yield the lines of what a run did."""
    yield f"{'parser':<24}{'inputs':>9}{'refused':>9}{'slowest':>10}"
    rows: Mapping[str, int] = report.inputs
    for name, inputs in rows.items():
        slowest = report.slowest[name] * 1000
        yield f"{name:<24}{inputs:>9}{report.refused[name]:>9}{slowest:>7.0f} ms"
