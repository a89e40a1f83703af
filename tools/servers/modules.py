"""Files out of the Go modules that `tools/go.mod` pins: OPA's cases and pages, Kubernetes' source.

Keeps true: no copy of them is in this repository; Go verifies each module against `tools/go.sum`,
and one that is not in Go's cache is downloaded. Standard library only.
"""

from __future__ import annotations

from pathlib import Path

from tools.servers.errors import ToolError
from tools.servers.thirdparty import ThirdParty, download
from tools.servers.versions import GO_MODULE, read_go_mod, required

_OPA = "github.com/open-policy-agent/opa"
_SUITE = "v1/test/cases/testdata"
_PAGES = "docs"


def compliance_suite() -> Path:
    """Return the folder with the folders `v0` and `v1` of OPA's cases. Raises ToolError."""
    return in_module(_OPA, _SUITE)


def opa_pages() -> Path:
    """Return the folder of OPA's own documentation, with its examples. Raises ToolError."""
    return in_module(_OPA, _PAGES)


def in_module(module: str, path: str) -> Path:
    """Return a file or folder of a module at the version that is pinned. Raises ToolError."""
    version = required(read_go_mod())[module]
    found = download(ThirdParty(module, module, version, _sum(module, version), ())) / path
    if not found.exists():
        msg = f"{module} {version} has no {path}: it lies elsewhere now"
        raise ToolError(msg)
    return found


def _sum(module: str, version: str) -> str:
    start = f"{module} {version} "
    for line in (GO_MODULE / "go.sum").read_text(encoding="utf-8").splitlines():
        if line.startswith(start):
            return line.removeprefix(start)
    msg = f"tools/go.sum has no sum of {module} {version}"
    raise ToolError(msg)
