"""Images of the engine in the containerd of a node, and the image that pods begin with."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterable
from pathlib import Path

import docker

from tools.servers.engine import engine
from tools.servers.node_files import PAUSE_IMAGE
from tools.servers.node_machine import Machine


def import_images(machine: Machine, pause: Path, images: Iterable[str]) -> None:
    """Copy images of the engine into the node, and make the one of the pause. Raises ToolError."""
    with engine() as client:
        repository, _, tag = PAUSE_IMAGE.partition(":")
        entrypoint = ['ENTRYPOINT ["/pause"]', "USER 65535:65535"]
        client.api.import_image_from_data(_layer(pause), repository, tag, changes=entrypoint)
        try:
            for image in (PAUSE_IMAGE, *images):
                _import(machine, client, image)
        finally:
            client.images.remove(PAUSE_IMAGE)


def _import(machine: Machine, client: docker.DockerClient, image: str) -> None:
    archive = machine.folder / "image.tar"
    with archive.open("wb") as file:
        file.writelines(client.images.get(image).save(named=image))
    machine.run("ctr", "--namespace=k8s.io", "images", "import", str(archive))
    archive.unlink()


def _layer(pause: Path) -> bytes:
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as tar:
        tar.add(pause, "pause")
    return layer.getvalue()
