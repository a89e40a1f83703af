"""Errors that cross a package boundary, named by what the caller does next.

SyncError
├── Retriable       the same call may succeed later: time-outs, 5xx, 429, a refused connection
│   ├── Expired     410 Gone: the resourceVersion is too old, list again
│   ├── Unconfirmed 404 for a kind that may be there: what was seen of it stands
│   └── TooExpensive  a process exceeded its limits; what it was given needs another version
├── Refused         401 or 403: somebody has to grant something; tried again, slowly
├── NotFound        404: the thing is not there, forget it
├── Conflict        409: somebody else was first, read again
├── EpochLost       OPA no longer holds what was written: load everything again
├── Undecided       the engine gave no usable decision, and asking again gives none either
└── Terminal        retrying cannot help until somebody changes something
    ├── Misconfigured   the configuration: say which field, exit with status 2
    └── Broken      what a command was asked with: say all that is wrong with it, line by line
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

# What msgspec raises for what is no JSON, or none that is meant: a text that is no UTF-8 and what
# is nested too deeply are no DecodeError. Foreign, it stops where it is decoded.
NO_JSON: Final = (msgspec.DecodeError, UnicodeError, RecursionError)


class SyncError(Exception):
    """Base of every error kube_sync raises on purpose."""


class Retriable(SyncError):
    """The same call may succeed later; `retry_after` is what the server asked for, in seconds."""

    def __init__(self, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class Expired(Retriable):
    """The watch cannot resume from this resourceVersion."""


class Unconfirmed(Retriable):
    """A 404 for a kind that is not known to be gone."""


class TooExpensive(Retriable):
    """A process ended because it exceeded a limit, which `limit` names."""

    def __init__(self, what: str, limit: str) -> None:
        super().__init__(f"{what}: {limit}")
        self.limit = limit


class Refused(SyncError):
    """The server knows the call and does not allow it."""


class NotFound(SyncError):
    """The thing asked for does not exist."""


class Conflict(SyncError):
    """The thing changed since it was read."""


class EpochLost(SyncError):
    """OPA was restarted, wiped, or taken over by another replicator."""


class Undecided(SyncError):
    """The engine gave no usable decision: undefined, malformed, or an evaluation error."""


class Terminal(SyncError):
    """The same call fails until somebody changes something."""


class Misconfigured(Terminal):
    """The configuration is wrong; the message begins with the path of the field."""


class Broken(Terminal):
    """There is no answer; each line names a file with its row, or an object."""

    def __init__(self, lines: Iterable[str]) -> None:
        super().__init__("\n".join(lines))


def json_type(value: object) -> str:
    """Return which type of JSON a value is, as messages say it: `an object`."""
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
    """Return the first error that is not a group, out of groups within groups."""
    while isinstance(group, BaseExceptionGroup):
        group = group.exceptions[0]
    return group
