"""Errors that cross a package boundary, named by what the caller does next.

SyncError
├── Retriable       the same call may succeed later: time-outs, 5xx, 429, a refused connection
│   ├── Expired     410 Gone: the resourceVersion is too old, list again
│   ├── Unconfirmed 404 for a kind that may exist: cached objects stay
│   ├── Overloaded  429, 503, 504, no answer in time: send fewer requests at a time
│   └── TooExpensive  a process exceeded its limits; retry only with another input
├── Refused         401 or 403: a permission is missing; retried slowly
├── NotFound        404: the object does not exist, drop it
├── Conflict        409: another writer was first, read again
├── EpochLost       OPA no longer holds what was written: load everything again
├── Undecided       OPA gave no usable decision, and a retry gives none either
└── Terminal        a retry cannot help until somebody changes something
    ├── Misconfigured   the configuration: name the field, exit with status 64
    └── Broken      the input of a command: list all errors, line by line
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final, TypeVar

import msgspec

# What msgspec raises for invalid JSON: text that is not UTF-8, and too deep nesting, raise no
# DecodeError. These errors are caught where the JSON is decoded.
NO_JSON: Final = (msgspec.DecodeError, UnicodeError, RecursionError)
_T = TypeVar("_T")


class SyncError(Exception):
    """Base of every error that kube_sync raises on purpose."""


class Retriable(SyncError):
    """The same call may succeed later; `retry_after` is the server's delay, in seconds."""

    def __init__(self, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class Expired(Retriable):
    """The watch cannot resume from this resourceVersion."""


class Unconfirmed(Retriable):
    """A 404 for a kind that is not known to be gone."""


class Overloaded(Retriable):
    """The server has too many requests, or does not answer in time."""


class TooExpensive(Retriable):
    """A process ended because it exceeded a limit, which `limit` names."""

    def __init__(self, what: str, limit: str) -> None:
        super().__init__(f"{what}: {limit}")
        self.limit = limit


class Refused(SyncError):
    """The server knows the call and does not allow it."""


class NotFound(SyncError):
    """The requested object does not exist."""


class Conflict(SyncError):
    """The object changed since it was read."""


class EpochLost(SyncError):
    """OPA was restarted, wiped, or taken over by another replicator."""


class Undecided(SyncError):
    """OPA gave no usable decision: undefined, malformed, or an evaluation error."""


class Terminal(SyncError):
    """The same call fails until somebody changes something."""


class Misconfigured(Terminal):
    """The configuration is wrong; the message begins with the path of the field."""


class Broken(Terminal):
    """The input of a command is invalid; each line names a file with its row, or an object."""

    def __init__(self, lines: Iterable[str]) -> None:
        super().__init__("\n".join(lines))


def decoded(body: bytes, shape: type[_T], problem: str) -> _T:
    """Decode the JSON of an answer. Raises Retriable, which begins with `problem`."""
    try:
        return msgspec.json.decode(body, type=shape)
    except NO_JSON as error:
        msg = f"{problem}: {error}"
        raise Retriable(msg) from error


@contextmanager
def json_errors_as(failure: type[Exception], problem: str) -> Iterator[None]:
    """Raise what makes JSON unreadable as `failure`, which begins with `problem`."""
    try:
        yield
    except NO_JSON as error:
        msg = f"{problem}: {error}"
        raise failure(msg) from error


def json_type(value: object) -> str:
    """Return the JSON type of a value for messages: `an object`."""
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case str():
            return "a string"
        case list():
            return "an array"
        case dict():
            return "an object"
        case _:
            return "a number"


def first_of(group: BaseException) -> BaseException:
    """Return the first error in a group, or in groups within groups."""
    while isinstance(group, BaseExceptionGroup):
        group = group.exceptions[0]
    return group
