"""`make demo STACK=compose`, `make up`, `make down`, beside whatever stack a person runs."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import docker
import pytest

from tools.servers.compose import OWN_SERVICES
from tools.servers.compose_cli import compose_command
from tools.servers.engine import engine
from tools.servers.running import Launcher, free_port
from tools.servers.scraping import instant

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
_PROJECT = "kube-sync-test"
SCRAPED = {f"kube-sync-{job}" for job in ("opa", *OWN_SERVICES)}
_PORTS = (
    *("APISERVER", "OPA", "REPLICATOR", "REMEDIATOR", "ADMISSION", "PROMETHEUS"),
    *("DECISIONS", "REMEDIATION"),
)
# What a shell is to reach after `make up`, which changes nothing of a stack that is up.
_ASKING = """
kubectl get replicaset nginx-eu -n shop
kube-sync decisions
kube-sync remediate status
kube-sync history replicaset/nginx-eu -n shop
kube-sync why replicaset/nginx-eu -n shop --at 0s
kube-sync verify --require-head
# What the page says of the remediator, asked as the page asks.
token=$(cat "$HOST/decisions.token")
held=$(curl --silent --fail --cacert "$HOST/ca.crt" --header "Authorization: Bearer $token" \\
  "https://127.0.0.1:$PORT/v1/board/held")
echo "held: $held"
"""


def left_behind(client: docker.DockerClient) -> list[str]:
    label: dict[str, str | list[str] | bool] = {"label": f"com.docker.compose.project={_PROJECT}"}
    containers = client.containers.list(all=True, filters=label)
    others = [*client.volumes.list(filters=label), *client.networks.list(filters=label)]
    return [str(found.id) for found in (*containers, *others)]


def scraped_in_time(prometheus: str) -> set[str]:
    """Return which jobs are up; the story ends with an OPA that was killed a moment ago."""
    deadline = time.monotonic() + 60
    while True:
        up = {str(found["metric"]["job"]) for found in instant(prometheus, "up == 1")}
        if up == SCRAPED or time.monotonic() > deadline:
            return up
        time.sleep(0.5)


def test_compose_reads_it_with_grafana_too(launcher: Launcher) -> None:
    if launcher.form != "containers":
        pytest.skip("compose needs a container engine; the summary says that there is none")
    command = [*compose_command(), "--profile", "grafana", "config", "--services"]
    read = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert {"grafana", "prometheus", *OWN_SERVICES} <= set(read.stdout.split())


@pytest.mark.timeout(590)
@pytest.mark.usefixtures("project_image")
def test_story_on_compose_is_told_as_expected_and_removed_whole(
    launcher: Launcher, tmp_path: Path
) -> None:
    if launcher.form != "containers":
        pytest.skip("compose needs a container engine; the summary says that there is none")
    ports = {f"KUBE_SYNC_{name}_PORT": str(free_port()) for name in _PORTS}
    own = {"KUBE_SYNC_COMPOSE_PROJECT": _PROJECT, "KUBE_SYNC_COMPOSE_HOST": str(tmp_path / "host")}
    environment = {**os.environ, **ports, **own}

    def run(module: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", module, *arguments],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )

    try:
        told = run("tools.demo", "up", "--stack", "compose")
        prometheus = f"http://127.0.0.1:{ports['KUBE_SYNC_PROMETHEUS_PORT']}"
        scraped = scraped_in_time(prometheus)
        moved = instant(prometheus, 'sum(kube_sync_remediations_total{outcome="applied"}) > 0')
        kept = run("tools.demo", "start", "--stack", "compose")
        asked = subprocess.run(
            ["/bin/bash", "-euc", f". {tmp_path}/host/env\n{_ASKING}"],
            env={
                **environment,
                "HOST": str(tmp_path / "host"),
                "PORT": ports["KUBE_SYNC_DECISIONS_PORT"],
            },
            capture_output=True,
            text=True,
            check=False,
        )
    finally:
        down = run("tools.servers", "compose", "down")
    assert told.returncode == 0, told.stdout + told.stderr
    assert "All 19 steps were as expected" in told.stderr
    assert scraped == SCRAPED
    assert moved
    assert kept.returncode == 0, kept.stderr
    assert asked.returncode == 0, asked.stderr
    assert "shop/nginx-eu" in asked.stdout
    assert "nothing waits" in asked.stdout
    assert "rules that made it" in asked.stdout
    assert "each is what was written" in asked.stdout
    assert '"failure":null' in asked.stdout.partition("held: ")[2]
    assert down.returncode == 0, down.stderr
    with engine() as client:
        assert left_behind(client) == []
