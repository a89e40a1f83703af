"""Build a pinned program from the go.mod that pins it: static, stripped, stamped with its version.

Knows only Go. A build that takes long says every half minute that it still runs; what an
interrupted one has compiled is kept by Go's own cache. Standard library only.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
import time
from pathlib import Path
from typing import IO

from tools.servers.console import say, step
from tools.servers.errors import Missing, ToolError
from tools.servers.versions import GO_MODULE, Tool, go_directive, read_go_mod

_USUAL_GO = "/usr/local/go/bin"  # where Go's own archive unpacks to, often not on root's PATH
_NEWS_EVERY = 30.0


def build(tool: Tool, target: Path) -> None:
    """Build one program to the target path."""
    environment = go_environment()
    require_go(environment)
    if tool.architecture:
        environment["GOARCH"] = tool.architecture
    text = (
        f"building {tool.name} {tool.version} {tool.architecture} from its Go module "
        f"({tool.cold_build} on two cores the first time, seconds after that)"
    )
    command = ["go", "build", "-trimpath", "-ldflags", f"-s -w {tool.ldflags}".strip()]
    with step(text), tempfile.TemporaryFile() as log:
        started = [*command, "-o", str(target), tool.package]
        _watch(tool, subprocess.Popen(started, cwd=tool.module, env=environment, stderr=log), log)


def _watch(tool: Tool, process: subprocess.Popen[bytes], log: IO[bytes]) -> None:
    begin = time.monotonic()
    with process:
        try:
            while not _ended(process):
                say(f"  still building {tool.name} … {time.monotonic() - begin:.0f} s")
        except BaseException:
            process.terminate()
            raise
    if process.returncode != 0:
        log.seek(0)
        said = log.read().decode(errors="replace").strip()
        msg = f"go build of {tool.package} failed: {said[-2000:]}"
        raise ToolError(msg)


def _ended(process: subprocess.Popen[bytes]) -> bool:
    try:
        process.wait(timeout=_NEWS_EVERY)
    except subprocess.TimeoutExpired:
        return False
    return True


def require_go(environment: dict[str, str]) -> None:
    """Raise Missing, with the way out, unless a Go new enough for tools/go.mod answers."""
    wanted = go_directive(read_go_mod())
    said = _go_version(environment)
    found = re.search(r"\bgo(\d+)\.(\d+)", said)
    if found is not None and (int(found[1]), int(found[2])) >= wanted:
        return
    msg = (
        f"Go {wanted[0]}.{wanted[1]} or later is needed to build the servers, and "
        f"{said or 'no go command was found'}: unpack the Go project's archive in /usr/local/go "
        "(Debian's own package is too old), or put the pinned programs on PATH"
    )
    raise Missing(msg)


def _go_version(environment: dict[str, str]) -> str:
    """Ask `go version` beside go.mod, where Go 1.21 and later may fetch a newer one itself."""
    try:
        answer = subprocess.run(
            ["go", "version"],
            cwd=GO_MODULE,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return (answer.stdout or answer.stderr).strip().rpartition("\n")[2]


def go_environment() -> dict[str, str]:
    """Return the caller's environment, without C: the result must run `FROM scratch`."""
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), _USUAL_GO])
    return {**os.environ, "PATH": path, "CGO_ENABLED": "0", "GOWORK": "off", "GOFLAGS": ""}
