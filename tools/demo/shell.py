"""What a person's shell needs to work with a stack: the programs, and where everything is.

Keeps true: sourcing the file changes PATH, KUBECONFIG and KUBE_SYNC_CONFIG of that shell, and
nothing else.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping
from pathlib import Path

import yaml

from tools.servers.binaries import ensure_binary
from tools.servers.files import write_file

_PROGRAMS = ("kubectl", "opa")


def write_shell(folder: Path, kubeconfig: Path, configuration: Mapping[str, object]) -> Path:
    """Write `env`, to be sourced, and the person's configuration; return the path of `env`.

    The person is the one of the kubeconfig, for kubectl and for kube-sync.
    """
    whole = {"kubernetes": {"kubeconfig": str(kubeconfig)}, **configuration}
    text = yaml.safe_dump(whole, sort_keys=False)
    config = write_file(folder / "config.yaml", text.encode())
    folders = [Path(sys.executable).parent, *(ensure_binary(name).parent for name in _PROGRAMS)]
    path = ":".join(shlex.quote(str(found)) for found in folders)
    lines = (
        f'export PATH={path}:"$PATH"',
        f"export KUBECONFIG={shlex.quote(str(kubeconfig))}",
        f"export KUBE_SYNC_CONFIG={shlex.quote(str(config))}",
    )
    return write_file(folder / "env", "".join(f"{line}\n" for line in lines).encode())
