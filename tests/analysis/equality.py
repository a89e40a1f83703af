"""The claim that the analysis makes: a decision over what is read equals that over everything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kube_sync.opa.analysis.paths import Path, project
from kube_sync.opa.analysis.result import Collection, Reads
from tests.analysis.opa import PolicyOpa

ROOTS = {
    "clusters": Collection(("kubernetes", "clusters")),
    "nodes": Collection(("kubernetes", "nodes"), namespaced=False),
}
World = Mapping[str, Any]  # what lies at data.kubernetes
Paths = Mapping[str, Sequence[Path]]  # of each resource, and of `input`


def reduced(world: World, roots: Mapping[str, Collection], paths: Paths) -> World:
    """Return the objects of a world, each projected to what is read of its resource."""
    return {
        name: _objects(found, 2 if roots[name].namespaced else 1, paths[name])
        for name, found in world.items()
    }


def _objects(found: Any, levels: int, paths: Sequence[Path]) -> Any:
    if levels == 0:
        return project(found, paths)
    return {name: _objects(below, levels - 1, paths) for name, below in found.items()}


def decisions(opa: PolicyOpa, decision: str, objects: Sequence[Any], world: World) -> list[Any]:
    """Return what OPA decides of all objects in a world."""
    opa.put(world)
    return opa.ask(decision, objects)


def paths_of(reads: Reads) -> Paths:
    """Return the paths of each document, that of `input` among them."""
    return {"input": reads.input.paths, **{n: d.paths for n, d in reads.resources.items()}}


def over_projection(
    opa: PolicyOpa,
    decision: str,
    objects: Sequence[Any],
    world: World,
    paths: Paths,
    roots: Mapping[str, Collection] = ROOTS,
) -> list[Any]:
    """Return what OPA decides of all objects, over nothing but what is read."""
    kept = [project(found, paths["input"]) for found in objects]
    return decisions(opa, decision, kept, reduced(world, roots, paths))
