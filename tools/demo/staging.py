"""The steps of the story in which an edit takes effect by degrees."""

from __future__ import annotations

from typing import Any

from tools.demo.fleet import POLICIES, STAGED, staged_map
from tools.demo.narrator import Narrator
from tools.demo.world import World

_NAMES = ("nginx-anywhere", "nginx-early", "nginx-eu", "nginx-pci")
_DRAWN = ("nginx-anywhere", "nginx-pci")  # at a half, and whenever it is drawn
_COUNTED = ("objects", "refused", "nowhere", "moves", "changes")
_CHANGES = 2  # exit status of a plan by which something changes and nothing breaks
_ALL = {"objects": 4, "refused": 0, "nowhere": 0, "moves": 0, "changes": 4}


def an_edit_is_a_candidate(world: World, narrator: Narrator, edited: str) -> None:
    """Compile an edit as soon as it is stored, and tell what it would do, by a plan."""
    with narrator.step(
        "An edit is stored as a candidate: it is compiled, and planned with on demand"
    ):
        versions, modules = world.versions(), world.modules()
        world.store(staged_map(edited, "candidate"))
        plan = ("plan", "--staged", "--candidate", f"{POLICIES}/{STAGED}")
        command = " ".join(("kube-sync", *plan))
        wanted = {"status": "ok", "plan": command}
        narrator.see("what its author reads on it", wanted, lambda: _read(world, *wanted))
        status, said = world.kube_sync(*plan)
        narrator.quote(f"$ {command}")
        narrator.see("its exit status", _CHANGES, lambda: status)
        narrator.quote(said)
        kept = "as before"
        narrator.see(
            "the modules that OPA holds",
            kept,
            lambda: kept if world.modules() == modules else "others",
        )
        nobody: list[str] = []
        narrator.see("who was written to", nobody, lambda: world.written_since(versions))


def the_edit_decides_in_the_shadow(world: World, narrator: Narrator) -> None:
    """Tell what the edit would change, by deciding beside what is in force over live objects."""
    with narrator.step("The edit decides in the shadow: what it would change is counted"):
        versions, rebalanced = world.versions(), world.preferences()
        status, said = _stage(world, narrator, "shadow")
        narrator.see("its exit status", 0, lambda: status)
        narrator.quote(said)
        expected = {"stage": "shadow", **_ALL}
        narrator.see("what its author reads on it", expected, lambda: _counted(world, "stage"))
        nobody: list[str] = []
        narrator.see("who was written to", nobody, lambda: world.written_since(versions))
        narrator.see("rebalance", rebalanced, world.preferences)


def half_of_the_objects_try_it(world: World, narrator: Narrator) -> None:
    """Let the edit decide on a part of all objects, drawn by their names, and take that back."""
    with narrator.step("A canary: the edit decides on half of the objects, by their names"):
        everywhere = dict.fromkeys(_NAMES, True)
        half = {**everywhere, **dict.fromkeys(_DRAWN, False)}
        _go(world, narrator, half, "canary", "--share", "0.5")
        _go(world, narrator, everywhere, "revert")
        _go(world, narrator, half, "canary", "--share", "0.5")
        counted = {"objects": 2, "refused": 0, "nowhere": 0, "moves": 0, "changes": 2}
        narrator.see("what its author reads on it", counted, lambda: _counted(world))


def the_edit_is_promoted(world: World, narrator: Narrator) -> None:
    """Put the edit in force: what was counted allows it, so nobody has to force it."""
    with narrator.step("The edit is promoted (no rebalancing any more) and all follow"):
        status, said = _stage(world, narrator, "active", "--yes")
        narrator.see("its exit status", 0, lambda: status)
        narrator.quote(said)
        narrator.see("rebalance", dict.fromkeys(_NAMES, False), world.preferences)


def _go(world: World, narrator: Narrator, rebalance: dict[str, bool], *step: str) -> None:
    status, said = _stage(world, narrator, *step)
    narrator.see("its exit status", 0, lambda: status)
    narrator.quote(said)
    narrator.see("rebalance", rebalance, world.preferences)


def _stage(world: World, narrator: Narrator, *step: str) -> tuple[int, str]:
    narrator.quote(f"$ kube-sync stage {STAGED} {' '.join(step)}")
    return world.kube_sync("stage", STAGED, *step)


def _counted(world: World, *more: str) -> dict[str, Any] | None:
    return _read(world, *more, *_COUNTED)


def _read(world: World, *names: str) -> dict[str, Any] | None:
    found = world.policy_status(STAGED)
    return None if found is None else {name: found.get(name) for name in names}
