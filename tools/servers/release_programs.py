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
    module = "github.com/sigstore/cosign/v3"
    version = required(read_go_mod(_MODULE))[module]
    return ensure_tool(
        Tool(
            name=COSIGN,
            package=f"{module}/cmd/cosign",
            version=version,
            ask_version=("version",),
            cold_build="about three minutes",
            module=_MODULE,
        )
    )


def ensure_crane() -> Path:
    """Return the path of crane, likewise."""
    module = "github.com/google/go-containerregistry"
    version = required(read_go_mod(_MODULE))[module]
    return ensure_tool(
        Tool(
            name=CRANE,
            package=f"{module}/cmd/crane",
            version=version,
            ask_version=("version",),
            cold_build="seconds",
            module=_MODULE,
        )
    )
