"""The story of MultiKueue in numbered steps: "jobs go where the policy says".

Each step states what it expects before it looks, and looks at what the API servers of the manager
cluster and of the workers hold.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tools.demo.fleet import policy_map
from tools.demo.jobs.estate import Estate
from tools.demo.narrator import Narrator
from tools.servers.multikueue import job
from tools.servers.multikueue_stack import CPUS, QUEUE

POLICY = Path(__file__).resolve().parents[3] / "rego/examples/jobs_by_region/jobs_by_region.rego"
_EVENTS = "events.events.k8s.io"


class World:
    """One estate, seen from outside."""

    def __init__(self, estate: Estate) -> None:
        self._clusters = estate.clusters
        self._api = estate.clusters.manager.api

    def policy(self) -> None:
        """Put the policy in force."""
        self._api.apply(policy_map(POLICY.read_text(encoding="utf-8")))

    def submit(self, name: str, **labels: str) -> None:
        """Create a Job."""
        self._api.create(job(name, QUEUE, labels))

    def give(self, worker: str, cpus: int) -> None:
        """Give the queue so many CPUs on a worker."""
        self._clusters.give(worker, cpus)

    def runs(self, name: str) -> str | None:
        """Return the cluster that admitted a Job."""
        found: str | None = self._status(name).get("clusterName")
        return found

    def nominated(self, name: str) -> list[str]:
        """Return the clusters that a Job is nominated for."""
        return list(self._status(name).get("nominatedClusterNames", ()))

    def copies(self, name: str) -> list[str]:
        """Return the workers that have a copy of a Job's Workload."""
        found = self._workload(name)
        mine = found["metadata"]["name"] if found else ""
        return [worker for worker, names in self._clusters.copies().items() if mine in names]

    def told(self, name: str) -> str:
        """Return the last note about a Job's Workload."""
        found = self._workload(name)
        mine = found["metadata"]["name"] if found else ""
        items = self._api.get(_EVENTS, namespace=QUEUE.namespace)["items"]
        notes = [
            (one["eventTime"], one["note"])
            for one in items
            if one["regarding"]["name"] == mine and one["reason"].startswith("Remediation")
        ]
        return max(notes)[1] if notes else ""

    def _workload(self, name: str) -> Any:
        for found in self._clusters.workloads():
            if any(owner["name"] == name for owner in found["metadata"]["ownerReferences"]):
                return found
        return None

    def _status(self, name: str) -> Any:
        found = self._workload(name)
        return found.get("status", {}) if found else {}


def tell(world: World, narrator: Narrator) -> None:
    """Tell the whole story once, on an estate without policies and jobs. Raises Differs."""
    nobody_decides(world, narrator)
    a_policy_decides(world, narrator)
    another_region(world, narrator)
    the_cheapest_is_full(world, narrator)
    no_cluster_will_do(world, narrator)


def nobody_decides(world: World, narrator: Narrator) -> None:
    """Show that without a policy nothing is nominated, and that it is said."""
    with narrator.step("A job is submitted; no policy decides on it yet"):
        world.submit("early", region="eu")
        said = "no policy decides on it"
        narrator.see("the last Event on its Workload", said, lambda: world.told("early"))
        narrator.see("copies on the workers", [], lambda: world.copies("early"))


def a_policy_decides(world: World, narrator: Narrator) -> None:
    """Show that the policy's first admits it: one copy, one cluster."""
    with narrator.step("The policy: a job stays in its region, the cheapest cluster comes first"):
        world.policy()
        narrator.see("the cluster that admitted it", "dublin", lambda: world.runs("early"))
        narrator.see("copies on the workers", ["dublin"], lambda: world.copies("early"))


def another_region(world: World, narrator: Narrator) -> None:
    """Show that nobody copies it to Europe."""
    with narrator.step("A job of the region us"):
        world.submit("american", region="us")
        narrator.see("the cluster that admitted it", "oregon", lambda: world.runs("american"))
        narrator.see("copies on the workers", ["oregon"], lambda: world.copies("american"))


def the_cheapest_is_full(world: World, narrator: Narrator) -> None:
    """Show that the next is nominated when the policy's time is up, and that an Event says why."""
    with narrator.step("Dublin has no room; an urgent job waits five seconds for it"):
        world.give("dublin", 0)
        world.submit("urgent", region="eu", team="urgent")
        narrator.see("nominated", ["dublin"], lambda: world.nominated("urgent"))
        narrator.see("the cluster that admitted it", "paris", lambda: world.runs("urgent"))
        said = "dublin did not admit it within 5 s: paris is nominated too"
        narrator.see("the last Event on its Workload", said, lambda: world.told("urgent"))
        world.give("dublin", CPUS)


def no_cluster_will_do(world: World, narrator: Narrator) -> None:
    """Show that what the policy forbids runs nowhere."""
    with narrator.step("A job of a region that has no cluster"):
        world.submit("lost", region="asia")
        said = 'the policy objects: no cluster is in the region "asia"'
        narrator.see("the last Event on its Workload", said, lambda: world.told("lost"))
        narrator.see("copies on the workers", [], lambda: world.copies("lost"))
