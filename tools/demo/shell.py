"""What a person's shell needs to work with a stack: the programs, and where everything is.

Keeps true: sourcing the file changes PATH, KUBECONFIG and KUBE_SYNC_CONFIG of that shell, and
nothing else. Where the ledger is in a container's volume, commands that read it run there.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import yaml

from tools.servers.binaries import ensure_binary
from tools.servers.files import write_file

_PROGRAMS = ("kubectl", "opa")
_BESIDE_THE_LEDGER = """\
#!/bin/sh
# The ledger is in a volume of the replicator's container: commands that read it run there.
case "$1 $* " in
history\\ * | verify\\ * | replay\\ * | why\\ *" --at"[\\ =]*)
  exec {beside} kube-sync "$@" ;;
esac
exec {program} "$@"
"""


def write_shell(
    folder: Path,
    kubeconfig: Path,
    configuration: Mapping[str, object],
    beside: Sequence[str] = (),
) -> Path:
    """Write `env`, to be sourced, and the person's configuration; return the path of `env`.

    The person is the one of the kubeconfig, for kubectl and for kube-sync. `beside` is the command
    that runs another one where the ledger is; none: the configuration names its file.
    """
    whole = {"kubernetes": {"kubeconfig": str(kubeconfig)}, **configuration}
    text = yaml.safe_dump(whole, sort_keys=False)
    config = write_file(folder / "config.yaml", text.encode())
    folders = [Path(sys.executable).parent, *(ensure_binary(name).parent for name in _PROGRAMS)]
    if beside:
        folders.insert(0, _write_wrapper(folder / "bin", beside))
    path = ":".join(shlex.quote(str(found)) for found in folders)
    lines = (
        f'export PATH={path}:"$PATH"',
        f"export KUBECONFIG={shlex.quote(str(kubeconfig))}",
        f"export KUBE_SYNC_CONFIG={shlex.quote(str(config))}",
    )
    return write_file(folder / "env", "".join(f"{line}\n" for line in lines).encode())


def _write_wrapper(folder: Path, beside: Sequence[str]) -> Path:
    """Write a `kube-sync` that runs commands beside the ledger if they read it."""
    program = shlex.quote(str(Path(sys.executable).with_name("kube-sync")))
    text = _BESIDE_THE_LEDGER.format(beside=shlex.join(beside), program=program)
    write_file(folder / "kube-sync", text.encode()).chmod(0o755)
    return folder
