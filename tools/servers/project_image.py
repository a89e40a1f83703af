"""Have the project's own image, of the sources as they are now: kube-sync:dev, and for releases.

Keeps true: kube-sync:dev carries a digest of all that went into it, so an unchanged tree costs a
second and a changed one is never run stale. The build has no network.
"""

from __future__ import annotations

import os
import subprocess
import tarfile
import tempfile
from pathlib import Path
from typing import IO

import docker
import docker.errors

from kube_sync import __version__
from tools.servers.cache import locked
from tools.servers.console import step
from tools.servers.emulation import ensure_emulation, native
from tools.servers.engine import engine
from tools.servers.images import build_image, ensure_image, made_image
from tools.servers.python_base import ensure_python_base
from tools.servers.wheels import LOCKS, collect_wheels, digest, project_files

IMAGE = "kube-sync:dev"
_INPUTS = "io.kube-sync.inputs"
ROOT = Path(__file__).resolve().parents[2]
_CONTEXT = ("Dockerfile", *LOCKS, "tools/image/assemble.py")


def ensure_project_image(root: Path = ROOT) -> str:
    """Return the image's name, once the engine holds it as made from the present sources."""
    with locked("image-kube-sync"), engine() as client:
        inputs = _inputs(root)
        if _label(client) != inputs:
            base = ensure_python_base(client)
            build_project_image(client, root, base, IMAGE, inputs)
    return IMAGE


def release_image(architecture: str, root: Path = ROOT) -> str:
    """Build `kube-sync:VERSION-ARCHITECTURE` and return this name.

    Python's base image is the only part that is pulled, by its digest; OPA is built from its
    pinned Go module. Raises ToolError.
    """
    ensure_emulation(architecture)
    image = f"kube-sync:{__version__}-{architecture}"
    with locked(f"image-kube-sync-{architecture}"), engine() as client:
        base = ensure_python_base(client, _foreign(architecture))
        build_project_image(client, root, base, image, _inputs(root), architecture=architecture)
    return image


def release_base(architecture: str) -> tuple[str, str]:
    """Return the name and the SHA-256 (hexadecimal) of the base that a release is built on."""
    with engine() as client:
        base = ensure_python_base(client, _foreign(architecture))
        found = client.images.get(base)
        published: list[str] = found.attrs["RepoDigests"]
        name, _, sha256 = (published or [f"{base}@{found.id}"])[0].partition("@sha256:")
        return name, sha256


def build_project_image(
    client: docker.DockerClient,
    root: Path,
    base: str,
    image: str,
    inputs: str,
    *,
    architecture: str = "",
    cached: bool = True,
) -> None:
    """Build the image without a network; steps that were done before are not done again.

    Without a processor it is for the engine's own, with OPA as the engine has it.
    """
    wheels = collect_wheels(root, _foreign(architecture))
    arguments = {
        "BASE_IMAGE": base,
        "OPA_IMAGE": made_image("opa", architecture) if architecture else ensure_image("opa"),
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": "/src/wheels",
        "VERSION": __version__,
        "REVISION": revision(root),
        "SOURCE": os.environ.get("KUBE_SYNC_SOURCE_URL", "unknown"),
    }
    said = f"building {image} on {base} (half a minute; minutes where it is emulated)"
    with step(said), tempfile.TemporaryFile() as context:
        _write_context(context, root, wheels)
        build_image(
            client,
            context,
            image,
            {_INPUTS: inputs},
            arguments,
            architecture=architecture,
            cached=cached,
        )
    client.images.prune(filters={"dangling": True, "label": _INPUTS})  # the ones it replaced


def revision(root: Path) -> str:
    """Return the commit that the sources are of, with `-changed` where they differ from it."""
    described = subprocess.run(
        ["git", "describe", "--always", "--abbrev=40", "--exclude=*", "--dirty=-changed"],
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
    )
    return described.stdout.strip() or "unknown"


def _foreign(architecture: str) -> str:
    """Return the name of a processor, empty where it is this machine's."""
    return "" if architecture == native() else architecture


def _inputs(root: Path) -> str:
    names = ("Dockerfile", *LOCKS, "tools/go.mod", "tools/image/assemble.py")
    fixed = [root / name for name in names]
    return digest(root, [*fixed, *project_files(root)])


def _label(client: docker.DockerClient) -> str | None:
    try:
        return client.images.get(IMAGE).labels.get(_INPUTS)
    except docker.errors.ImageNotFound:
        return None


def _write_context(target: IO[bytes], root: Path, wheels: Path) -> None:
    with tarfile.open(fileobj=target, mode="w") as tar:
        tar.add(wheels, "build/wheels")
        for path in (*(root / name for name in _CONTEXT), *project_files(root)):
            tar.add(path, path.relative_to(root))
    target.seek(0)
