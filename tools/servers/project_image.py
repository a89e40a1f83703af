"""Have the project's own image, kube-sync:dev, of the sources as they are now.

Keeps true: the image carries a digest of all that went into it, so an unchanged tree costs a
second and a changed one is never run stale. The build has no network.
"""

from __future__ import annotations

import shutil
import tarfile
import tempfile
from pathlib import Path
from typing import IO

import docker
import docker.errors

from tools.servers.binaries import ensure_binary
from tools.servers.cache import locked, written_aside
from tools.servers.console import step
from tools.servers.engine import engine
from tools.servers.images import build_image
from tools.servers.python_base import ensure_python_base
from tools.servers.wheels import build_project, collect_dependencies, digest, project_files

IMAGE = "kube-sync:dev"
_INPUTS = "io.kube-sync.inputs"
_ROOT = Path(__file__).resolve().parents[2]
_CONTEXT = ("Dockerfile", "requirements.lock", "build/wheels", "build/project", "build/bin")


def ensure_project_image(root: Path = _ROOT) -> str:
    """Return the image's name, once the engine holds it as made from the present sources."""
    with locked("image-kube-sync"), engine() as client:
        inputs = _inputs(root)
        if _label(client) != inputs:
            base = ensure_python_base(client)
            _prepare(root)
            _build(client, root, base, inputs)
    return IMAGE


def _inputs(root: Path) -> str:
    fixed = [root / name for name in ("Dockerfile", "requirements.lock", "tools/go.mod")]
    return digest(root, [*fixed, *project_files(root)])


def _label(client: docker.DockerClient) -> str | None:
    try:
        return client.images.get(IMAGE).labels.get(_INPUTS)
    except docker.errors.ImageNotFound:
        return None


def _prepare(root: Path) -> None:
    """Lay out under build/ what the Dockerfile copies."""
    collect_dependencies(root)
    build_project(root)
    opa, target = ensure_binary("opa"), root / "build/bin/opa"
    target.parent.mkdir(parents=True, exist_ok=True)
    with written_aside(target) as aside:
        shutil.copy2(opa, aside)  # keeps the time, so that an unchanged file hits the layer cache


def _build(client: docker.DockerClient, root: Path, base: str, inputs: str) -> None:
    with step(f"building {IMAGE} on {base} (about half a minute)"):
        with tempfile.TemporaryFile() as context:
            _write_context(context, root)
            build_image(client, context, IMAGE, {_INPUTS: inputs}, {"BASE_IMAGE": base})
        client.images.prune(filters={"dangling": True, "label": _INPUTS})  # the ones it replaced


def _write_context(target: IO[bytes], root: Path) -> None:
    with tarfile.open(fileobj=target, mode="w") as tar:
        for name in _CONTEXT:
            tar.add(root / name, name)
    target.seek(0)
