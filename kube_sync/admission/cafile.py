"""The certificates that the API server should trust the webhook by, in a file that is rotated."""

from __future__ import annotations

import base64
from pathlib import Path

from cryptography import x509

from kube_sync.errors import Misconfigured

_FIELD = "admission.registration.ca_file"


class CaFile:
    """The current content of one file; without a file there is none."""

    def __init__(self, path: str | None) -> None:
        self._path = Path(path) if path else None

    def current(self) -> str | None:
        """Return the PEM in base64, as in `caBundle`.

        Raises Misconfigured when that would be no certificates, or a private key for all to see;
        so a file that is still being written is not taken at its half.
        """
        if self._path is None:
            return None
        try:
            content = self._path.read_bytes()
            x509.load_pem_x509_certificates(content)
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or "no certificates in PEM"
            msg = f"{_FIELD}: {self._path}: {why}"
            raise Misconfigured(msg) from error
        if "PRIVATE KEY" in content.decode(errors="replace"):
            msg = f"{_FIELD}: {self._path}: has a private key in it; name a file of certificates"
            raise Misconfigured(msg)
        return base64.b64encode(content).decode()
