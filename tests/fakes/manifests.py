"""What kustomize makes of our manifests, as values."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from tools.servers.binaries import ensure_binary

MANIFESTS = Path(__file__).resolve().parents[2] / "manifests"
OVERLAYS = ("minimal", "production", "hub", "spoke")
Manifest = dict[str, Any]


def build(folder: str) -> list[Manifest]:
    """Return the objects of a folder below `manifests`, each time anew."""
    return [found for found in yaml.safe_load_all(built(folder)) if found]


@cache
def built(folder: str) -> str:
    """Return them as YAML."""
    command = [str(ensure_binary("kustomize")), "build", str(MANIFESTS / folder)]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert answer.returncode == 0, answer.stderr
    return str(answer.stdout)


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
