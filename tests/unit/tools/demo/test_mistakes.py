from __future__ import annotations

import io
from typing import Any

import pytest

from tools.demo import mistakes
from tools.demo.mistakes import a_cluster_is_misspelt
from tools.demo.narrator import Differs, Narrator

PLACED: dict[str, tuple[str, ...]] = {"nginx-anywhere": ("gce-us-east1",)}
WARNING = (
    "placement.rego row 4: the fleet has no cluster 'gce-europe-wset1' (nearest: gce-europe-west1,"
    " gce-europe-west2, gce-us-east1); workloads that get no other cluster are not moved there"
)


class World:
    """A stack that holds what a step writes, and warns of it."""

    def __init__(self, moved: str = "gce-us-east1") -> None:
        self.stored: list[Any] = []
        self.moved = moved

    def store(self, manifest: Any) -> str:
        self.stored.append(manifest["data"]["placement.rego"])
        return "admitted"

    def placements(self) -> dict[str, tuple[str, ...]]:
        return {"nginx-anywhere": (self.moved,)} if len(self.stored) == 1 else PLACED

    def versions(self) -> dict[str, str]:
        return {}

    def written_since(self, _versions: dict[str, str]) -> list[str]:
        return []

    def events_on(self, _name: str) -> list[str]:
        return ["RemediationFleet", "RemediationNowhere"]

    def policy_status(self) -> dict[str, Any]:
        warned = self.stored[-1] != "mended"
        return {"status": "ok"} | ({"warnings": [{"message": WARNING}]} if warned else {})


def _told(world: Any) -> str:
    out = io.StringIO()
    times = iter(range(0, 100_000, 40))
    a_cluster_is_misspelt(world, Narrator(out, lambda: float(next(times))), "mended")
    return out.getvalue()


def test_misspelt_cluster_is_told_with_the_row_in_which_it_stands() -> None:
    world = World()
    told = _told(world)
    assert f"> {WARNING}" in told
    policy, mended = world.stored
    assert mistakes.MISSPELT in policy.splitlines()[3]
    assert mended == "mended"


def test_workload_that_moves_ends_the_story() -> None:
    with pytest.raises(Differs, match="where they are to run"):
        _told(World(moved="gce-europe-wset1"))
