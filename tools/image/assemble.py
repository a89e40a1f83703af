"""Lay out the root of an image that holds a Python, one virtual environment, and nothing else.

Runs in the build stage, as `python3 assemble.py ENVIRONMENT ROOT`; what it lays out becomes the
whole final stage: no shell, no package manager, no tool of the base image. Keeps true: files come
with the shared libraries that they load, symbolic links stay links, and nothing tells when or by
whom it was built, so that the same base, lock and sources make the same layer.
Standard library only.
"""

from __future__ import annotations

import compileall
import os
import py_compile
import shutil
import ssl
import subprocess
import sys
import sysconfig
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

EPOCH = int(os.environ.get("SOURCE_DATE_EPOCH", "0"))  # seconds; of every file in the image
USER = 65532
_ELF = b"\x7fELF"
# Parts of the standard library that serve developers: installers, tests, desktops, documentation.
_NOT_NEEDED = frozenset(
    (
        "__pycache__",
        "dist-packages",
        "ensurepip",
        "idlelib",
        "lib2to3",
        "pydoc_data",
        "site-packages",
        "test",
        "tests",
        "tkinter",
        "turtledemo",
        "venv",
    )
)
# Of the environment's programs; the others are for shells, or belong to libraries.
_PROGRAMS = ("kube-sync", "opa", "python")
_ACCOUNTS = {
    "etc/passwd": f"root:x:0:0::/:/nonexistent\nnonroot:x:{USER}:{USER}::/:/nonexistent\n",
    "etc/group": f"root:x:0:\nnonroot:x:{USER}:\n",
    # The order that glibc has had built in since 2.37: a container's /etc/hosts comes first.
    "etc/nsswitch.conf": "hosts: files dns\n",
}


class Root:
    """The new root, filled one path after the other."""

    def __init__(self, target: Path, source: Path = Path("/")) -> None:
        """`source` is the root that paths are looked up in."""
        self._target = target
        self._source = source

    def add(self, path: Path) -> None:
        """Copy one file, with the links on the way to it; a path that is there stays."""
        here = Path("/")
        for part in path.relative_to("/").parts:
            here /= part
            found, wanted = self._of(here), self._into(here)
            if found.is_symlink():
                self._link(here)
                rest = path.relative_to(here)
                self.add(self._followed(here) / rest)
                return
            if found.is_dir():
                wanted.mkdir(exist_ok=True)
            elif not wanted.exists():
                shutil.copy(found, wanted)

    def tree(self, folder: Path, left_out: Collection[str] = ()) -> None:
        """Copy all that lies below a folder, but for the names left out at any depth."""
        for base, folders, files in os.walk(self._of(folder)):
            folders[:] = [name for name in folders if name not in left_out]
            place = Path("/") / Path(base).relative_to(self._source)
            links = (name for name in folders if Path(base, name).is_symlink())
            for name in (*files, *links):
                self.add(place / name)

    def write(self, path: str, text: str) -> None:
        """Write a file of our own, in place of one that was copied."""
        target = self._target / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")

    def _of(self, path: Path) -> Path:
        return self._source / path.relative_to("/")

    def _into(self, path: Path) -> Path:
        return self._target / path.relative_to("/")

    def _link(self, path: Path) -> None:
        if not self._into(path).is_symlink():
            self._into(path).symlink_to(self._of(path).readlink())

    def _followed(self, path: Path) -> Path:
        """Return where a link points to, one step, as a path from the root."""
        to = self._of(path).readlink()
        return Path(os.path.normpath(path.parent / to))


def assemble(environment: Path, target: Path) -> None:
    """Lay out everything that `environment`, a virtual environment, needs to run."""
    target.mkdir(parents=True)
    root = Root(target)
    standard = Path(sysconfig.get_path("stdlib"))
    root.tree(standard, _NOT_NEEDED | {f"config-{sys.version_info[0]}.{sys.version_info[1]}"})
    root.tree(environment, {"__pycache__"})
    for program in (target / environment.relative_to("/") / "bin").iterdir():
        if not program.name.startswith(_PROGRAMS):
            program.unlink()
    root.add(Path(sys.executable))
    certificates(root)
    for path, text in _ACCOUNTS.items():
        root.write(path, text)
    for library in sorted(libraries(programs(target))):
        root.add(library)
    (target / "tmp").mkdir()
    (target / "tmp").chmod(0o1777)  # a volume is mounted over it where the root is read-only
    for folder in (standard, environment):
        compiled(target / folder.relative_to("/"), folder)
    timeless(target)


def certificates(root: Root) -> None:
    """Add the public authorities, where both OpenSSL and Go look for them."""
    bundle = Path("/etc/ssl/certs/ca-certificates.crt")
    if bundle.exists():
        root.add(bundle)
        where = ssl.get_default_verify_paths().openssl_cafile
        root.write(where.lstrip("/"), bundle.read_text(encoding="utf-8"))


def programs(folder: Path) -> Iterator[Path]:
    """Yield the programs and libraries below a folder (ELF files)."""
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not path.is_symlink():
            with path.open("rb") as file:
                if file.read(len(_ELF)) == _ELF:
                    yield path


def libraries(files: Iterable[Path]) -> set[Path]:
    """Return the shared libraries that files load, the loader too, as `ldd` finds them."""
    found: set[Path] = set()
    for file in files:
        said = subprocess.run(["ldd", str(file)], capture_output=True, text=True, check=False)
        for line in said.stdout.splitlines():
            words = line.replace("=>", " ").split()
            if "not found" in line:
                sys.exit(f"{file}: {line.strip()}")
            found |= {Path(word) for word in words if word.startswith("/")}
    return {path for path in found if path.exists()}


def compiled(folder: Path, seen_at: Path) -> None:
    """Compile every module, never to be checked against its source again: the root is read-only.

    `seen_at` is where the image has the folder, for tracebacks.
    """
    done = compileall.compile_dir(
        folder,
        stripdir=folder,
        prependdir=seen_at,
        quiet=1,
        force=True,
        invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
    )
    if not done:
        sys.exit(f"{folder}: a module does not compile")


def timeless(target: Path) -> None:
    """Give every file and folder the same time."""
    for path in (*target.rglob("*"), target):
        os.utime(path, (EPOCH, EPOCH), follow_symlinks=False)


if __name__ == "__main__":
    assemble(Path(sys.argv[1]), Path(sys.argv[2]))
