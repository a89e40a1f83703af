"""Cheaper imports at the start of a process; afterwards everything is as with plain imports."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager


@contextmanager
def without_collections() -> Iterator[None]:
    """Collect no garbage within the block.

    Imports make 100,000 objects, almost all of which stay, and the collector would look at them
    again and again.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def import_aiohttp(environment: MutableMapping[str, str]) -> None:
    """Import aiohttp without the machine's certificate authorities, if it is not imported yet.

    aiohttp loads them at its import, for requests without a TLS context of their own: 0.04 s and
    2 MB. All clients here pass one (`clienttls`); a request without one trusts nobody after this.
    `environment` is that of the process, where OpenSSL finds the names of the files.
    """
    names = ("SSL_CERT_FILE", "SSL_CERT_DIR")
    before = {name: environment.get(name) for name in names}
    environment.update(dict.fromkeys(names, os.devnull))
    try:
        import aiohttp  # noqa: F401, PLC0415 - here, with another environment
    finally:
        for name, value in before.items():
            if value is None:
                del environment[name]
            else:
                environment[name] = value
