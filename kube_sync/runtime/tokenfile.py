"""A bearer token in a file that is rotated by others.

The file is read again when its time stamp changes, so that a rotation needs no restart. It may hold
several tokens, one a line: a client sends the first, and a server accepts any of them, so
that a rotation loses nothing while some processes have the new file and others the old one.
"""

from __future__ import annotations

import hmac
from pathlib import Path

from kube_sync.errors import Misconfigured


class TokenFile:
    """The current tokens of one file; without a file there is none."""

    def __init__(self, path: str | None) -> None:
        self._path = Path(path) if path else None
        self._tokens: tuple[str, ...] = ()
        self._stamp: tuple[int, int] | None = None

    @property
    def required(self) -> bool:
        """Whether a token file is configured, so that clients have to send a token."""
        return self._path is not None

    def current(self) -> str | None:
        """Return the token to send.

        Raises Misconfigured when the file is missing or holds no token.
        """
        tokens = self._read()
        return tokens[0] if tokens else None

    def all(self) -> tuple[str, ...]:
        """Return every token, none without a file. Raises Misconfigured, as `current` does."""
        return self._read()

    def accepts(self, authorization: str) -> bool:
        """Return whether this Authorization header of aiohttp has one of the tokens.

        Without a file every client is accepted. Raises Misconfigured, as `current` does.
        """
        tokens = self._read()
        # As sent: aiohttp decodes bytes that are no text to surrogates.
        sent = authorization.encode("utf-8", "surrogateescape")
        # In constant time, and all of them: timing must not show how much of a guess was right.
        right = [hmac.compare_digest(sent, f"Bearer {token}".encode()) for token in tokens]
        return any(right) or not tokens

    def _read(self) -> tuple[str, ...]:
        if self._path is None:
            return ()
        try:
            status = self._path.stat()
            # The inode too: Kubernetes swaps a symbolic link, often within one clock tick.
            stamp = (status.st_mtime_ns, status.st_ino)
            if stamp != self._stamp:
                lines = self._path.read_text(encoding="utf-8").splitlines()
                self._tokens = tuple(line.strip() for line in lines if line.strip())
                self._stamp = stamp
        except (OSError, UnicodeDecodeError) as error:
            msg = f"token file {self._path}: {getattr(error, 'strerror', None) or 'not text'}"
            raise Misconfigured(msg) from error
        if not self._tokens:
            msg = f"token file {self._path}: empty"
            raise Misconfigured(msg)
        if any(len(token.split()) > 1 for token in self._tokens):
            msg = f"token file {self._path}: more than one word in a line"
            raise Misconfigured(msg)
        return self._tokens

    def headers(self) -> dict[str, str]:
        """Return the Authorization header, or none."""
        token = self.current()
        return {"Authorization": f"Bearer {token}"} if token else {}
