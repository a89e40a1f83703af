"""The story of policy sync in numbered steps: "homogeneous clusters, and one that differs".

Whoever runs the gateways has one policy for all clusters, on the hub; whoever looks after a cluster
may have it otherwise there. Each step states what it expects before it looks, and looks at what the
API servers of hub and spokes hold.
"""

from __future__ import annotations

from tools.demo.narrator import Narrator
from tools.demo.sync.estate import CONTROLLER, GRACE, HUB
from tools.demo.sync.objects import (
    GATEWAY,
    LISTENER,
    NATIVE,
    ON_SPOKES,
    POLICY,
    SPACE,
    SPOKES,
    STANDING,
    WHY,
    color_policy,
)
from tools.demo.sync.world import World

_PARIS, _TOKYO = SPOKES
_BOTH = list(SPOKES)
_SYNCED = "kube-sync.io/Synced"
_IN_FORCE = "Programmed"
_EVERYWHERE = dict.fromkeys(SPOKES, "Programmed")


def tell(world: World, narrator: Narrator) -> None:
    """Tell the whole story once, on an estate without policies. Raises Differs."""
    the_gateway_is_placed(world, narrator)
    a_policy_reaches_both(world, narrator)
    the_policy_is_edited(world, narrator)
    one_cluster_has_its_own(world, narrator)
    it_has_its_own_no_more(world, narrator)
    a_decision_vanishes_unseen(world, narrator)
    the_placement_moves(world, narrator)
    the_placement_moves_back(world, narrator)
    the_policy_is_deleted_unseen(world, narrator)


def the_gateway_is_placed(world: World, narrator: Narrator) -> None:
    """The class names the kinds to sync, the decision the clusters."""
    with narrator.step("A Gateway of the hub is placed on two clusters; its class syncs policies"):
        world.decide(*SPOKES)
        narrator.see("the class's parameters", ("True", "Valid"), world.class_says)
        narrator.see("works for the clusters", {}, world.works)


def a_policy_reaches_both(world: World, narrator: Narrator) -> None:
    """One work a cluster, and each says what it makes of it."""
    with narrator.step("A policy is created on the hub: the sky is blue at the public listener"):
        world.store(HUB, color_policy(POLICY, SPACE, "blue"))
        narrator.see(
            "the sky by each cluster's copy",
            dict.fromkeys(SPOKES, "blue"),
            lambda: world.copies(POLICY),
        )
        narrator.see(
            "what the copy in Paris targets there",
            f"{GATEWAY}#{LISTENER}, as a synced one",
            lambda: _target(world.copy(_PARIS, POLICY)),
        )
        narrator.see("where the hub's policy says to be", _BOTH, lambda: world.listed(POLICY))
        narrator.see("what became of it", _EVERYWHERE, lambda: world.told(POLICY, STANDING))


def the_policy_is_edited(world: World, narrator: Narrator) -> None:
    """One update a cluster."""
    with narrator.step("The policy is edited: each cluster gets the change, by one update"):
        before = world.works()
        world.store(HUB, color_policy(POLICY, SPACE, "grey"))
        narrator.see(
            "the sky by each cluster's copy",
            dict.fromkeys(SPOKES, "grey"),
            lambda: world.copies(POLICY),
        )
        narrator.see(
            "generations of the works",
            {cluster: generation + 1 for cluster, generation in before.items()},
            world.works,
        )
        narrator.see("what became of it", _EVERYWHERE, lambda: world.told(POLICY, STANDING))


def one_cluster_has_its_own(world: World, narrator: Narrator) -> None:
    """What is made on a cluster beats what was brought there, and the hub is told."""
    with narrator.step("In Tokyo, somebody makes a policy for the same listener: the sky is red"):
        world.store(_TOKYO, color_policy(NATIVE, ON_SPOKES, "red"))
        narrator.see(
            "what became of the hub's policy",
            {_PARIS: "Programmed", _TOKYO: "Overridden"},
            lambda: world.told(POLICY, STANDING),
        )
        narrator.see(
            "the policy that is in its way in Tokyo",
            f"{ON_SPOKES}/{NATIVE}",
            lambda: _named(world.told(POLICY, WHY)[_TOKYO]),
        )
        narrator.see(
            "what the hub's policy says of all together",
            ("False", "Overridden"),
            lambda: world.hub_says(POLICY, _IN_FORCE)[:2],
        )
        narrator.quote("; ".join(world.hub_says(POLICY, _IN_FORCE)[2:]))
        narrator.see(
            "the sky by each cluster's copy, which is still there",
            dict.fromkeys(SPOKES, "grey"),
            lambda: world.copies(POLICY),
        )


