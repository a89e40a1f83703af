"""The steps of the story in which a policy says what nobody meant, and nothing comes of it."""

from __future__ import annotations

from tools.demo.fleet import PREFERENCES, policy_map
from tools.demo.narrator import Narrator
from tools.demo.world import World

MISSPELT = "gce-europe-wset1"
_POLICY = f"""package io.k8s.federation.admission

annotations["{PREFERENCES}"] := {{
	"clusters": {{"{MISSPELT}": {{"weight": 1}}}},
	"rebalance": false,
}} if {{
	input.kind == "ReplicaSet"
}}
"""
_ROW = 4  # of the misspelt name
_HELD = "RemediationNowhere"


def a_cluster_is_misspelt(world: World, narrator: Narrator, mended: str) -> None:
    """Tell how a placement on a cluster that does not exist moves nobody."""
    with narrator.step("A policy misspells a cluster: nobody moves, and its author reads why"):
        before, versions = world.placements(), world.versions()
        world.store(policy_map(_POLICY))
        said = f"placement.rego row {_ROW}: the fleet has no cluster '{MISSPELT}' "
        said += "(nearest: gce-europe-west1"
        narrator.see("what its author reads on it", said, lambda: _warning(world, said))
        narrator.quote(_warning(world))
        narrator.see(
            "the Event on one that would move",
            _HELD,
            lambda: _HELD if _HELD in world.events_on("nginx-anywhere") else "none",
        )
        narrator.see("where they are to run", before, world.placements)
        nobody: list[str] = []
        narrator.see("who was written to", nobody, lambda: world.written_since(versions))
        world.store(policy_map(mended))
        narrator.see("after it is mended", {"status": "ok"}, world.policy_status)


def _warning(world: World, beginning: str = "") -> str:
    """Return the first warning on the policy, or the beginning of it that is looked for."""
    found = world.policy_status() or {}
    first = str(next((one["message"] for one in found.get("warnings", ())), "none"))
    return beginning if beginning and first.startswith(beginning) else first
