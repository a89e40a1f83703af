"""An upgrade: the previous release decides and writes, ends, and the present code goes on.

Both run with the same configuration file, in the same cluster, on the same ledger and OPA. Whatever
the previous release left there (annotations, ConfigMaps, Leases, rows) has to mean the same.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kube_sync.config import load_settings
from kube_sync.guard import HISTORY, read_history
from kube_sync.ledger.command import check
from kube_sync.ledger.entries import Row
from kube_sync.ledger.reading import reading
from kube_sync.processes.ledger import noted_elsewhere
from tests.eventually import eventually
from tests.integration.earlier import export_release, previous_release
from tools.demo.components import GUARD_OFF, start_service
from tools.demo.fleet import PREFERENCES, REGION, cluster, replica_set
from tools.servers.http import get
from tools.servers.processes import ProcessLauncher
from tools.servers.running import RunningServer, free_port
from tools.servers.secured_opa import RunningOpa
from tools.servers.stack import RunningStack

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
LEASES = ("kube-sync-replicator", "kube-sync-remediator")
STATUS = "openpolicyagent.org/kube-mgmt-status"
CANDIDATE = "placement-candidate"
WORKLOADS = ("gold-0", "gold-1", "silver-0")
# A workload runs on all clusters of its region; which one it is, its name says.
POLICY = f"""package io.k8s.federation.admission

annotations["{PREFERENCES}"] := {{"clusters": clusters, "rebalance": REBALANCE}} if {{
	input.kind == "ReplicaSet"
	region := split(input.metadata.name, "-")[0]
	clusters := {{name: {{"weight": 1}} |
		some name, cluster in data.kubernetes.clusters["NAMESPACE"]
		cluster.metadata.labels["{REGION}"] == region
	}}
	count(clusters) > 0
}}
"""


@pytest.fixture(scope="module")
def earlier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The code of the previous release."""
    return export_release(previous_release(), tmp_path_factory.mktemp("earlier"))


