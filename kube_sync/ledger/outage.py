"""A byte beside the ledger that says whether something may be missing in it.

What a process keeps for a file that it cannot write ends with the process, and so does the count of
what it lost. The byte is there before and written in place, which a full disk allows, so that the
next process knows: it is on from the first failure until all that was kept is in the file.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

_ON: Final = b"1"
_OFF: Final = b"0"


class Outage:
    """The byte; it belongs to one thread."""

    def __init__(self, path: Path) -> None:
        """Read what an earlier process left there."""
        self._path = path
        self.since: float | None = None  # of an earlier process: Unix seconds, None: nothing is
        self._on: bool | None = None  # as the file says, None: nobody knows
        with suppress(OSError):
            if path.read_bytes()[:1] == _ON:
                self.since, self._on = path.stat().st_mtime, True
            path.chmod(0o600)  # one that an older version left

    @property
    def on(self) -> bool:
        """Whether something may be missing."""
        return self._on is True

    def note(self, *, on: bool) -> None:
        """Say so, or that nothing is; where that cannot be said it is said by the next call."""
        if self._on is on:
            return
        with suppress(OSError):
            file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                os.write(file, _ON if on else _OFF)
            finally:
                os.close(file)
            self._on = on
