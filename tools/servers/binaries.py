"""Have the pinned programs as files: cached, found, copied out of an image, or built with Go.

Keeps true: what `ensure_binary` returns says of itself that it is of the pinned version, and a
second call costs nothing. An interrupted build resumes from Go's own cache.
Standard library only, so that `python3 -m tools.servers binaries` needs no virtual environment.
"""

from __future__ import annotations

import os
import re
import shutil
import struct
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from tools.servers import dockerd_api
from tools.servers.cache import cache_dir, locked, written_aside
from tools.servers.console import say, step
from tools.servers.errors import ToolError
from tools.servers.gobuild import build
from tools.servers.versions import Tool, tools

_PT_INTERP = 3


def ensure_binary(name: str, architecture: str = "") -> Path:
    """Return the path of a pinned program, obtaining it first where it is not cached.

    For a processor that is named it is built from its Go module, whatever is found here.
    """
    return ensure_tool(replace(tool_named(name), architecture=architecture))


def ensure_tool(tool: Tool) -> Path:
    """Return the path of a program, obtaining it first where it is not cached."""
    cached = cached_path(tool)
    if cached.exists():
        return cached
    with locked(f"{tool.name}-{tool.version}"):
        if not cached.exists():  # another process may have finished while this one waited
            _obtain(tool, cached)
    return cached


def tool_named(name: str) -> Tool:
    """Return the pinned program of this name."""
    try:
        return tools()[name]
    except KeyError:
        msg = f"no such program: {name} (there are {', '.join(tools())})"
        raise ToolError(msg) from None


def cached_path(tool: Tool) -> Path:
    """Return where the program of this very version lies once it has been obtained."""
    suffix = f"-{tool.architecture}" if tool.architecture else ""
    return cache_dir("bin", f"{tool.name}-{tool.version}{suffix}") / tool.name


def _obtain(tool: Tool, target: Path) -> None:
    with written_aside(target) as aside:
        found = not tool.architecture and (_from_installed(tool, aside) or _from_image(tool, aside))
        if not found:
            build(tool, aside)
        aside.chmod(0o755)
        said = said_version(tool, aside)
        if not tool.is_version(said):
            msg = f"{tool.name} should be {tool.version} and says of itself: {said}"
            raise ToolError(msg)


def said_version(tool: Tool, program: Path) -> str:
    """Ask a program for its version: one line, empty when it cannot be run."""
    try:
        answer = subprocess.run(
            [program, *tool.ask_version], capture_output=True, text=True, timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return re.sub(r"\s+", " ", answer.stdout + answer.stderr).strip()


def _from_installed(tool: Tool, target: Path) -> bool:
    for program in installed(tool.name):
        said = said_version(tool, program)
        if tool.is_version(said):
            if tool.image is None or is_static(program):
                say(f"{tool.name} {tool.version}: copying {program}")
                shutil.copyfile(program, target)
                return True
            said = "dynamically linked: it would not run in an image of its own"
        why = said[:60] or "no answer"
        say(f"{tool.name}: {program} passed over, it is not {tool.version} or not static ({why})")
    return False


def installed(name: str) -> Iterator[Path]:
    """Yield the programs of this name in KUBEBUILDER_ASSETS and on PATH, each file once."""
    folders = [os.environ.get("KUBEBUILDER_ASSETS", ""), *os.get_exec_path()]
    found = (shutil.which(name, path=folder) for folder in folders if folder)
    yield from {Path(path).resolve(): Path(path) for path in found if path is not None}.values()


def is_static(program: Path) -> bool:
    """Tell whether an ELF file asks for no loader (PT_INTERP); other systems' files count too."""
    data = program.read_bytes()
    if not data.startswith(b"\x7fELF"):
        return True
    (headers,) = struct.unpack_from("<Q", data, 32)
    size, count = struct.unpack_from("<HH", data, 54)
    kinds = (struct.unpack_from("<I", data, headers + size * i)[0] for i in range(count))
    return _PT_INTERP not in kinds


def _from_image(tool: Tool, target: Path) -> bool:
    if tool.image is None or not dockerd_api.engine_answers():
        return False
    if not dockerd_api.has_image(tool.image) and not dockerd_api.try_pull(tool.image):
        return False
    try:
        with step(f"copying {tool.name} {tool.version} out of {tool.image} (seconds)"):
            dockerd_api.copy_out(tool.image, tool.image_path, target)
    except OSError as error:
        say(f"  not to be had from the image: {error}")
        return False
    return True
