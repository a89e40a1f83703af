"""Builds of kustomize, of folders and components that are named."""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path
from typing import Any, Final

import yaml

from tools.charting.parts import Build
from tools.servers.manifests import documents_of, kustomize

Manifest = dict[str, Any]
# The letters of kustomize's hashes.
_HASHED: Final = re.compile(r"\b(kube-sync-(?:variables|opa))-[2456789bcdfghkmt]{10}\b")


def built(manifests: Path, build: Build) -> list[Manifest]:
    """Return the objects of a build, in the order of their names and without hashes in these.

    Raises ToolError.
    """
    with tempfile.TemporaryDirectory(prefix="kube-sync-chart-") as folder:
        above = os.path.relpath(manifests.resolve(), Path(folder).resolve())
        kustomization = {
            "apiVersion": "kustomize.config.k8s.io/v1beta1",
            "kind": "Kustomization",
            "resources": [f"{above}/{name}" for name in build.resources],
            "components": [f"{above}/components/{name}" for name in build.components],
            "configMapGenerator": [_variables(build)] if build.variables else [],
        }
        text = yaml.safe_dump(kustomization)
        (Path(folder) / "kustomization.yaml").write_text(text, encoding="utf-8")
        return [*documents_of(_HASHED.sub(r"\1", kustomize(Path(folder))))]


def _variables(build: Build) -> dict[str, object]:
    return {
        "name": "kube-sync-variables",
        "namespace": "kube-sync",
        "behavior": "merge",
        "literals": [*build.variables],
    }


def folders_of(manifests: Path) -> frozenset[str]:
    """Return what a build can name in a folder of manifests."""
    files = manifests.rglob("kustomization.yaml")
    return frozenset(str(file.parent.relative_to(manifests)) for file in files)