class World:
    """A small fleet, and the two processes that decide and write, of one release or the other."""

    def __init__(self, stack: RunningStack, opa: RunningOpa, namespace: str, folder: Path) -> None:
        self.stack, self.namespace, self.folder = stack, namespace, folder
        self.ledger = folder / "ledger.db"
        self.page = f"127.0.0.1:{free_port()}"
        common = {
            "kubernetes": {"kubeconfig": str(stack.kubeconfigs["admin"])},
            "policies": {"namespaces": [namespace]},
            "coordination": {"namespace": namespace},
            "replicate": {"namespaces": [namespace]},
        }
        guard = {**GUARD_OFF, "shrink_share": 0.3}
        self._configurations: dict[str, dict[str, object]] = {
            "replicate": {
                **common,
                "opa": opa.settings(),
                "decisions": opa.replicator.server(),
                "ledger": {"path": str(self.ledger)},
            },
            "remediate": {
                **common,
                "decisions": opa.replicator.client(),
                "remediate": {"guard": guard, "listen": self.page},
            },
        }
        self.services: dict[str, RunningServer] = {}

    def start(self, code: Path, *names: str) -> None:
        """Start processes of some code, again with the files that they had the first time."""
        for name in names or self._configurations:
            if (before := self.services.get(name)) is None:
                configuration = self._configurations[name]
                started = start_service(name, self.folder / name, configuration, code=code)
            else:
                spec = replace(before.spec, environment={"PYTHONPATH": str(code)})
                started = ProcessLauncher().launch(spec)
            self.services[name] = started

    def stop(self, *names: str) -> None:
        """End processes, the remediator first."""
        for name in names or tuple(reversed(self.services)):
            self.services[name].stop()

    def config(self, name: str) -> Path:
        return self.folder / name / "config.yaml"

    def apply(self, *manifests: dict[str, Any]) -> None:
        for manifest in manifests:
            manifest["metadata"]["namespace"] = self.namespace
            self.stack.api.apply(manifest, force=True, strict=False)

    def policy(self, name: str, *, rebalance: str = "true", **labels: str) -> None:
        source = POLICY.replace("NAMESPACE", self.namespace).replace("REBALANCE", rebalance)
        self.apply(
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": name, "labels": labels},
                "data": {"placement.rego": source},
            }
        )

    def metadata(self, resource: str, name: str) -> Any:
        return self.stack.api.get(resource, name, self.namespace)["metadata"]

    def placements(self) -> dict[str, list[str]]:
        """Return on which clusters each workload is."""
        found = {name: self.metadata("replicasets", name) for name in WORKLOADS}
        texts = {k: (one.get("annotations") or {}).get(PREFERENCES) for k, one in found.items()}
        return {k: sorted(json.loads(text)["clusters"]) for k, text in texts.items() if text}

    def status(self, policy: str) -> dict[str, Any]:
        """Return what a policy's author reads on its ConfigMap."""
        annotations = self.metadata("configmaps", policy).get("annotations") or {}
        found: dict[str, Any] = json.loads(annotations.get(STATUS, "{}"))
        return found

    def versions(self) -> dict[str, str]:
        """Return the resourceVersion of each workload and cluster, which changes with a write."""
        return {
            f"{kind}/{item['metadata']['name']}": item["metadata"]["resourceVersion"]
            for kind in ("replicasets", "clusterprofiles")
            for item in self.stack.api.get(kind, namespace=self.namespace)["items"]
        }

    def configmaps(self) -> dict[str, Any]:
        """Return what is in each ConfigMap, policies with their status and the last good record.

        A process that starts notes there what it is about to load, and takes that back.
        """
        listed = self.stack.api.get("configmaps", namespace=self.namespace)["items"]
        volatile = ("resourceVersion", "managedFields")
        found = {}
        for one in listed:
            metadata = {k: v for k, v in one["metadata"].items() if k not in volatile}
            found[metadata["name"]] = {**one, "metadata": metadata}
        return found

    def holders(self) -> dict[str, tuple[str, str]]:
        """Return of each Lease which object it is and who holds it."""
        leases = self.stack.api.get("leases", namespace=self.namespace)["items"]
        return {
            one["metadata"]["name"]: (one["metadata"]["uid"], one["spec"].get("holderIdentity", ""))
            for one in leases
        }

    def waiting(self) -> list[tuple[str, str, str, str]]:
        """Return what the remediator holds: whom, by what, why, and what approves it."""
        found = json.loads(get(f"http://{self.page}/v1/remediation/status").body)["waiting"]
        return sorted((w["name"], w["kind"], w["reason"], w["approve"]) for w in found)

    def rows(self) -> list[Row]:
        with reading(self.ledger) as ledger:
            return list(ledger.history(limit=10_000))


@pytest.fixture
def world(stack: RunningStack, opa: RunningOpa, namespace: str, tmp_path: Path) -> Iterator[World]:
    made = World(stack, opa, namespace, tmp_path)
    yield made
    made.stop()


