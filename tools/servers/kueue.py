"""The manager of Kueue and its kinds, out of its Go module, as `tools/kueue/go.mod` pins it.

Keeps true: nothing builds it unasked, since that takes minutes. Standard library only.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tools.servers.binaries import cached_path, ensure_tool
from tools.servers.thirdparty import ThirdParty, download
from tools.servers.versions import GO_MODULE, Tool, read_go_mod, required

PROGRAM: Final = "kueue"
_MODULE = "sigs.k8s.io/kueue"
_GO_MODULE = GO_MODULE / "kueue"


def ensure_kueue() -> Path:
    """Return the path of the manager, building it first if it is not cached. Raises ToolError."""
    return ensure_tool(_tool())


def is_built() -> bool:
    """Tell whether the manager is there."""
    return cached_path(_tool()).exists()


def kueue_source() -> Path:
    """Return the folder of its module, with its kinds and webhooks. Raises ToolError."""
    version = _tool().version
    start = f"{_MODULE} {version} "
    lines = (_GO_MODULE / "go.sum").read_text(encoding="utf-8").splitlines()
    (found,) = (line.removeprefix(start) for line in lines if line.startswith(start))
    return download(ThirdParty(PROGRAM, _MODULE, version, found, ()))


def _tool() -> Tool:
    version = required(read_go_mod(_GO_MODULE))[_MODULE]
    return Tool(
        name=PROGRAM,
        package=f"{_MODULE}/cmd/kueue",
        version=version,
        # It has no flag for it: it logs its version, and ends since there is no cluster.
        ask_version=("--kubeconfig=/dev/null",),
        cold_build="eight minutes",
        ldflags=f"-X {_MODULE}/pkg/version.GitVersion={version}",
        module=_GO_MODULE,
    )
