"""The command line of this process, run as a person runs it."""

from __future__ import annotations

import pytest

from kube_sync import cli


def status(*arguments: str) -> object:
    """Run one command; return the status that it exits with."""
    with pytest.raises(SystemExit) as exited:
        cli.main(arguments)
    return exited.value.code
