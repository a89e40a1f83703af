"""A program that says what GitOps tools make of an object's status, as `tools/kstatus` pins it.

It is ours, and small: it links the rules of kstatus (sigs.k8s.io/cli-utils, which Flux waits by)
and the Lua engine of Argo CD (github.com/yuin/gopher-lua). Nothing builds it unasked. Standard
library only.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from tools.servers.binaries import ensure_tool
from tools.servers.versions import GO_MODULE, Tool, read_go_mod, required

PROGRAM: Final = "kstatus"
_GO_MODULE = GO_MODULE / PROGRAM
_SECONDS = 60


def ensure_kstatus() -> Path:
    """Return the path of the program, building it first if it is not cached. Raises ToolError."""
    source = (_GO_MODULE / "main.go").read_bytes()
    # Its version names the rules and our program around them, so that an old one is not used.
    rules = required(read_go_mod(_GO_MODULE))["sigs.k8s.io/cli-utils"]
    version = f"{rules}-{hashlib.sha256(source).hexdigest()[:8]}"
    return ensure_tool(
        Tool(
            name=PROGRAM,
            package=".",
            version=version,
            ask_version=("version",),
            cold_build="about a minute",
            ldflags=f"-X main.version={version}",
            module=_GO_MODULE,
        )
    )


class Question(NamedTuple):
    """An object, and how Argo CD judges it."""

    found: Mapping[str, Any]
    script: str = ""  # in Lua; "": none
    open_libs: bool = False  # whether it has all of Lua's libraries


def verdicts(questions: Iterable[Question]) -> list[dict[str, Any]]:
    """Return `status`, `message` and, where there is a script, `health` for each question.

    Raises subprocess.CalledProcessError where a script fails.
    """
    asked = (
        json.dumps({"object": one.found, "script": one.script, "openLibs": one.open_libs})
        for one in questions
    )
    answer = subprocess.run(
        [ensure_kstatus()],
        input="\n".join(asked),
        capture_output=True,
        text=True,
        check=True,
        timeout=_SECONDS,
    )
    return [json.loads(line) for line in answer.stdout.splitlines()]
