"""What kustomize makes of our manifests, as values."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from tools.servers.manifests import documents_of, kustomize

MANIFESTS = Path(__file__).resolve().parents[2] / "manifests"
OVERLAYS = ("minimal", "production", "hub", "spoke")
Manifest = dict[str, Any]


def build(folder: str) -> list[Manifest]:
    """Return the objects of a folder below `manifests`, each time anew."""
    return [*documents_of(built(folder))]


@cache
def built(folder: str) -> str:
    """Return them as YAML."""
    return kustomize(MANIFESTS / folder)


def of_kind(manifests: list[Manifest], *kinds: str) -> list[Manifest]:
    return [found for found in manifests if found["kind"] in kinds]


def pod_templates(manifests: list[Manifest]) -> Iterator[tuple[str, Manifest]]:
    """Yield each workload's name and the template of its pods."""
    for found in of_kind(manifests, "Deployment", "Job", "CronJob"):
        spec = found["spec"]
        if found["kind"] == "CronJob":
            spec = spec["jobTemplate"]["spec"]
        yield f"{found['kind']} {found['metadata']['name']}", spec["template"]


def containers(manifests: list[Manifest]) -> Iterator[tuple[Manifest, Manifest]]:
    """Yield each container with its pod's spec."""
    for _, template in pod_templates(manifests):
        for container in template["spec"]["containers"]:
            yield template["spec"], container
