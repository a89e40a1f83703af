"""The form in which OPA takes modules: their packages, files and versions of Rego. Pure.

OPA compiles modules of both versions together only where they come in a bundle whose manifest names
the version of each file; its commands take one version for all files. Files are named after ids, so
that OPA's errors name them.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from kube_sync.regoversion import NAME, V0, V1, version_of

# The flags of `opa parse` and `opa check` for a file, by its version.
PARSED_AS: Final[Mapping[int, tuple[str, ...]]] = {V0: ("--v0-compatible",), V1: ()}
V0_HINT: Final = (
    f'this is Rego v0: label its ConfigMap {NAME}: "0" (a PlacementPolicy: spec.regoVersion: "0"),'
    f" put the line `# {NAME}: 0` into it, or rewrite it with `opa fmt --write --rego-v1 FILE`"
)
NOT_V0: Final = (
    f"it counts as Rego v0 (label {NAME}, spec.regoVersion, a line of its own, or"
    " policies.rego_version), and is Rego v1: state 1 there"
)
_MANIFEST: Final = ".manifest"


def holds_v0(modules: Mapping[str, str]) -> bool:
    """Return whether any of these modules is Rego v0."""
    return any(version_of(source) == V0 for source in modules.values())


def as_bundle(modules: Mapping[str, str]) -> tuple[str, ...]:
    """Return the flag that makes OPA read the manifest, if these modules need one."""
    return ("--bundle",) if holds_v0(modules) else ()


def with_manifest(sources: Mapping[str, str]) -> dict[str, bytes]:
    """Return sources by file name: a bundle that owns all roots, or plain files."""
    files = {name: source.encode() for name, source in sources.items()}
    return files | (manifest(sources, {}) if holds_v0(sources) else {})


def manifest(sources: Mapping[str, str], content: Mapping[str, Any]) -> dict[str, bytes]:
    """Return the manifest of a bundle of these files, by its own file name.

    Files that it does not name are v1, whatever version OPA was started with.
    """
    old = {f"/{name}": V0 for name, source in sources.items() if version_of(source) == V0}
    versions = {"rego_version": V1} | ({"file_rego_versions": old} if old else {})
    return {_MANIFEST: msgspec.json.encode({**content, **versions})}


_NAME_BYTES = 200  # of a file; most file systems take 255


def files_of(modules: Mapping[str, str]) -> dict[str, bytes]:
    """Return the files of modules by name, as a bundle if one is Rego v0."""
    return with_manifest({file_of(policy_id): source for policy_id, source in modules.items()})


def file_of(policy_id: str) -> str:
    """Return the file name of a module: relative, below the folder, with the suffix of Rego."""
    parts = [re.sub(r"[^A-Za-z0-9._-]", "_", part) for part in policy_id.split("/")]
    if len(parts[-1]) > _NAME_BYTES:  # a lane's id holds three names in one
        digest = hashlib.sha256(policy_id.encode()).hexdigest()
        parts[-1] = f"{parts[-1][:_NAME_BYTES]}-{digest[:16]}.rego"
    path = "/".join(part if part.strip(".") else f"_{part}" for part in parts)
    return path if path.endswith(".rego") else path + ".rego"


def same_files(modules: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return pairs of modules with one file name: one of the two would never be compiled.

    Names that differ only in the suffix `.rego` have one: OPA reads only files with it.
    """
    ids: dict[str, str] = {}
    pairs = ((ids.setdefault(file_of(i), i), i) for i in sorted(modules))
    return [(first, i) for first, i in pairs if first != i]


# (Rego grammar: a module begins with its package clause; `#` comments end with the line.)
_NAME = r"[A-Za-z_][A-Za-z0-9_]*"
_CLAUSE = re.compile(
    rf"(?:\s|#[^\n]*\n)*package[ \t]+(?P<package>{_NAME}(?:\.{_NAME})*)(?=\s|#|\Z)"
    # A path may continue after spaces and comments: then it is not plain.
    r"(?!(?:\s|#[^\n]*(?:\n|\Z))*[.\[])"
)


def plain_package(source: str) -> tuple[str, ...] | None:
    """Return the parts of the package, None if only a parser can tell.

    A package clause of plain names with dots, after nothing but comments, needs no parser.
    """
    found = _CLAUSE.match(source)
    return tuple(found["package"].split(".")) if found else None


def outermost(packages: Iterable[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Return the packages that lie within no other, in order: OPA takes no overlapping roots."""
    found: list[tuple[str, ...]] = []
    for package in sorted(set(packages)):
        if not found or package[: len(found[-1])] != found[-1]:
            found.append(package)
    return found
