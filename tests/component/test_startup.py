"""What each process imports before its first request to the API server."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from kube_sync.certificates import write_certificates

_ROOT = Path(__file__).resolve().parents[2]
_IMPORTED = re.compile(r"^import time: .*\| +(\S+)$", re.MULTILINE)
# Slow, or for what is not configured here.
_HEAVY = (
    "colorama.ansi",
    "cryptography",
    "kube_sync.certificates",
    "kube_sync.inspect.survey",
    "kube_sync.ledger.journal",
    "kube_sync.opa.analysis.analyzer",
    "kube_sync.opa.analysis.engine",
    "kube_sync.processes.conditions",
    "kube_sync.processes.policysync",
    "kube_sync.topology",
    "kubernetes_asyncio.client.api",
    "kubernetes_asyncio.client.models",
    "opentelemetry",
    "pygments",
    "requests",
    "rich.console",
    "shtab",
    "sqlite3",
    "urllib3",
)


@pytest.mark.parametrize("command", ["replicate", "remediate", "admit"])
def test_nothing_heavy_is_imported_before_the_first_request(command: str, tmp_path: Path) -> None:
    imported = _imported(command, tmp_path)
    assert {"aiohttp", "kubernetes_asyncio.config.kube_config"} <= imported  # it was looked at
    assert [
        name
        for name in sorted(imported)
        if any(name == heavy or name.startswith(f"{heavy}.") for heavy in _HEAVY)
    ] == []


def test_traces_without_their_libraries_end_the_process_with_the_key_and_the_command(
    tmp_path: Path,
) -> None:
    program = (
        "import sys; sys.modules['opentelemetry'] = None; from kube_sync.cli import main; main()"
    )
    file = _configuration(tmp_path, 1)
    ended = subprocess.run(
        [sys.executable, "-c", program, "replicate", "--config", file],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(_ROOT), "KUBE_SYNC_OBSERVE_TRACING_ENABLED": "true"},
        timeout=60,
        check=False,
    )
    assert ended.returncode == 64
    assert ended.stderr.splitlines()[-1] == (
        "kube-sync: observe.tracing.enabled: opentelemetry is not installed;"
        " install it with: pip install 'kube-sync[otel]'"
    )


def _imported(command: str, folder: Path) -> set[str]:
    """Return the names of the modules that a process has imported when it connects."""
    with socket.create_server(("127.0.0.1", 0)) as api:
        api.settimeout(60)
        file = _configuration(folder, api.getsockname()[1])
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-X", "importtime", "-m", "kube_sync", command, "--config", file],
                stderr=log,
                env={**os.environ, "PYTHONPATH": str(_ROOT)},
            )
        try:
            api.accept()[0].close()
        finally:
            process.kill()
            process.wait(60)
    return set(_IMPORTED.findall((folder / "log").read_text()))


def _configuration(folder: Path, port: int) -> Path:
    write_certificates(folder, ["127.0.0.1"])
    kubeconfig = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "fake",
        "clusters": [{"name": "fake", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
        "users": [{"name": "fake", "user": {"token": "t"}}],
        "contexts": [{"name": "fake", "context": {"cluster": "fake", "user": "fake"}}],
    }
    (folder / "kubeconfig").write_text(yaml.safe_dump(kubeconfig))
    anywhere = {"listen": "127.0.0.1:0"}
    certificate = {"cert_file": str(folder / "tls.crt"), "key_file": str(folder / "tls.key")}
    content = {
        "kubernetes": {"kubeconfig": str(folder / "kubeconfig")},
        "opa": {"url": "http://127.0.0.1:9", "binary": sys.executable},  # neither is asked here
        "decisions": {**anywhere, "url": "http://127.0.0.1:9"},
        "remediate": anywhere,
        "admission": {**anywhere, **certificate},
        "observe": anywhere,
    }
    (folder / "config.yaml").write_text(yaml.safe_dump(content))
    return folder / "config.yaml"
