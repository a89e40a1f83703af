"""Have a Python base image: the upstream one where it can be pulled, else one of Debian packages.

Keeps true: either has python3 of the minor version that the wheels are collected for. The second
comes from the machine's own package mirror and is made once.
"""

from __future__ import annotations

import subprocess
import tarfile
import tempfile
from pathlib import Path

import docker
import docker.errors

from tools.servers import dockerd_api
from tools.servers.console import step
from tools.servers.debian import apt_install, is_debian_root, mirror
from tools.servers.errors import Missing, ToolError

UPSTREAM = "python:3.11-slim-bookworm"
FROM_PACKAGES = "kube-sync/python-base:bookworm"
_SUITE = "bookworm"
_PACKAGES = "python3,python3-venv,ca-certificates"
# Only in the way of a running service: package lists, archives, manuals.
_LEFT_OUT = ("var/cache/apt/", "var/lib/apt/lists/", "usr/share/doc/", "usr/share/man/")


def ensure_python_base(client: docker.DockerClient) -> str:
    """Return the name of a Python base image that the engine holds."""
    for image in (UPSTREAM, FROM_PACKAGES):
        if _holds(client, image):
            return image
    if dockerd_api.try_pull(UPSTREAM):
        return UPSTREAM
    _make(client)
    return FROM_PACKAGES


def _holds(client: docker.DockerClient, image: str) -> bool:
    try:
        client.images.get(image)
    except docker.errors.ImageNotFound:
        return False
    return True


def _make(client: docker.DockerClient) -> None:
    if not is_debian_root():
        msg = (
            f"{UPSTREAM} cannot be pulled, and a base is made from packages only as root on "
            f"Debian: bring that image here (docker load) and run this again"
        )
        raise Missing(msg)
    if not Path("/usr/sbin/debootstrap").exists():
        apt_install(["debootstrap"], "seconds")
    with tempfile.TemporaryDirectory() as folder:
        root, archive = Path(folder, "root"), Path(folder, "root.tar")
        with step(f"making {FROM_PACKAGES} from Debian packages (about a minute, once)"):
            _debootstrap(root)
            _pack(root, archive)
            _import(client, archive)


def _debootstrap(root: Path) -> None:
    answer = subprocess.run(
        ["debootstrap", "--variant=minbase", f"--include={_PACKAGES}", _SUITE, root, mirror()],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if answer.returncode != 0:
        msg = f"debootstrap failed: {answer.stdout.strip()[-500:]}"
        raise ToolError(msg)


def _pack(root: Path, archive: Path) -> None:
    with tarfile.open(archive, "w") as tar:
        tar.add(root, ".", filter=_wanted)


def _wanted(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    name = member.name.removeprefix("./") + "/"
    inside = any(name.startswith(folder) and name != folder for folder in _LEFT_OUT)
    return None if inside else member


def _import(client: docker.DockerClient, archive: Path) -> None:
    name, _, tag = FROM_PACKAGES.partition(":")
    said = client.api.import_image_from_file(
        str(archive), repository=name, tag=tag, changes=["ENV LANG=C.UTF-8", 'CMD ["python3"]']
    )
    if "error" in said:
        msg = f"the engine did not import {FROM_PACKAGES}: {said[-500:]}"
        raise ToolError(msg)
