"""What was asked for, on real servers: webhook over TLS, replicator, remediator as processes."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kube_sync.decisions.decision import REQUESTED
from tests.eventually import eventually
from tests.fakes.decided import MADE_UP, let_decide
from tests.integration.test_pair import Pair, fresh
from tools.demo.components import start_components
from tools.demo.fleet import FLEET, PREFERENCES, cluster, namespace, replica_set
from tools.demo.webhook import register_webhook
from tools.servers.binaries import ensure_binary
from tools.servers.running import Launcher
from tools.servers.stack import furnished_stack

pytestmark = pytest.mark.slow

MAY = Path(__file__).resolve().parents[2] / "rego/examples/conflicts_may/conflicts_may.rego"
_INVALID = 'contains "requested replica-set-preferences includes invalid clusters"'
# The example, but for what it does with what may not be used: it is left out.
NARROWING = MAY.read_text(encoding="utf-8").replace(f"errors {_INVALID}", f"warnings {_INVALID}")
LABELS = """
package io.k8s.federation.admission

labels["team.io/tier"] := "TIER" if input.kind == "ReplicaSet"
"""


@pytest.fixture(scope="module")
def pair(launcher: Launcher, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """One stack with all three services, and a policy that narrows what is asked for."""
    folder = tmp_path_factory.mktemp("asked")
    with furnished_stack(launcher, folder / "stack") as stack:
        let_decide(stack, *MADE_UP)
        components = start_components(stack, folder / "components")
        try:
            register_webhook(stack, components.webhook_url, components.webhook_ca)
            running = Pair(stack, components)
            for name in (FLEET, "shop"):
                running.apply(namespace(name))
            yield running
        finally:
            components.stop()


@pytest.fixture(autouse=True)
async def policy(pair: Pair) -> None:
    """All clusters lie in the EU, and the policy is in force."""
    for name in ("east", "west"):
        pair.apply(cluster(name, "europe-west1", "2"))
    pair.policy("placement", may=NARROWING, labels=LABELS.replace("TIER", "gold"))
    await eventually(lambda: pair.status("placement"), {"status": "ok"})
    for name in ("east", "west"):
        await eventually(
            lambda name=name: (
                "europe-west1"  # type: ignore[misc]
                in json.dumps(pair.data(f"kubernetes/clusters/fleet/{name}"))
            ),
            expected=True,
        )


def _wants(name: str, *clusters: str) -> dict[str, Any]:
    manifest = replica_set(name)
    wish = {"clusters": {cluster: {"weight": 1} for cluster in clusters}}
    # As the policy's answer is written, so that getting it is getting this text.
    text = json.dumps(wish, separators=(",", ":"), sort_keys=True)
    manifest["metadata"]["annotations"] = {PREFERENCES: text}
    return manifest


def _metadata(pair: Pair, name: str) -> Any:
    return pair.kube(f"/apis/apps/v1/namespaces/shop/replicasets/{name}")["metadata"]


def _request(pair: Pair, name: str) -> Any:
    """Return what is noted as asked for, by clusters; None: that nothing differs."""
    note = json.loads(_metadata(pair, name)["annotations"].get(REQUESTED, "{}"))
    asked_for = note.get(PREFERENCES)
    return sorted(json.loads(asked_for)["clusters"]) if asked_for else None


def _kubectl(pair: Pair, *arguments: str, manifest: dict[str, Any] | None = None) -> str:
    """Run kubectl as the admin; returns what it says to the person before it."""
    command = (ensure_binary("kubectl"), f"--kubeconfig={pair.stack.kubeconfigs['admin']}")
    text = None if manifest is None else json.dumps(manifest)
    done = subprocess.run(
        [*command, *arguments], input=text, capture_output=True, text=True, check=True
    )
    return done.stderr


async def test_a_placement_narrows_with_the_fleet_and_widens_again(pair: Pair) -> None:
    name = fresh()
    _kubectl(pair, "create", "-f", "-", manifest=_wants(name, "east", "west"))
    assert (pair.placement(name), _request(pair, name)) == (["east", "west"], None)
    pair.apply(cluster("west", "us-west1", "2"))
    await eventually(lambda: pair.placement(name), ["east"])
    assert _request(pair, name) == ["east", "west"]
    pair.apply(cluster("west", "europe-west1", "2"))
    await eventually(lambda: pair.placement(name), ["east", "west"])
    await eventually(lambda: _request(pair, name), None)


async def test_a_note_that_the_webhook_wrote_goes_too(pair: Pair) -> None:
    """No field manager owns it, so no apply that leaves it out removes it."""
    pair.apply(cluster("west", "us-west1", "2"))
    await eventually(
        lambda: "us-west1" in json.dumps(pair.data("kubernetes/clusters/fleet/west")), expected=True
    )
    name = fresh()
    said = _kubectl(pair, "create", "-f", "-", manifest=_wants(name, "east", "west"))
    assert "Warning: requested replica-set-preferences includes invalid clusters" in said
    assert (pair.placement(name), _request(pair, name)) == (["east"], ["east", "west"])
    pair.apply(cluster("west", "europe-west1", "2"))
    await eventually(lambda: pair.placement(name), ["east", "west"])
    await eventually(lambda: _request(pair, name), None)


@pytest.mark.parametrize("apply", [("apply",), ("apply", "--server-side", "--force-conflicts")])
async def test_a_new_preference_counts_from_then_on(pair: Pair, apply: tuple[str, ...]) -> None:
    name = fresh()
    _kubectl(pair, *apply, "-f", "-", manifest=_wants(name, "east", "west"))
    pair.apply(cluster("west", "us-west1", "2"))
    await eventually(lambda: pair.placement(name), ["east"])
    # The same manifest again changes nothing; another one does.
    _kubectl(pair, *apply, "-f", "-", manifest=_wants(name, "east", "west"))
    assert (pair.placement(name), _request(pair, name)) == (["east"], ["east", "west"])
    pair.apply(cluster("east", "us-east1", "2"))
    pair.apply(cluster("west", "europe-west1", "2"))
    await eventually(lambda: pair.placement(name), ["west"])
    said = _kubectl(pair, *apply, "-f", "-", manifest=_wants(name, "west"))
    pair.apply(cluster("east", "europe-west1", "2"))
    await eventually(lambda: _request(pair, name), None)
    assert (pair.placement(name), said.count("the placement policy")) == (["west"], 0)


async def test_who_changes_what_the_policy_decides_is_told_and_gets_it_back(pair: Pair) -> None:
    name = fresh()
    _kubectl(pair, "create", "-f", "-", manifest=replica_set(name))
    assert pair.placement(name) == ["east", "west"]
    said = _kubectl(
        pair, "annotate", "replicaset", name, "--namespace=shop", f"{PREFERENCES}-", "mine=1"
    )
    assert f"Warning: annotation {PREFERENCES}: decided by the placement policy" in said
    assert pair.placement(name) == ["east", "west"]
    said = _kubectl(
        pair, "label", "replicaset", name, "--namespace=shop", "--overwrite", "team.io/tier=tin"
    )
    assert "Warning: label team.io/tier: decided by the placement policy" in said
    found = _metadata(pair, name)
    assert found["labels"]["team.io/tier"] == "gold"
    assert found["annotations"]["mine"] == "1"


async def test_labels_follow_the_policy_through_remediation(pair: Pair) -> None:
    name = fresh()
    _kubectl(pair, "create", "-f", "-", manifest=replica_set(name))
    assert _metadata(pair, name)["labels"] == {"app": name, "team.io/tier": "gold"}
    pair.policy("placement", may=NARROWING, labels=LABELS.replace("TIER", "silver"))
    await eventually(lambda: _metadata(pair, name)["labels"]["team.io/tier"], "silver")


async def test_a_copied_manifest_is_stored_as_it_was_admitted(pair: Pair) -> None:
    name, copy = fresh(), fresh()
    _kubectl(pair, "create", "-f", "-", manifest=replica_set(name))
    found = pair.kube(f"/apis/apps/v1/namespaces/shop/replicasets/{name}")
    kept = {key: found["metadata"][key] for key in ("namespace", "labels", "annotations")}
    manifest = {**found, "metadata": {**kept, "name": copy}}
    _kubectl(pair, "create", "-f", "-", manifest=manifest)
    stored = _metadata(pair, copy)["annotations"]
    for found in (stored, kept["annotations"]):
        found[REQUESTED] = json.loads(found[REQUESTED])
        del found[REQUESTED][REQUESTED]  # of another name it is another seal
    assert stored == kept["annotations"]


async def test_a_note_cannot_hide_from_the_policy_what_is_stored(pair: Pair) -> None:
    name = fresh()
    manifest = replica_set(name)
    manifest["metadata"]["annotations"] = {"danger": "true", REQUESTED: '{"danger":null}'}
    _kubectl(pair, "create", "-f", "-", manifest=manifest)
    assert "danger" not in _metadata(pair, name)["annotations"]
    pair.stack.kubectl("delete", "replicaset", name, "--namespace=shop")


async def test_a_planted_note_does_not_reach_opa(pair: Pair) -> None:
    """Nobody of us wrote it: what stands in the object is what is asked for."""
    name, path = fresh(), "kubernetes/replicasets/shop"
    both = "mutatingwebhookconfigurations,validatingwebhookconfigurations"
    pair.stack.kubectl("delete", both, "kube-sync-placement")
    try:
        manifest = replica_set(name)
        east, west = (json.dumps({"clusters": {where: {}}}) for where in ("east", "west"))
        forged = json.dumps({PREFERENCES: west})
        manifest["metadata"]["annotations"] = {PREFERENCES: east, REQUESTED: forged}
        _kubectl(pair, "create", "-f", "-", manifest=manifest)
    finally:
        register_webhook(pair.stack, pair.components.webhook_url, pair.components.webhook_ca)
    await eventually(lambda: name in (pair.data(path) or {}), expected=True)
    held = pair.data(f"{path}/{name}")["metadata"]["annotations"]
    assert json.loads(held.get(REQUESTED, "{}")).get(PREFERENCES) != west
    await eventually(lambda: _request(pair, name), ["east"])
    stored = _metadata(pair, name)["annotations"]
    assert json.loads(stored[PREFERENCES])["clusters"].keys() == {"east"}
    pair.stack.kubectl("delete", "replicaset", name, "--namespace=shop")
