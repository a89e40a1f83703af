"""Call compose as it is installed here: the plugin of the docker client, or docker-compose 1.29."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from tools.servers.console import say
from tools.servers.debian import apt_install, is_debian_root
from tools.servers.errors import Missing, ToolError

# Another name (and other ports, see docker-compose.yml) lets a second stack run beside the first.
PROJECT = os.environ.get("KUBE_SYNC_COMPOSE_PROJECT", "kube-sync")


def compose(root: Path, *arguments: str) -> None:
    """Run one compose command on the project in `root`, passing on what it says line by line."""
    command = [*compose_command(), "--project-name", PROJECT, *arguments]
    with subprocess.Popen(
        command,
        # What is held by its tag was pulled by its digest, or made here and has none.
        env=dict(os.environ) | {"KUBE_SYNC_IMAGE_DIGEST": ""},
        cwd=root,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        for line in process.stdout or ():
            say(f"  {line.rstrip()}")
    if process.returncode != 0:
        msg = f"{' '.join(command)} ended with {process.returncode}"
        raise ToolError(msg)


def compose_command() -> list[str]:
    """Return how compose is called here, installing it on Debian where it is missing."""
    plugin = ["docker", "compose"]
    if shutil.which("docker") is not None and _runs([*plugin, "version"]):
        return plugin
    if shutil.which("docker-compose") is None:
        if not is_debian_root():
            msg = "neither `docker compose` nor docker-compose is here: install the compose plugin"
            raise Missing(msg)
        apt_install(["docker-compose"], "about half a minute")
    return ["docker-compose"]


def _runs(command: list[str]) -> bool:
    answer = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    return answer.returncode == 0
