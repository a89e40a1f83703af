"""Rules of the architecture that are quick to check by reading the sources."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import kube_sync

PACKAGE = Path(kube_sync.__file__).parent
MODULES = sorted(PACKAGE.rglob("*.py"))


def _name(module: Path) -> str:
    return module.relative_to(PACKAGE).as_posix()


@cache
def _tree(module: Path) -> ast.Module:
    return ast.parse(module.read_text())


@cache
def _nodes(module: Path) -> list[ast.AST]:
    return [*ast.walk(_tree(module))]


def _imported(module: Path) -> Iterator[str]:
    """Yield the part of kube_sync (its first name below it) that each import is of."""
    for node in _nodes(module):
        if isinstance(node, ast.ImportFrom) and node.module == "kube_sync":
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("kube_sync."):
            assert node.module is not None
            yield node.module.split(".")[1]


@cache
def _layers() -> dict[str, int]:
    configuration = tomllib.loads((PACKAGE.parent / "pyproject.toml").read_text())
    (contract,) = (
        c for c in configuration["tool"]["importlinter"]["contracts"] if c["type"] == "layers"
    )
    return {
        part.strip(" ()"): number
        for number, layer in enumerate(contract["layers"])
        for part in layer.split("|")
    }


@pytest.mark.parametrize("module", MODULES, ids=_name)
def test_imports_point_down_the_layers_and_never_sideways(module: Path) -> None:
    layers = _layers()
    own = module.relative_to(PACKAGE).parts[0].removesuffix(".py")
    for other in set(_imported(module)) - {own, "__version__"}:
        if own != "__init__":
            assert layers[other] > layers[own], f"{own} imports {other}"


@pytest.mark.parametrize("module", MODULES, ids=_name)
def test_the_environment_is_read_by_the_command_line_alone(module: Path) -> None:
    """It hands it to settings, which takes it as a value."""
    source = module.read_text()
    if _name(module) != "cli.py":
        assert "os.environ" not in source
        assert "getenv" not in source


@pytest.mark.parametrize("module", MODULES, ids=_name)
def test_no_wait_can_swallow_a_cancellation(module: Path) -> None:
    """asyncio.wait_for does before Python 3.12, when what it waits for is done at that moment."""
    for node in _nodes(module):
        assert not (isinstance(node, ast.Attribute) and node.attr == "wait_for")


@pytest.mark.parametrize("module", MODULES, ids=_name)
def test_no_raw_json_is_compared_with_bytes(module: Path) -> None:
    """A msgspec.Raw never equals bytes: such a comparison is always False."""
    for node in _nodes(module):
        if isinstance(node, ast.Compare) and any(
            isinstance(side, ast.Constant) and isinstance(side.value, bytes)
            for side in (node.left, *node.comparators)
        ):
            assert any(
                isinstance(side, ast.Call) and ast.unparse(side.func) == "bytes"
                for side in (node.left, *node.comparators)
            ), f"{_name(module)}:{node.lineno}"


@pytest.mark.parametrize("module", MODULES, ids=_name)
def test_every_module_opens_with_a_docstring(module: Path) -> None:
    assert ast.get_docstring(_tree(module))


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
