"""Download the wheels that the project's image installs, where its build reaches no index.

The hashes of the locks are checked here and in the build. Knows nothing of images; what is
unchanged is not downloaded again.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from tools.servers.console import step
from tools.servers.emulation import MACHINES, native
from tools.servers.errors import ToolError

LOCKS = ("requirements.lock", "requirements-build.lock")
PYTHON = "3.11"  # the minor version of both base images
# What pip takes on Debian 12 (glibc 2.36), the newest first, so that the wheels are the same.
_LEVELS = (*(f"manylinux_2_{minor}" for minor in range(36, 16, -1)), "manylinux2014")


def collect_wheels(root: Path, architecture: str = "") -> Path:
    """Return a folder with exactly what both locks name, for the image's Python.

    It is build/wheels, or, where a processor is named, build/wheels-ARCHITECTURE.
    """
    suffix = f"-{architecture}" if architecture else ""
    folder, locks = root / f"build/wheels{suffix}", [root / name for name in LOCKS]
    stamp_file = folder.with_suffix(".made-from")  # beside it, not copied with it
    stamp = digest(root, [*locks, root / "tools/servers/wheels.py"])
    if stamp_file.exists() and stamp_file.read_text(encoding="ascii") == stamp:
        return folder
    machine = MACHINES.get(architecture or native(), native())
    said = f"collecting wheels for {machine} after {' and '.join(LOCKS)} (seconds to a minute)"
    with step(said):
        stamp_file.unlink(missing_ok=True)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for lock in locks:
            _pip(
                root,
                "download",
                *_platform(machine),
                "--require-hashes",
                "-r",
                str(lock),
                "-d",
                str(folder),
            )
        stamp_file.write_text(stamp, encoding="ascii")
    return folder


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


def _platform(machine: str) -> list[str]:
    version = PYTHON.replace(".", "")
    names = [f"--platform={level}_{machine}" for level in _LEVELS]
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
