"""The steps of the story that look ahead, told by what a person at a terminal reads.

Nothing that is asked here changes anything, and each step looks whether that is so.
"""

from __future__ import annotations

from tools.demo.fleet import LEVEL, policy_map
from tools.demo.narrator import Narrator
from tools.demo.world import World

_BREAKS = 3  # exit status of a plan by which something breaks
_ROWS = 8  # of a table that are shown
_CHANGE = "smallest change that puts it on "


def a_dangerous_edit_is_planned(world: World, narrator: Narrator, source: str) -> None:
    """Tell how a check that plans stops an edit, with whom it would have hurt."""
    with narrator.step("A dangerous edit is planned, and refused by the exit status that CI sees"):
        before, versions, modules = world.placements(), world.versions(), world.modules()
        edited = source.replace("level < _required_level", "level <= _required_level")
        file = world.file("edit.yaml", policy_map(edited))
        status, said = world.kube_sync("plan", "-f", file)
        table = said.splitlines()
        narrator.quote(f"$ kube-sync plan -f {file}")
        narrator.quote("\n".join(table[:_ROWS]))
        narrator.see("its exit status", _BREAKS, lambda: status)
        refused = ["shop/nginx-eu", "shop/nginx-pci"]
        told = [row.split()[1] for row in table if row.startswith("refused ")]
        narrator.see("whom the policy would refuse", refused, lambda: told)
        kept = "as before"
        narrator.see(
            "the modules that OPA holds",
            kept,
            lambda: kept if world.modules() == modules else "others",
        )
        narrator.see("where they are to run", before, world.placements)
        nobody: list[str] = []
        narrator.see("who was written to", nobody, lambda: world.written_since(versions))


def a_workload_is_explained(world: World, narrator: Narrator) -> None:
    """Tell why a workload is not on a cluster, and what would have to be otherwise."""
    with narrator.step(
        "`why-not` explains why a workload left a cluster, and what would bring it back"
    ):
        before, versions, there = world.placements(), world.versions(), "gce-europe-west2"
        asked = ("why-not", "replicaset/nginx-eu", there, "-n", "shop")
        status, said = world.kube_sync(*asked)
        against, _, turning = said.partition(_CHANGE)
        change = turning.partition("\nothers that do")[0]
        narrator.quote(f"$ kube-sync {' '.join(asked)}")
        narrator.quote(against[against.find("clusters\n") :] + _CHANGE + change)
        narrator.see("its exit status", 0, lambda: status)
        level = "PCI level 1 is too low"
        narrator.see(
            "what speaks against it", level, lambda: level if level in against else against
        )
        label = f'metadata.labels["{LEVEL}"]: "1" -> "2"'
        narrator.see("what would turn it", label, lambda: label if label in change else change)
        then = f"then decided: gce-europe-west1, {there}"
        narrator.see("and then", then, lambda: then if then in change else change)
        narrator.see("where they are to run", before, world.placements)
        nobody: list[str] = []
        narrator.see("who was written to", nobody, lambda: world.written_since(versions))
