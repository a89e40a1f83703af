"""The Rego modules of the policy systems that this package ships.

Invariant: the returned modules compile by themselves: they include all modules of other systems
that they name, and no tests. The sources are in the installed package (a wheel, an image) or, in
an editable installation, in the repository beside it.

An id has three parts, `kube_sync/<folder>/<file>`: OPA's authorization and the delivery through
the policy API recognize built-in modules by it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path

import msgspec

from kube_sync.errors import Misconfigured
from kube_sync.opa.modules import plain_package
from kube_sync.opa.paths import DataPath
from kube_sync.opa.scratch import Modules

_ROOT = "kube_sync"
_CONFIG = f"{_ROOT}/config"
# `data.kube_sync.jsonpatch.pointer` names a package or a rule of one.
_NAMED = re.compile(rf"\bdata\.({_ROOT}(?:\.[A-Za-z_][A-Za-z0-9_]*)+)")


def builtin_modules(systems: Sequence[str], folder: Path | None = None) -> Modules:
    """Return the modules of these systems and all modules that they name, source by id.

    A system is a folder below rego/kube_sync, or below another `folder`. Raises Misconfigured
    if there is no such folder.
    """
    known = _packages(folder or _folder())
    wanted: dict[str, str] = {}
    for system in systems:
        if not (own := _within((_ROOT, system), known)):
            msg = f'builtin: there are no modules of "{system}" in this installation'
            raise Misconfigured(msg)
        _collect(own, known, wanted)
    return dict(sorted(wanted.items()))


def config_modules(documents: Mapping[str, object]) -> Modules:
    """Return modules that define each document as `data.kube_sync.config.<system>`, source by id.

    As a module it is loaded and removed in one set with the rules that read it. It is JSON text,
    since OPA refuses rules that read a key which a constant object is known not to have.
    """
    return {
        f"{_CONFIG}/{system}.rego": (
            f"package {_CONFIG.replace('/', '.')}\n\n"
            f"{system} := json.unmarshal({_text(document)})\n"
        )
        for system, document in documents.items()
    }


def _text(document: object) -> str:
    """Return a document's JSON as a string of Rego, which has JSON's escapes."""
    return msgspec.json.encode(msgspec.json.encode(document).decode()).decode()


_Packages = dict[DataPath, dict[str, str]]  # sources by id, by package


def _collect(packages: Iterable[DataPath], known: _Packages, wanted: dict[str, str]) -> None:
    for package in packages:
        for policy_id, source in known[package].items():
            if policy_id not in wanted:
                wanted[policy_id] = source
                _collect(_named(source, known), known, wanted)


def _named(source: str, known: _Packages) -> set[DataPath]:
    """Return the packages that a module may read, by the references in its source."""
    found: set[DataPath] = set()
    for name in _NAMED.findall(source):
        path = tuple(name.split("."))
        found.update(_within(path, known))
        found.update(path[:end] for end in range(2, len(path)) if path[:end] in known)
    return found


def _within(root: DataPath, known: _Packages) -> list[DataPath]:
    return [package for package in known if package[: len(root)] == root]


@cache
def _packages(folder: Path) -> _Packages:
    """Return all modules by package; they do not change while a process lives."""
    found: _Packages = {}
    for parts, source in _sources(folder, ()):
        package = plain_package(source)
        if package is not None:
            policy_id = f"{_ROOT}/{parts[0]}/{'.'.join(parts[1:])}"
            found.setdefault(package, {})[policy_id] = source
    return found


def _folder() -> Path:
    package = Path(__file__).parents[1]
    installed = package / "rego"
    return installed if installed.is_dir() else package.parent / "rego" / _ROOT


def _sources(folder: Path, parents: tuple[str, ...]) -> Iterable[tuple[DataPath, str]]:
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name) if folder.is_dir() else ():
        parts = (*parents, entry.name)
        if entry.is_dir():
            yield from _sources(entry, parts)
        elif parents and entry.suffix == ".rego" and not entry.stem.endswith("_test"):
            yield parts, entry.read_text(encoding="utf-8")
