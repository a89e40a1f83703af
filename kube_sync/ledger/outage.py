"""A flag file beside the ledger: entries may be missing in it.

The queue of a process whose file cannot be written ends with the process, and so does its count of
lost entries. The file exists beforehand and its one byte is overwritten in place, which a full disk
allows, so that the next process sees it: it is set from the first failure until all is written.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

_ON: Final = b"1"
_OFF: Final = b"0"


class Outage:
    """The flag file; it belongs to one thread."""

    def __init__(self, path: Path) -> None:
        """Read the flag of an earlier process."""
        self._path = path
        self.since: float | None = None  # an earlier process set it: Unix seconds, None: not set
        self._on: bool | None = None  # the state in the file, None: unknown
        with suppress(OSError):
            if path.read_bytes()[:1] == _ON:
                self.since, self._on = path.stat().st_mtime, True
            path.chmod(0o600)  # an older version may have left another mode

    @property
    def on(self) -> bool:
        """Whether entries may be missing."""
        return self._on is True

    def note(self, *, on: bool) -> None:
        """Set or clear the flag; a failed write is retried by the next call."""
        if self._on is on:
            return
        with suppress(OSError):
            file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                os.write(file, _ON if on else _OFF)
            finally:
                os.close(file)
            self._on = on
