"""Have a Python base image: the upstream one where it can be pulled, else one of Debian packages.

Keeps true: either has python3 of the minor version that the wheels are collected for. The second
comes from the machine's own package mirror and is made once; for another processor that takes
minutes, since its packages are set up by an emulator.
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
from tools.servers.images import build_image, write_context

UPSTREAM = "python:3.11-slim-bookworm"
FROM_PACKAGES = "kube-sync/python-base:bookworm"
_SUITE = "bookworm"
_PACKAGES = "python3,python3-venv,ca-certificates"
# Only in the way of a running service: package lists, archives, manuals.
_LEFT_OUT = ("var/cache/apt/", "var/lib/apt/lists/", "usr/share/doc/", "usr/share/man/")
_DOCKERFILE = """\
FROM scratch
ADD root.tar /
ENV LANG=C.UTF-8
CMD ["python3"]
"""


def ensure_python_base(client: docker.DockerClient, architecture: str = "") -> str:
    """Return the name of a Python base image that the engine holds, for this processor.

    For another one than the engine's, its programs have to run here (`emulation`).
    """
    suffix = f"-{architecture}" if architecture else ""
    upstream, from_packages = UPSTREAM + suffix, FROM_PACKAGES + suffix
    for image in (upstream, from_packages):
        if _holds(client, image):
            return image
    if dockerd_api.try_pull(UPSTREAM, architecture):
        return upstream
    _make(client, from_packages, architecture)
    return from_packages


def _holds(client: docker.DockerClient, image: str) -> bool:
    try:
        client.images.get(image)
    except docker.errors.ImageNotFound:
        return False
    return True


def _make(client: docker.DockerClient, image: str, architecture: str) -> None:
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
        with step(f"making {image} from Debian packages (a minute to five, once)"):
            _debootstrap(root, architecture)
            _pack(root, archive)
            with tempfile.TemporaryFile() as context:
                write_context(context, _DOCKERFILE, archive, archive.name)
                build_image(client, context, image, {}, architecture=architecture)


def _debootstrap(root: Path, architecture: str) -> None:
    options = ["--variant=minbase", f"--include={_PACKAGES}"]
    if architecture:
        options.append(f"--arch={architecture}")
    answer = subprocess.run(
        ["debootstrap", *options, _SUITE, root, mirror()],
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
