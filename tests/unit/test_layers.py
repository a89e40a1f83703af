"""Rules that import-linter and ruff do not know, quick to check by reading the sources."""

from __future__ import annotations

import ast
import subprocess
import sys
from functools import cache
from pathlib import Path

import kube_sync

PACKAGE = Path(kube_sync.__file__).parent
MODULES = sorted(PACKAGE.rglob("*.py"))


def _name(module: Path) -> str:
    return module.relative_to(PACKAGE).as_posix()


@cache
def _tree(module: Path) -> ast.Module:
    return ast.parse(module.read_text())


def test_the_environment_is_read_by_the_command_line_alone() -> None:
    """It hands it to settings, which takes it as a value."""
    reading = [
        _name(module)
        for module in MODULES
        if "os.environ" in (source := module.read_text()) or "getenv" in source
    ]
    assert reading == ["cli/runner.py"]


def test_no_wait_can_swallow_a_cancellation() -> None:
    """asyncio.wait_for does before Python 3.12, when what it waits for is done at that moment."""
    assert [
        f"{_name(module)}:{node.lineno}"
        for module in MODULES
        for node in ast.walk(_tree(module))
        if isinstance(node, ast.Attribute) and node.attr == "wait_for"
    ] == []


def test_no_raw_json_is_compared_with_bytes() -> None:
    """A msgspec.Raw never equals bytes: such a comparison is always False."""
    assert [
        f"{_name(module)}:{node.lineno}"
        for module in MODULES
        for node in ast.walk(_tree(module))
        if isinstance(node, ast.Compare) and _compares_bytes(node)
    ] == []


def _compares_bytes(node: ast.Compare) -> bool:
    sides = (node.left, *node.comparators)
    return any(
        isinstance(side, ast.Constant) and isinstance(side.value, bytes) for side in sides
    ) and not any(
        isinstance(side, ast.Call) and ast.unparse(side.func) == "bytes" for side in sides
    )


def test_every_module_opens_with_a_docstring() -> None:
    assert [_name(module) for module in MODULES if not ast.get_docstring(_tree(module))] == []


def test_printing_the_configuration_does_not_pay_for_the_servers_libraries() -> None:
    """kubernetes_asyncio alone takes half a second and 50 MB."""
    script = """
import sys
from kube_sync import cli
try:
    cli.main(["config"])
except SystemExit:
    print(sorted({"kubernetes_asyncio", "aiohttp", "cryptography"} & sys.modules.keys()))
"""
    finished = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
        cwd=PACKAGE.parent,
        env={},
    )
    assert finished.stdout.splitlines()[-1] == "[]"