def it_has_its_own_no_more(world: World, narrator: Narrator) -> None:
    """The copy is back as soon as nothing is in its way."""
    with narrator.step("Tokyo's own policy goes: the hub's one is in force again"):
        world.delete_policy(_TOKYO, ON_SPOKES, NATIVE)
        narrator.see("what became of it", _EVERYWHERE, lambda: world.told(POLICY, STANDING))


def a_decision_vanishes_unseen(world: World, narrator: Narrator) -> None:
    """Where nobody knows the clusters, nothing is taken away, and all that is known is on works."""
    title = "The PlacementDecision vanishes while the controller is down: no cluster loses anything"
    with narrator.step(title):
        before = world.versions(POLICY)
        world.estate.services[CONTROLLER].kill()
        world.forget_decision()
        world.estate.services[CONTROLLER].start()
        narrator.see(
            "what the next one says, once the Lease of the killed one is over",
            ("False", "PlacementUnknown"),
            lambda: _synced(world),
        )
        narrator.quote("; ".join(world.hub_says(POLICY, _SYNCED)[2:]))
        narrator.see("works and copies that were written", [], lambda: _changed(world, before))
        world.decide(*SPOKES)
        narrator.see("once it is back", ("True", "Synced"), lambda: _synced(world))
        narrator.see("works and copies that were written", [], lambda: _changed(world, before))


def the_placement_moves(world: World, narrator: Narrator) -> None:
    """A cluster that is given up keeps its copy for the grace."""
    title = f"The Gateway is placed on Paris alone: Tokyo keeps its copy for {GRACE:.0f} s more"
    with narrator.step(title):
        world.decide(_PARIS)
        narrator.see("clusters whose work has a time to go", [_TOKYO], world.leaving)
        narrator.see("clusters that have the copy", _BOTH, lambda: _having(world))
        narrator.see("and after the grace", [_PARIS], lambda: _having(world))
        narrator.see("where the hub's policy says to be", [_PARIS], lambda: world.listed(POLICY))


def the_placement_moves_back(world: World, narrator: Narrator) -> None:
    """A cluster that comes back is as any other."""
    with narrator.step("Tokyo is back"):
        world.decide(*SPOKES)
        narrator.see("what became of it", _EVERYWHERE, lambda: world.told(POLICY, STANDING))


def the_policy_is_deleted_unseen(world: World, narrator: Narrator) -> None:
    """What is there no more is found by what is left of it."""
    with narrator.step("The policy is deleted while the controller is down: nothing is left of it"):
        world.estate.services[CONTROLLER].stop()
        world.delete_policy(HUB, SPACE, POLICY)
        world.estate.services[CONTROLLER].start()
        narrator.see(
            "the sky by each cluster's copy",
            dict.fromkeys(SPOKES),
            lambda: world.copies(POLICY),
        )
        narrator.see("works for the clusters", {}, world.works)


def _target(copy: dict[str, dict[str, dict[str, str]]]) -> str:
    if not copy:
        return "nothing"
    ref, notes = copy["spec"]["targetRef"], copy["metadata"]["annotations"]
    synced = "a synced" if notes.get("kuadrant.io/policy-synced") == "true" else "a native"
    return f"{ref['name']}#{ref.get('sectionName')}, as {synced} one"


def _named(message: str | None) -> str:
    """Return what is between the brackets of a message: who overrides."""
    return (message or "").partition("[")[2].partition("]")[0]


def _changed(world: World, before: dict[str, str]) -> list[str]:
    after = world.versions(POLICY)
    return [name for name, version in before.items() if after[name] != version]


def _having(world: World) -> list[str]:
    return [cluster for cluster, sky in world.copies(POLICY).items() if sky is not None]


def _synced(world: World) -> tuple[str, ...]:
    return world.hub_says(POLICY, _SYNCED)[:2]
