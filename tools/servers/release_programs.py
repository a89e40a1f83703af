"""crane and cosign, which publish images and sign them, as `tools/release/go.mod` pins them.

crane also serves a registry on this machine, for whoever tries a release. Nothing builds them
unasked. Standard library only.
"""

from __future__ import annotations

from pathlib import Path

from tools.servers.binaries import ensure_tool
from tools.servers.versions import GO_MODULE, Tool, read_go_mod, required

COSIGN, CRANE = "cosign", "crane"
_MODULE = GO_MODULE / "release"


def ensure_cosign() -> Path:
    """Return the path of cosign, building it first if it is not cached. Raises ToolError."""
    return _ensured(COSIGN, "github.com/sigstore/cosign/v3", "about three minutes")


def ensure_crane() -> Path:
    """Return the path of crane, likewise."""
    return _ensured(CRANE, "github.com/google/go-containerregistry", "seconds")


def _ensured(name: str, module: str, cold_build: str) -> Path:
    return ensure_tool(
        Tool(
            name=name,
            package=f"{module}/cmd/{name}",
            version=required(read_go_mod(_MODULE))[module],
            ask_version=("version",),
            cold_build=cold_build,
            module=_MODULE,
        )
    )
