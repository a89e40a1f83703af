"""OPA's own compliance suite: the cases that its evaluators are held to, out of its Go module.

Keeps true: no copy of it is in this repository; it is that of the OPA which `tools/go.mod` pins,
and Go verifies the module against `tools/go.sum`. Standard library only.
"""

from __future__ import annotations

from pathlib import Path

from tools.servers.errors import ToolError
from tools.servers.thirdparty import ThirdParty, download
from tools.servers.versions import GO_MODULE, tools

_MODULE = "github.com/open-policy-agent/opa"
_FOLDER = "v1/test/cases/testdata"


def compliance_suite() -> Path:
    """Return the folder with the folders `v0` and `v1`. Raises ToolError."""
    version = tools()["opa"].version
    module = ThirdParty("opa", _MODULE, version, _sum(version), ())
    folder = download(module) / _FOLDER
    if not folder.is_dir():
        msg = f"{_MODULE} {version} has no {_FOLDER}: the suite lies elsewhere now"
        raise ToolError(msg)
    return folder


def _sum(version: str) -> str:
    start = f"{_MODULE} {version} "
    for line in (GO_MODULE / "go.sum").read_text(encoding="utf-8").splitlines():
        if line.startswith(start):
            return line.removeprefix(start)
    msg = f"tools/go.sum has no sum of {_MODULE} {version}"
    raise ToolError(msg)
