"""The files that modules are for OPA, named after their ids, so that its errors name them. Pure."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping

from kube_sync.opa.versions import with_manifest

_NAME_BYTES = 200  # of a file; most file systems take 255


def files_of(modules: Mapping[str, str]) -> dict[str, bytes]:
    """Return the files of modules by name, as a bundle where one is Rego v0."""
    return with_manifest({file_of(policy_id): source for policy_id, source in modules.items()})


def file_of(policy_id: str) -> str:
    """Return the file of a module: relative, below the folder, and one that OPA takes for Rego."""
    parts = [re.sub(r"[^A-Za-z0-9._-]", "_", part) for part in policy_id.split("/")]
    if len(parts[-1]) > _NAME_BYTES:  # a lane's id holds three names in one
        digest = hashlib.sha256(policy_id.encode()).hexdigest()
        parts[-1] = f"{parts[-1][:_NAME_BYTES]}-{digest[:16]}.rego"
    path = "/".join(part if part.strip(".") else f"_{part}" for part in parts)
    return path if path.endswith(".rego") else path + ".rego"


def same_files(modules: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return pairs of modules that are one file: one of the two would never be compiled.

    Names that differ in `.rego` alone are: OPA takes only files for Rego that end so.
    """
    ids: dict[str, str] = {}
    pairs = ((ids.setdefault(file_of(i), i), i) for i in sorted(modules))
    return [(first, i) for first, i in pairs if first != i]
