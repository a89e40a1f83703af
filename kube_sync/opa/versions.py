"""Modules of both versions of Rego, as OPA has to be handed them.

OPA compiles modules of both together only where they come in a bundle whose manifest names the
version of each file; its commands take one version for all files. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from kube_sync.regoversion import NAME, V0, V1, version_of

# What `opa parse` and `opa check` are told of a file, by its version.
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
    """Tell whether any of these modules is Rego v0."""
    return any(version_of(source) == V0 for source in modules.values())


def as_bundle(modules: Mapping[str, str]) -> tuple[str, ...]:
    """Return the flag with which OPA heeds the manifest beside these modules, if there is one."""
    return ("--bundle",) if holds_v0(modules) else ()


def with_manifest(sources: Mapping[str, str]) -> dict[str, bytes]:
    """Return sources by file name as a bundle that claims everything, or as plain files."""
    files = {name: source.encode() for name, source in sources.items()}
    return files | (manifest(sources, {}) if holds_v0(sources) else {})


def manifest(sources: Mapping[str, str], content: Mapping[str, Any]) -> dict[str, bytes]:
    """Return the manifest of a bundle of these files, by its own name.

    The version that all files have which it does not name is v1, whatever OPA was started with.
    """
    old = {f"/{name}": V0 for name, source in sources.items() if version_of(source) == V0}
    versions = {"rego_version": V1} | ({"file_rego_versions": old} if old else {})
    return {_MANIFEST: msgspec.json.encode({**content, **versions})}
