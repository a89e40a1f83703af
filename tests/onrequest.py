"""Tests that need a program which is only built when it is asked for.

A test of this kind has the mark of its program. Where the program is not there, `-m` has to name
the mark for its tests to be run, and then it is built first; without it they are deselected, and
the summary says how many, why, and which command runs them.
"""

from __future__ import annotations

from typing import Any

import pytest

from tools.servers.kueue import ensure_kueue, is_built

_PROGRAMS = {"kueue": (is_built, ensure_kueue)}
_COMMANDS = {"kueue": "make test-kueue"}
_LEFT_OUT = pytest.StashKey[dict[str, int]]()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the tests of programs that are not there, unless they are asked for by mark."""
    config.stash[_LEFT_OUT] = left_out = {}
    for mark, (is_there, _) in _PROGRAMS.items():
        of_it = [item for item in items if item.get_closest_marker(mark) is not None]
        if of_it and mark not in config.option.markexpr and not is_there():
            config.hook.pytest_deselected(items=of_it)
            items[:] = [item for item in items if item not in of_it]
            left_out[mark] = len(of_it)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Build the programs of the tests that are left."""
    config = session.config
    for mark, (_, ensure) in _PROGRAMS.items():
        needed = any(item.get_closest_marker(mark) is not None for item in session.items)
        if needed and not config.option.collectonly:
            capture = config.pluginmanager.getplugin("capturemanager")
            with capture.global_and_fixture_disabled():
                ensure()


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Say what was left out, and how it is run."""
    for mark, number in config.stash.get(_LEFT_OUT, {}).items():
        terminalreporter.write_line(
            f"LEFT OUT: {number} tests of {mark}, whose program is not built: {_COMMANDS[mark]}"
        )
