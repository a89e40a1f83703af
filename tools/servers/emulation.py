"""Programs of other processors run here: by qemu-user, which the kernel starts (binfmt_misc).

Keeps true: an emulator that is registered is used as it is. On Debian as root it is installed and
registered, for the whole machine; anywhere else one line says what to do.
"""

from __future__ import annotations

import platform
import shutil
import subprocess
from pathlib import Path
from typing import Final

from tools.servers.debian import apt_install, is_debian_root
from tools.servers.errors import Missing, ToolError

# By the name that Go and images have for a processor: what Linux, wheels and qemu call it.
MACHINES: Final = {"amd64": "x86_64", "arm64": "aarch64"}
_REGISTERED = Path("/proc/sys/fs/binfmt_misc")


def native() -> str:
    """Return the name that Go and images have for this machine's processor."""
    names = {machine: name for name, machine in MACHINES.items()}
    return names.get(platform.machine(), platform.machine())


def ensure_emulation(architecture: str) -> None:
    """Return once programs of this processor run here, in containers too. Raises ToolError."""
    emulator = f"qemu-{MACHINES[architecture]}"
    if architecture == native() or _is_registered(emulator):
        return
    if not is_debian_root():
        msg = (
            f"programs for {architecture} do not run here: have {emulator} registered with the "
            "kernel (Debian and Ubuntu: the packages qemu-user-static and binfmt-support)"
        )
        raise Missing(msg)
    if shutil.which("update-binfmts") is None or shutil.which(f"{emulator}-static") is None:
        apt_install(("qemu-user-static", "binfmt-support"), "about a minute")
    subprocess.run(["update-binfmts", "--enable", emulator], check=False, capture_output=True)
    if not _is_registered(emulator):
        msg = f"{emulator} is installed, and the kernel does not take it (binfmt_misc)"
        raise ToolError(msg)


def _is_registered(emulator: str) -> bool:
    """Tell whether the kernel has the emulator, opened at once, so that containers find it."""
    try:
        text = (_REGISTERED / emulator).read_text(encoding="ascii")
    except OSError:
        return False
    fields = dict(line.partition(": ")[::2] for line in text.splitlines())
    return "enabled" in fields and "F" in fields.get("flags", "")
