from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tools.servers.errors import ToolError
from tools.servers.node_machine import Machine
from tools.servers.pids import children


def test_who_is_not_root_is_told_so_and_nothing_is_made(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(ToolError, match="needs root"):
        Machine(tmp_path, Path("pause"))
    assert [*tmp_path.iterdir()] == []


def test_children_are_those_that_run() -> None:
    waiting = "import sys; sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", waiting], stdin=subprocess.PIPE) as child:
        assert child.pid in children(os.getpid())
        child.communicate()
    assert child.pid not in children(os.getpid())