def _kube_sync(code: Path, config: Path, *arguments: str) -> str:
    """Run a command of some code, and return what it prints."""
    ran = subprocess.run(
        [sys.executable, "-m", "kube_sync", *arguments, "--config", str(config)],
        cwd=config.parent,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(code), "HOME": str(config.parent)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


async def _of(read: Callable[[], Any]) -> Any:
    return await asyncio.to_thread(read)


@pytest.mark.timeout(300)
async def test_present_code_goes_on_where_the_previous_release_ended(
    world: World, earlier: Path
) -> None:
    loaded = await _of(lambda: _where(earlier))
    assert loaded.is_relative_to(earlier), "another code than that of the previous release"
    await _decided_by(world, earlier)
    before, waiting, configmaps = world.versions(), world.waiting(), world.configmaps()
    holders, told = world.holders(), len(world.rows())
    await _of(world.stop)
    await _of(lambda: world.start(ROOT))

    # What was held is held, by the same, and nothing is written that was written already.
    await eventually(world.waiting, waiting)
    await eventually(world.configmaps, configmaps)
    await eventually(lambda: _taken_over(world, holders), expected=True)
    assert world.versions() == before
    # The head is written with the Lease, once it is known.
    await eventually(lambda: _verified(world), (True, []))
    assert len(world.rows()) > told

    # What was approved by the previous release is carried out, on the histories that it wrote.
    histories = {name: _history(world, name) for name in WORKLOADS}
    assert all(histories.values())
    (approval,) = {one[3] for one in waiting}
    await _of(lambda: world.stop("remediate"))
    await _of(
        lambda: _kube_sync(earlier, world.config("remediate"), "remediate", "approve", approval)
    )
    await _of(lambda: world.start(ROOT, "remediate"))
    left = {"gold-0": ["berlin"], "gold-1": ["berlin"], "silver-0": ["oslo"]}
    await eventually(world.placements, left)
    assert len(_history(world, "gold-0")) > len(histories["gold-0"])
    assert (
        world.metadata("replicasets", "silver-0")["resourceVersion"]
        == (before["replicasets/silver-0"])
    )
    await _ledger_has_both(world, told)


async def _decided_by(world: World, code: Path) -> None:
    """Let a release place workloads, keep a good policy, stage one, and hold what would move."""
    for name, region in (("berlin", "gold"), ("paris", "gold"), ("oslo", "silver")):
        world.apply(cluster(name, region, "2"))
    world.apply(*(replica_set(name) for name in WORKLOADS))
    world.policy("placement")
    await _of(lambda: world.start(code))
    gold = ["berlin", "paris"]
    await eventually(world.placements, {"gold-0": gold, "gold-1": gold, "silver-0": ["oslo"]})
    world.policy(CANDIDATE, rebalance="false", **{"kube-sync.io/stage": "shadow"})
    await eventually(lambda: world.status(CANDIDATE).get("changes"), len(WORKLOADS))
    await eventually(lambda: "kube-sync-last-good" in world.configmaps(), expected=True)
    world.policy("placement", rebalance="not Rego (")
    await eventually(lambda: world.status("placement").get("in_force"), "the last good version")
    world.stack.api.delete("clusterprofiles", "paris", world.namespace)
    await eventually(lambda: {one[:2] for one in world.waiting()}, _HELD)
    await eventually(lambda: world.holders().keys(), set(LEASES))


_HELD = {("gold-0", "fleet"), ("gold-1", "fleet")}


def _taken_over(world: World, before: dict[str, tuple[str, str]]) -> bool:
    """Tell whether the same Leases have other holders."""
    now = world.holders()
    return all(
        now[name][0] == before[name][0] and now[name][1] not in ("", before[name][1])
        for name in LEASES
    )


def _history(world: World, name: str) -> tuple[object, ...]:
    """Return the moves that are noted on a workload, as the present code reads them."""
    annotations = world.metadata("replicasets", name).get("annotations") or {}
    return read_history({HISTORY: annotations.get(HISTORY, "")}, now=float(1 << 40))


def _where(code: Path) -> Path:
    """Return where Python finds the code that it is told to run."""
    ran = subprocess.run(
        [sys.executable, "-c", "import kube_sync; print(kube_sync.__file__)"],
        cwd=code.parent,
        env={"PYTHONPATH": str(code)},
        capture_output=True,
        text=True,
        check=True,
    )
    return Path(ran.stdout.strip())


async def _verified(world: World) -> tuple[bool, list[str]]:
    """Verify the ledger as the command does, against the head on the Lease."""
    settings = load_settings(str(world.config("replicate")), {})
    noted = await noted_elsewhere(settings, (), offline=False)
    complaints: list[str] = []
    good = check(str(world.ledger), noted, lambda _: None, complaints.append, required=True)
    return good, complaints


async def _ledger_has_both(world: World, told: int) -> None:
    """The rows of both releases are one chain, and `history` shows both."""
    await eventually(lambda: _applied(world) >= {"gold-0", "gold-1"}, expected=True)
    rows = world.rows()
    assert [row.entry.kind for row in rows].count("start") == 2
    earlier, later = rows[:told], rows[told:]
    assert {"policy", "decision", "intent", "outcome", "held"} <= {r.entry.kind for r in earlier}
    assert {row.entry.name for row in later if row.entry.kind == "outcome"} == {"gold-0", "gold-1"}
    assert await _verified(world) == (True, [])
    shown = await _of(lambda: _kube_sync(ROOT, world.config("replicate"), "history"))
    assert len(shown.splitlines()) == len(rows)


def _applied(world: World) -> set[str]:
    later = [row for row in world.rows() if row.entry.kind == "intent" and row.entry.approved]
    return {row.entry.name for row in later}
