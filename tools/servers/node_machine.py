"""A machine for a node inside this one: namespaces for its processes, mounts and network.

Keeps true: whatever runs in it, containers too, ends with it, and its mounts, interfaces and rules
of iptables go then; what would stay, its files and empty cgroups, `stop` removes. The values of
the kernel that a kubelet sets are files here, so that it changes none of the kernel's own. Needs
root on Linux.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

from tools.servers.errors import StartFailed, ToolError
from tools.servers.files import write_file
from tools.servers.pids import children
from tools.servers.processes import ProcessLauncher, ProcessServer
from tools.servers.running import ServerSpec, tail

# Of 198.18.0.0/15, which RFC 2544 keeps for tests of networks: no other machine has one of these.
HOST, ADDRESS = "198.18.0.1", "198.18.0.2"  # the ends of the link between the two machines
POD_RANGE, SERVICE_RANGE = "198.18.1.0/24", "198.18.2.0/24"
CGROUP: Final = "kube-sync-node"
_LINK = "kube-sync-node"  # an interface's name has at most 15 letters
_CGROUPS = Path("/sys/fs/cgroup")
_PROGRAMS = ("ip", "iptables", "mount", "nsenter", "setpriv", "unshare")
_PATIENCE = 10.0
# What a kubelet wants them to be.
_KERNEL = {"vm/overcommit_memory": "1", "kernel/panic": "10", "kernel/panic_on_oops": "1"}
_SET_UP = f"""
mount --bind var /var
mount -t tmpfs tmpfs /run
for name in {" ".join(_KERNEL)}; do mount --bind "sys/$name" "/proc/sys/$name"; done
ip link set lo up
ip address add {ADDRESS}/30 dev eth0
ip link set eth0 up
ip route add default via {HOST}
echo 1 >/proc/sys/net/ipv4/ip_forward
"""


class Machine:
    """The machine; it is there once this is made."""

    def __init__(self, folder: Path, pause: Path) -> None:
        """Start it, with its files below the folder. Raises ToolError where that cannot be."""
        _require_able()
        self.folder = folder
        self._write_files()
        log = folder / "machine.log"
        with log.open("wb") as said:
            self._outer = subprocess.Popen(_unshared(pause), stdin=subprocess.DEVNULL, stderr=said)
        try:
            self._pid = _first_process(self._outer, pause, log)
            self._connect()
            self.run("sh", "-euc", f'cd "$1"\n{_SET_UP}', "sh", str(folder))
        except BaseException:
            self.stop()
            raise

    def command(self, *command: str) -> list[str]:
        """Return the command that runs another in the machine, and ends with whoever runs it."""
        into = ["nsenter", f"--target={self._pid}", "--mount", "--net", "--pid"]
        return [*into, "--", "setpriv", "--pdeathsig=TERM", "--", *command]

    def run(self, *command: str) -> None:
        """Run a command in the machine. Raises ToolError with what it says."""
        _run(*self.command(*command))

    def launch(self, spec: ServerSpec) -> ProcessServer:
        """Start a server in the machine and wait until it is ready."""
        program, *arguments = self.command(spec.program, *spec.arguments)
        inside = replace(spec, program=_found(program), arguments=tuple(arguments))
        return ProcessLauncher().launch(inside)

    def stop(self) -> None:
        """End everything in it and remove what it leaves."""
        try:
            # Its first process, and with it all others of its namespace. Once the outer one is
            # reaped, its number may be another's.
            first = children(self._outer.pid) if self._outer.poll() is None else []
            for pid in first:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            if not first:
                self._outer.kill()
            self._outer.wait()
            for hierarchy in _hierarchies():
                remove_cgroups(hierarchy / CGROUP)
        finally:
            shutil.rmtree(self.folder / "var")

    def _write_files(self) -> None:
        for name in ("lib", "log", "tmp"):
            (self.folder / "var" / name).mkdir(parents=True)
        (self.folder / "var/run").symlink_to("/run")
        for name, value in _KERNEL.items():
            write_file(self.folder / "sys" / name, f"{value}\n".encode())
        for hierarchy in _hierarchies():
            (hierarchy / CGROUP).mkdir(exist_ok=True)

    def _connect(self) -> None:
        other_end = ("peer", "name", "eth0", "netns", str(self._pid))
        _run("ip", "link", "add", _LINK, "type", "veth", *other_end)
        _run("ip", "address", "add", f"{HOST}/30", "dev", _LINK)
        _run("ip", "link", "set", _LINK, "up")
        for addresses in (POD_RANGE, SERVICE_RANGE):
            _run("ip", "route", "add", addresses, "via", ADDRESS)


def remove_cgroups(cgroup: Path) -> None:
    """Remove a cgroup and those below it, which stay busy for a moment after their last process.

    Raises OSError if one is busy for longer.
    """
    deadline = time.monotonic() + _PATIENCE
    for path, _, _ in os.walk(cgroup, topdown=False):
        while True:
            try:
                Path(path).rmdir()
                break
            except OSError:
                if time.monotonic() >= deadline:
                    raise
            time.sleep(0.01)


def _hierarchies() -> list[Path]:
    """Return the hierarchies of cgroups: one of version 2, several of version 1."""
    whole = (_CGROUPS / "cgroup.controllers").exists()
    return [_CGROUPS] if whole else [*_CGROUPS.iterdir()]


def _unshared(pause: Path) -> list[str]:
    """Return the command of its first process, which ends when this process does."""
    namespaces = ["--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
    return ["setpriv", "--pdeathsig=KILL", "--", "unshare", *namespaces, "--", str(pause)]


def _first_process(outer: subprocess.Popen[bytes], pause: Path, log: Path) -> int:
    """Return its number out here, once its namespaces are as they are to be."""
    program = pause.resolve()  # as /proc has it
    deadline = time.monotonic() + _PATIENCE
    while time.monotonic() < deadline and outer.poll() is None:
        for pid in children(outer.pid):
            with suppress(OSError):
                if Path(f"/proc/{pid}/exe").readlink() == program:
                    return pid
        time.sleep(0.01)
    msg = f"no machine for a node could be made: {tail(log)}"
    raise StartFailed(msg)


def _require_able() -> None:
    if os.geteuid() != 0:
        msg = "a node needs root: it has namespaces, a network and containers"
        raise ToolError(msg)
    for program in _PROGRAMS:
        _found(program)


def _found(program: str) -> str:
    path = shutil.which(program)
    if path is None:
        msg = (
            f"a node needs {program}, which is not in PATH (Debian: iproute2, iptables, util-linux)"
        )
        raise ToolError(msg)
    return path


def _run(*command: str) -> None:
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    if ran.returncode != 0:
        msg = f"{' '.join(command[:3])}: {ran.stderr.strip()}"
        raise ToolError(msg)
