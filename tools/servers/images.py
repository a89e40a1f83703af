"""Have the pinned servers as images of the upstream names: there, pulled, or made from the binary.

Keeps true: whoever uses the name gets the pinned version, whichever way it came. An image made here
carries labels that say so, and is made again when the pin has moved under the same name.
"""

from __future__ import annotations

import io
import json
import tarfile
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import IO

import docker
import docker.errors

from tools.servers import dockerd_api
from tools.servers.binaries import ensure_tool, tool_named
from tools.servers.cache import locked
from tools.servers.console import step
from tools.servers.engine import engine
from tools.servers.errors import ToolError
from tools.servers.versions import Tool

BUILT_FROM, VERSION = "io.kube-sync.built-from", "io.kube-sync.version"
_DOCKERFILE = """\
FROM scratch
COPY program {path}
ENV PATH=/usr/local/bin:/
USER 65532:65532
{entrypoint}
"""


def ensure_image(name: str) -> str:
    """Return the image name of a pinned server, once the engine holds that image."""
    tool = tool_named(name)
    image = _image_of(tool)
    with locked(f"image-{name}"), engine() as client:
        if not (_is_there(client, tool, image) or dockerd_api.try_pull(image)):
            _make(client, tool, image)
    return image


def made_image(name: str, architecture: str) -> str:
    """Return the name of an image for this processor, made from the pinned Go module, not pulled.

    The name is the upstream one with the processor at its end.
    """
    tool = replace(tool_named(name), architecture=architecture)
    image = f"{_image_of(tool)}-{architecture}"
    with locked(f"image-{name}-{architecture}"), engine() as client:
        if not _is_there(client, tool, image):
            _make(client, tool, image)
    return image


def _image_of(tool: Tool) -> str:
    if tool.image is None:
        msg = f"{tool.name} is used as a program only, there is no image of it"
        raise ToolError(msg)
    return tool.image


def _is_there(client: docker.DockerClient, tool: Tool, image: str) -> bool:
    """Tell whether an image of that name is held; one made here must be of the pinned version."""
    try:
        labels = client.images.get(image).labels
    except docker.errors.ImageNotFound:
        return False
    return BUILT_FROM not in labels or labels.get(VERSION) == tool.version


def _make(client: docker.DockerClient, tool: Tool, image: str) -> None:
    program = ensure_tool(tool)
    with step(f"making {image} from {program} (seconds)"), tempfile.TemporaryFile() as context:
        # As upstream: OPA's image starts OPA, the others' leave it to the command.
        entrypoint = f"ENTRYPOINT {json.dumps([tool.image_path])}" if tool.name == "opa" else ""
        dockerfile = _DOCKERFILE.format(path=tool.image_path, entrypoint=entrypoint)
        write_context(context, dockerfile, program, "program")
        labels = {BUILT_FROM: "tools/go.mod", VERSION: tool.version}
        build_image(client, context, image, labels, architecture=tool.architecture)


def write_context(target: IO[bytes], dockerfile: str, file: Path, name: str) -> None:
    """Write what an image is built of: the Dockerfile, and one file under this name."""
    text = dockerfile.encode()
    with tarfile.open(fileobj=target, mode="w") as tar:
        recipe = tarfile.TarInfo("Dockerfile")
        recipe.size = len(text)
        tar.addfile(recipe, io.BytesIO(text))
        tar.add(file, name, filter=_plain)
    target.seek(0)


def _plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Leave out who built it and when, so that the same program makes the same layer."""
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    member.mtime = 0
    member.mode = 0o755
    return member


def build_image(
    client: docker.DockerClient,
    context: IO[bytes],
    image: str,
    labels: dict[str, str],
    buildargs: dict[str, str] | None = None,
    *,
    architecture: str = "",
    cached: bool = True,
) -> None:
    """Build an image from a tar with the classic builder, which every engine has; no network.

    It is for the engine's own processor where no other is named.
    """
    lines = client.api.build(
        fileobj=context,
        custom_context=True,
        tag=image,
        labels=labels,
        buildargs=buildargs or {},
        platform=f"linux/{architecture}" if architecture else None,
        network_mode="none",
        nocache=not cached,
        rm=True,
        forcerm=True,
        decode=True,
    )
    said = ""
    for line in lines:
        said += line.get("stream", "")
        if "error" in line:
            msg = f"building {image} failed: {line['error']}; before that: {said[-1500:]}"
            raise ToolError(msg)
