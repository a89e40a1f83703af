"""A command that prints something at once imports nothing slow."""

from __future__ import annotations

import subprocess
import sys

import pytest

SLOW = {"asyncio", "yaml", "structlog", "rich", "ssl", "http.client", "aiohttp", "kube_sync.config"}


def _imported(code: str) -> set[str]:
    """Return the names of the modules that a program has imported at its end."""
    shown = "; import sys; print(*sys.modules, file=sys.stderr)"
    finished = subprocess.run(
        [sys.executable, "-c", code + shown], capture_output=True, text=True, check=True, timeout=60
    )
    return set(finished.stderr.split())


@pytest.mark.parametrize("words", [[], ["--help"], ["--version"], ["why", "--help"]])
def test_help_imports_nothing_slow(words: list[str]) -> None:
    run = "import contextlib, kube_sync.cli\nwith contextlib.suppress(SystemExit): "
    run += f"kube_sync.cli.main({words!r})\npass"
    assert SLOW & _imported(run) == set()


def test_question_about_now_imports_no_server_no_topology_and_no_ledger() -> None:
    found = _imported("import kube_sync.inspect.why.command")
    needless = {"aiohttp.web", "sqlite3", "kube_sync.topology", "kube_sync.ledger"}
    assert needless & found == set()


def test_structlog_is_imported_without_rich() -> None:
    found = _imported("from kube_sync.observability import logs")
    assert ("structlog" in found, "rich" in found) == (True, False)


def test_rich_can_be_imported_where_it_is_installed() -> None:
    assert "rich.text" in _imported("from kube_sync.observability import logs; import rich.text")
