"""Run a real Prometheus that scrapes a stack, and ask it.

Keeps true: tokens stay in their files, which Prometheus reads itself, so that a rotated one counts
from the next scrape on.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

from tools.servers.errors import ToolError
from tools.servers.files import write_file
from tools.servers.http import get
from tools.servers.processes import ProcessLauncher
from tools.servers.prometheus import ensure_prometheus
from tools.servers.running import RunningServer, ServerSpec, free_port, launch_on_free_port


@dataclass(frozen=True, slots=True)
class Target:
    """One page of metrics: under which job, where, and how Prometheus may read it."""

    job: str
    url: str  # of the server; the page is /metrics
    ca_file: Path | None = None
    token_file: Path | None = None

    def job_config(self) -> dict[str, object]:
        """Return the scrape configuration of its own job."""
        where = urlsplit(self.url)
        config: dict[str, object] = {
            "job_name": self.job,
            "scheme": where.scheme,
            "static_configs": [{"targets": [where.netloc]}],
        }
        if self.ca_file is not None:
            config["tls_config"] = {"ca_file": str(self.ca_file)}
        if self.token_file is not None:
            config["authorization"] = {"credentials_file": str(self.token_file)}
        return config


def start_prometheus(
    folder: Path,
    targets: Sequence[Target],
    rules: Sequence[Path] = (),
    every: str = "1s",
) -> RunningServer:
    """Start Prometheus on the loopback, with its data below the folder; `every` is a duration."""
    config = {
        "global": {"scrape_interval": every, "evaluation_interval": every},
        "rule_files": [str(rule) for rule in rules],
        "scrape_configs": [target.job_config() for target in targets],
    }
    file = write_file(folder / "prometheus.yml", json.dumps(config, indent=2).encode())
    return launch_on_free_port(ProcessLauncher(), lambda: _spec(folder, file, free_port()))


def _spec(folder: Path, config: Path, port: int) -> ServerSpec:
    return ServerSpec(
        name="prometheus",
        program=str(ensure_prometheus()),
        arguments=(
            f"--config.file={config}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{port}",
            "--log.level=warn",
        ),
        folder=folder,
        url=f"http://127.0.0.1:{port}",
        ready_paths=("/-/ready",),
    )


def instant(url: str, expression: str) -> list[dict[str, Any]]:
    """Evaluate an expression now; return its series, or raise ToolError with what is wrong."""
    found: list[dict[str, Any]] = _asked(url, "/api/v1/query", {"query": expression})["result"]
    return found


def api(url: str, path: str) -> Any:
    """Return the data of an answer of Prometheus' API (`/api/v1/…`); raise ToolError otherwise."""
    return _asked(url, path, {})


def _asked(url: str, path: str, parameters: dict[str, str]) -> Any:
    answer = json.loads(get(f"{url}{path}?{urlencode(parameters)}").body)
    if answer["status"] != "success":
        msg = f"{answer['errorType']}: {answer['error']}"
        raise ToolError(msg)
    return answer["data"]
