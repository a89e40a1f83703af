"""A bearer token in a file that somebody else rotates.

The file is read again when its time stamp changes, so that a rotation needs no restart.
"""

from __future__ import annotations

from pathlib import Path

from kube_sync.errors import Misconfigured


class TokenFile:
    """The current token of one file; without a file there is none."""

    def __init__(self, path: str | None) -> None:
        self._path = Path(path) if path else None
        self._token: str | None = None
        self._stamp: tuple[int, int] | None = None

    def current(self) -> str | None:
        """Return the token. Raises Misconfigured when the file is missing or holds no token."""
        if self._path is None:
            return None
        try:
            status = self._path.stat()
            # The inode too: Kubernetes swaps a symbolic link, often within one clock tick.
            stamp = (status.st_mtime_ns, status.st_ino)
            if stamp != self._stamp:
                self._token = self._path.read_text(encoding="utf-8").strip()
                self._stamp = stamp
        except (OSError, UnicodeDecodeError) as error:
            msg = f"token file {self._path}: {getattr(error, 'strerror', None) or 'not text'}"
            raise Misconfigured(msg) from error
        if not self._token:
            msg = f"token file {self._path}: empty"
            raise Misconfigured(msg)
        if len(self._token.split()) > 1:  # a line break would make every request a ValueError
            msg = f"token file {self._path}: more than one word"
            raise Misconfigured(msg)
        return self._token

    def headers(self) -> dict[str, str]:
        """Return the Authorization header, or none."""
        token = self.current()
        return {"Authorization": f"Bearer {token}"} if token else {}
