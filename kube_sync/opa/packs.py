"""The policy packs that this package ships: folders of Rego, parameters, tests and a README.

The sources are in the installed package (a wheel, an image) or, in an editable installation, in the
repository beside it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kube_sync.errors import Misconfigured, Terminal

BASE: Final = "placement"  # puts the packs together: each of them needs it
_MODELINE: Final = re.compile(r"^# yaml-language-server: .*\n")  # names a file of the repository
NAMESPACE: Final = "kube-federation-scheduling-policy"  # where policies and parameters lie


@dataclass(frozen=True, slots=True)
class Pack:
    """One pack: its name, and its folder."""

    name: str
    folder: Path

    @property
    def about(self) -> str:
        """What it is for, in one line."""
        return (self.folder / "README.md").read_text(encoding="utf-8").splitlines()[1]

    def files(self, namespace: str) -> Iterator[tuple[str, str]]:
        """Yield the path below the pack and the text of each file, for policies in a namespace."""
        for file in sorted(self.folder.rglob("*")):
            if file.is_file():
                text = _MODELINE.sub("", file.read_text(encoding="utf-8"))
                yield str(file.relative_to(self.folder)), text.replace(NAMESPACE, namespace)


def all_packs(folder: Path | None = None) -> Mapping[str, Pack]:
    """Return all packs by name."""
    root = folder or _folder()
    found = (Pack(one.name, one) for one in sorted(root.iterdir()) if (one / "README.md").is_file())
    return {pack.name: pack for pack in found}


def write(name: str, target: Path, namespace: str = NAMESPACE) -> list[Path]:
    """Write a pack, and what it needs, below a folder; return the new files.

    No file is overwritten: Misconfigured if there is no such pack, or its folder exists. What it
    needs may be there already. Raises Terminal if a file cannot be written.
    """
    known = all_packs()
    if name not in known:
        msg = f'there is no pack "{name}": there are {", ".join(known)}'
        raise Misconfigured(msg)
    if (target / name).exists():
        msg = f"{target / name} exists already, and nothing is overwritten"
        raise Misconfigured(msg)
    wanted = [name] if name == BASE or (target / BASE).exists() else [BASE, name]
    try:
        return [path for one in wanted for path in _written(known[one], target, namespace)]
    except OSError as error:
        msg = f"{error.filename}: {error.strerror}"
        raise Terminal(msg) from error


def _written(pack: Pack, target: Path, namespace: str) -> Iterator[Path]:
    for name, text in pack.files(namespace):
        path = target / pack.name / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        yield path


def _folder() -> Path:
    package = Path(__file__).parents[1]
    installed = package / "packs"
    return installed if installed.is_dir() else package.parent / "rego/packs"
