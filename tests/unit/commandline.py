"""The command line of this process, run as a person runs it."""

from __future__ import annotations

import pytest
import structlog

from kube_sync import cli


def status(*arguments: str) -> object:
    """Run one command; return the status that it exits with."""
    try:
        with pytest.raises(SystemExit) as exited:
            cli.main(arguments)
    finally:
        structlog.reset_defaults()  # logs are set up for the whole process
    return exited.value.code
