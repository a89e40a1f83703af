"""Converts aiohttp's errors of a request to Retriable, with the server's name.

No answer in time is Overloaded.
"""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager

import aiohttp
from aiohttp.http import HttpProcessingError

from kube_sync.errors import Overloaded, Retriable


@contextmanager
def retriable(where: str) -> Iterator[None]:
    """Convert any aiohttp error in the block to Retriable.

    `where` names the server for a person, as in `OPA https://opa:8181`.
    """
    try:
        yield
    except aiohttp.ClientConnectorCertificateError as error:
        msg = f"{where}: its certificate is not accepted: {error.certificate_error}"
        raise Retriable(msg) from error
    except TimeoutError as error:
        msg = f"{where}: no answer in time"
        raise Overloaded(msg) from error
    except aiohttp.ClientConnectorError as error:  # its text names an object of Python's
        reason = _reason(error.os_error)
        msg = f"{where}: Cannot connect to host {error.host}:{error.port}: {reason}"
        raise Retriable(msg) from error
    # A line over the limit raises HttpProcessingError, which is no ClientError.
    except (aiohttp.ClientError, HttpProcessingError) as error:
        msg = f"{where}: {str(error) or type(error).__name__}"
        raise Retriable(msg) from error


def _reason(error: OSError) -> str:
    """Return why there is no connection; asyncio repeats the address instead."""
    # Those of TLS and of names that are not found have numbers of their own.
    if isinstance(error, ssl.SSLError | socket.gaierror) or not error.errno or error.errno < 0:
        return error.strerror or str(error)
    return os.strerror(error.errno)
