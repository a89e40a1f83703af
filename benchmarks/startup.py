"""From the start of the process to its first request: what is imported and read before it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import yaml

from kube_sync.certificates import make_authority
from tools.servers.apiserver import write_kubeconfig
from tools.servers.binaries import ensure_binary
from tools.servers.files import write_file
from tools.servers.running import free_port

_ROOT = Path(__file__).resolve().parents[1]
_PATIENCE = 30.0  # seconds
_IMPORT = "from kubernetes_asyncio import client, config"


def start_up() -> float:
    """Return the seconds until `kube-sync replicate` connects to the API server."""
    with tempfile.TemporaryDirectory() as folder, socket.create_server(("127.0.0.1", 0)) as api:
        api.settimeout(_PATIENCE)
        file = _configuration(Path(folder), api.getsockname()[1])
        command = [sys.executable, "-m", "kube_sync", "replicate", "--config", str(file)]
        started = time.perf_counter()
        process = subprocess.Popen(  # noqa: S603 - our own program
            command, env=_environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            api.accept()[0].close()
            return time.perf_counter() - started
        finally:
            process.terminate()
            process.wait(_PATIENCE)


def library_import() -> float:
    """Return the seconds that a Python needs for all of kubernetes_asyncio, beyond its own start.

    No process of kube-sync imports all of it (`kube_sync.kube.clientconfig`).
    """
    return _seconds(_IMPORT) - _seconds("pass")


def _seconds(program: str) -> float:
    started = time.perf_counter()
    subprocess.run(  # noqa: S603 - written above
        [sys.executable, "-c", program], check=True, env=_environment()
    )
    return time.perf_counter() - started


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(_ROOT)}  # this tree's, wherever it is installed from


def _configuration(folder: Path, port: int) -> Path:
    ca_file = write_file(folder / "ca.crt", make_authority("benchmark").cert_pem)
    server = f"https://127.0.0.1:{port}"
    kubeconfig = write_kubeconfig(folder, "replicator", server, ca_file, "token")
    content = {
        "kubernetes": {"kubeconfig": str(kubeconfig)},
        "opa": {"url": f"http://127.0.0.1:{free_port()}", "binary": str(ensure_binary("opa"))},
        "decisions": {"listen": f"127.0.0.1:{free_port()}"},
        "observe": {"listen": f"127.0.0.1:{free_port()}"},
    }
    return write_file(folder / "config.yaml", yaml.safe_dump(content).encode())
