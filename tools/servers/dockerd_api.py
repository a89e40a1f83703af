"""The three things asked of an engine before there is a virtual environment: ping, pull, copy out.

Standard library only (HTTP over the engine's Unix socket). An image whose digest is pinned is
pulled by that, whatever its tag leads to by now.
A pull that makes no progress for `PATIENCE` seconds is given up: some networks answer no registry.
"""

from __future__ import annotations

import functools
import http.client
import json
import os
import shutil
import socket
import tarfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import quote

from tools.servers.console import say
from tools.servers.versions import pinned_images

PATIENCE = 20.0
_SOCKET = "/var/run/docker.sock"


def engine_answers() -> bool:
    """Tell whether a container engine answers on the local socket."""
    try:
        with _request("GET", "/_ping", timeout=5) as answer:
            return answer.status == http.HTTPStatus.OK
    except (OSError, http.client.HTTPException):
        return False


def has_image(image: str) -> bool:
    """Tell whether the engine holds an image of this name."""
    with _request("GET", f"/images/{quote(image)}/json") as answer:
        return answer.status == http.HTTPStatus.OK


@functools.cache  # a registry that does not answer is waited for once, not by each step again
def try_pull(image: str, architecture: str = "") -> bool:
    """Pull an image if that can be done from here, saying how it went; `pull` has the name."""
    say(f"pulling {image} (up to a minute; given up when nothing comes for {PATIENCE:.0f} s)")
    reason = pull(image, architecture)
    if reason is not None:
        say(f"  cannot be pulled here: {reason[:160]}")
    return reason is None


def pull(image: str, architecture: str = "") -> str | None:
    """Pull an image; return None when it is there, else the reason why not, in one line.

    Of one for another processor the digest has to be pinned: it is held as `IMAGE-ARCHITECTURE`,
    and the image of this machine's processor keeps its name.
    """
    name, _, tag = image.rpartition(":")
    digest = pinned_images().get(image, {}).get("digest")
    path = f"/images/create?fromImage={quote(name, safe='')}&tag={quote(digest or tag)}"
    if architecture:
        if digest is None:
            return "its digest is not known (tools/images.json)"
        path, tag = f"{path}&platform=linux/{architecture}", f"{tag}-{architecture}"
    try:
        with _request("POST", path, timeout=PATIENCE) as answer:
            failure = _pull_outcome(answer)
        return failure if failure or digest is None else _tag(f"{name}@{digest}", name, tag)
    except TimeoutError:
        return f"the registry did not answer within {PATIENCE:.0f} s"
    except (OSError, http.client.HTTPException) as error:
        return str(error)


def _pull_outcome(answer: http.client.HTTPResponse) -> str | None:
    if answer.status != http.HTTPStatus.OK:
        return str(json.loads(answer.read() or b"{}").get("message", answer.reason))
    for line in answer:
        if line.strip() and (failure := json.loads(line).get("error")):
            return str(failure)
    return None


def _tag(image: str, name: str, tag: str) -> str | None:
    """Give an image that is held a name; return None when it has it, else the reason why not."""
    path = f"/images/{quote(image)}/tag?repo={quote(name, safe='')}&tag={quote(tag)}"
    with _request("POST", path) as answer:
        return None if answer.status == http.HTTPStatus.CREATED else answer.read().decode()


def copy_out(image: str, path: str, target: Path) -> None:
    """Copy one file out of an image that the engine holds, without running anything of it."""
    body = json.dumps({"Image": image, "Cmd": ["/none"]})
    with _request("POST", "/containers/create", body=body) as answer:
        if answer.status != http.HTTPStatus.CREATED:
            raise OSError(answer.read().decode(errors="replace"))
        container = json.loads(answer.read())["Id"]
    try:
        with _request("GET", f"/containers/{container}/archive?path={quote(path)}") as answer:
            _save_first_file(answer, target)
    finally:
        with _request("DELETE", f"/containers/{container}?force=1"):
            pass


def _save_first_file(archive: http.client.HTTPResponse, target: Path) -> None:
    if archive.status != http.HTTPStatus.OK:
        raise OSError(archive.read().decode(errors="replace"))
    with tarfile.open(fileobj=archive, mode="r|") as members:
        for member in members:
            if (content := members.extractfile(member)) is not None:
                with target.open("wb") as file:
                    shutil.copyfileobj(content, file)
                return
    msg = "the image has no such file"
    raise OSError(msg)


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


@contextmanager
def _request(
    method: str, path: str, *, body: str | None = None, timeout: float = 60
) -> Iterator[http.client.HTTPResponse]:
    host = os.environ.get("DOCKER_HOST", f"unix://{_SOCKET}")
    if not host.startswith("unix://"):
        msg = f"only an engine on this machine is used, and DOCKER_HOST is {host}"
        raise OSError(msg)
    with closing(_UnixConnection(host.removeprefix("unix://"), timeout)) as connection:
        connection.request(method, path, body, {"Content-Type": "application/json"})
        with closing(connection.getresponse()) as answer:
            yield answer
