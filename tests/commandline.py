"""Run `kube-sync` in this process, which costs a test no start of another Python."""

from __future__ import annotations

import io
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from unittest import mock

import pytest

from kube_sync.cli import main


@dataclass(frozen=True, slots=True)
class Finished:
    """What a command did."""

    returncode: int
    stdout: str
    stderr: str


def kube_sync(*arguments: str, stdin: str = "", plugin: bool = False) -> Finished:
    """Run a command that ends by itself; `plugin`: as `kubectl kube-sync`."""
    out, err = io.StringIO(), io.StringIO()
    given = io.TextIOWrapper(io.BytesIO(stdin.encode()), encoding="utf-8")
    with (
        redirect_stdout(out),
        redirect_stderr(err),
        mock.patch.object(sys, "stdin", given),
        pytest.raises(SystemExit) as ended,
    ):
        main(list(arguments), plugin=plugin)
    return Finished(int(ended.value.code or 0), out.getvalue(), err.getvalue())
