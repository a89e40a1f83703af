"""Collect what the project's image installs: wheels after requirements.lock, and the project's own.

Collected outside the build because a build has no network, and the lock's hashes hold there and
here. Knows nothing of images; what is unchanged is not collected again.
"""

from __future__ import annotations

import hashlib
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from tools.servers.console import step
from tools.servers.errors import ToolError

PYTHON = "3.11"  # the minor version of both base images
# The oldest names each C library feature level has had; Debian 12 has glibc 2.36.
_LEVELS = ("manylinux2014", "manylinux_2_17", "manylinux_2_28", "manylinux_2_34", "manylinux_2_35")


def collect_dependencies(root: Path) -> None:
    """Fill build/wheels with exactly what requirements.lock names, for the image's Python."""
    lock, folder = root / "requirements.lock", root / "build/wheels"
    if not _is_new(folder, stamp := digest(root, [lock, root / "tools/servers/wheels.py"])):
        return
    with step("collecting wheels after requirements.lock (seconds to a minute)"):
        _empty(folder)
        _pip(root, "download", *_platform(), "--require-hashes", "-r", str(lock), "-d", str(folder))
        _stamp(folder).write_text(stamp, encoding="ascii")


def build_project(root: Path) -> None:
    """Put a wheel of the project itself into build/project."""
    folder = root / "build/project"
    if not _is_new(folder, stamp := digest(root, project_files(root))):
        return
    with step("building the project's own wheel (seconds)"):
        _empty(folder)
        _pip(root, "wheel", "--no-deps", "--no-build-isolation", ".", "-w", str(folder))
        _stamp(folder).write_text(stamp, encoding="ascii")


def project_files(root: Path) -> list[Path]:
    """Return every file that the project's wheel is made of."""
    folders = (root / "kube_sync", root / "rego")
    found = (path for folder in folders for path in folder.rglob("*"))
    sources = [path for path in found if "__pycache__" not in path.parts]
    meta = [root / name for name in ("pyproject.toml", "README.md", "LICENSE")]
    return sorted(path for path in (*sources, *meta) if path.is_file())


def digest(root: Path, files: Iterable[Path]) -> str:
    """Return a digest of the names (below `root`) and contents of files."""
    total = hashlib.sha256()
    for path in files:
        total.update(f"{path.relative_to(root)}\0{path.stat().st_size}\0".encode())
        total.update(path.read_bytes())
    return total.hexdigest()


def _is_new(folder: Path, stamp: str) -> bool:
    file = _stamp(folder)
    return not file.exists() or file.read_text(encoding="ascii") != stamp


def _stamp(folder: Path) -> Path:
    """Return the file that tells what the folder was made from; beside it, not copied with it."""
    return folder.with_suffix(".made-from")


def _empty(folder: Path) -> None:
    _stamp(folder).unlink(missing_ok=True)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)


def _platform() -> list[str]:
    version = PYTHON.replace(".", "")
    names = [f"--platform={level}_{platform.machine()}" for level in _LEVELS]
    abis = [f"--abi={abi}" for abi in (f"cp{version}", "abi3", "none")]
    return ["--only-binary=:all:", "--no-deps", f"--python-version={PYTHON}", *names, *abis]


def _pip(root: Path, *arguments: str) -> None:
    command = [sys.executable, "-m", "pip", *arguments, "--quiet", "--disable-pip-version-check"]
    answer = subprocess.run(
        command,
        cwd=root,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if answer.returncode != 0:
        msg = f"pip {arguments[0]} failed: {answer.stdout.strip()[-1000:]}"
        raise ToolError(msg)
