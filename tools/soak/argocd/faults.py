"""What goes wrong, one thing at a time, each undone after it was looked at.

A fault happens to both descriptions of the fleet, the ClusterProfiles that policies read and the
Secrets that Argo CD reads, and to both rules that choose: the policy, and the selector of Argo CD's
own generator.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from tools.demo.fleet import FLEET, POLICIES
from tools.servers.accounts import token_of
from tools.servers.argocd_controller import NAMESPACE
from tools.servers.errors import ToolError
from tools.servers.kubeapi import KubeApi
from tools.soak.argocd.fleet import (
    GOLD,
    OWN,
    POLICY,
    POLICY_NAME,
    TIER,
    application_set,
    known_cluster,
    policy,
    profile,
)
from tools.soak.argocd.scene import REMEDIATOR, REPLICATOR, Scene, until

_MISSPELT = "teir"
_NOTHING = POLICY.replace("cluster.metadata.labels.tier", f"cluster.metadata.labels.{_MISSPELT}")
_BROKEN = POLICY + "\nannotations[oops := 1\n"
_STATUS = "openpolicyagent.org/kube-mgmt-status"


@dataclass(frozen=True, slots=True)
class Estate:
    """How many of each there are."""

    sets: int  # of each way
    clusters: Sequence[str]
    every: int = 5  # seconds between two reconciles of an ApplicationSet that nothing else causes


Act = Callable[[Scene, Estate], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that goes wrong; `heal` undoes it."""

    name: str
    strike: Act
    heal: Act


async def _nothing(_scene: Scene, _estate: Estate) -> None:
    """Nothing has to be undone."""


def _forget(scene: Scene, names: Sequence[str]) -> None:
    for name in names:
        scene.api.delete("clusterprofiles", name, FLEET)
        scene.api.delete("secrets", f"cluster-{name}", NAMESPACE)


def _remember(scene: Scene, names: Sequence[str]) -> None:
    for name in names:
        scene.api.apply(profile(name))
        scene.api.apply(known_cluster(name))


async def _all_gone(scene: Scene, estate: Estate) -> None:
    await asyncio.to_thread(_forget, scene, estate.clusters)
    await _held(scene, estate)


async def _half_gone(scene: Scene, estate: Estate) -> None:
    await asyncio.to_thread(_forget, scene, _half(estate))
    await _held(scene, estate)


async def _all_back(scene: Scene, estate: Estate) -> None:
    await asyncio.to_thread(_remember, scene, estate.clusters)
    await _released(scene)


def _half(estate: Estate) -> Sequence[str]:
    return estate.clusters[: len(estate.clusters) // 2]


async def _renamed(scene: Scene, estate: Estate) -> None:
    first = estate.clusters[0]
    await asyncio.to_thread(_rename, scene.api, first, f"{first}-new")
    await _held(scene, estate)


async def _renamed_back(scene: Scene, estate: Estate) -> None:
    first = estate.clusters[0]
    await asyncio.to_thread(_rename, scene.api, f"{first}-new", first, first)
    await _released(scene)


def _rename(api: KubeApi, before: str, after: str, secret: str | None = None) -> None:
    # In this order: where both are there for a moment, both get Applications.
    api.delete("clusterprofiles", before, FLEET)
    api.create(profile(after))
    api.apply(known_cluster(secret or before, called=after))


async def _selects_nothing(scene: Scene, estate: Estate) -> None:
    def edit() -> None:
        scene.api.apply(policy(_NOTHING))
        for number in range(estate.sets):
            scene.api.apply(application_set(OWN, number, selected=_MISSPELT), force=True)

    await asyncio.to_thread(edit)
    await _held(scene, estate)


async def _does_not_compile(scene: Scene, estate: Estate) -> None:
    """Argo CD's own generator has no policy: its selector has an operator that nobody knows."""

    def edit() -> None:
        scene.api.apply(policy(_BROKEN))
        for number in range(estate.sets):
            broken = application_set(OWN, number)
            wrong = [{"key": TIER, "operator": "Inn", "values": [GOLD]}]
            broken["spec"]["generators"] = [{"clusters": {"selector": {"matchExpressions": wrong}}}]
            scene.api.apply(broken, force=True)

    await asyncio.to_thread(edit)
    await until("the policy is refused", lambda: '"error"' in _said_of_policy(scene))


async def _rules_are_mended(scene: Scene, estate: Estate) -> None:
    def edit() -> None:
        scene.api.apply(policy())
        for number in range(estate.sets):
            scene.api.apply(application_set(OWN, number), force=True)

    await asyncio.to_thread(edit)
    await until("the policy is in force", lambda: '"ok"' in _said_of_policy(scene))
    await _released(scene)


def _said_of_policy(scene: Scene) -> str:
    found = scene.api.get("configmaps", POLICY_NAME, POLICIES)
    return str(found["metadata"].get("annotations", {}).get(_STATUS, ""))


async def _replicator_restarts(scene: Scene, _estate: Estate) -> None:
    await asyncio.to_thread(scene.services[REPLICATOR].kill)
    await asyncio.to_thread(scene.services[REPLICATOR].start)


async def _opa_is_killed(scene: Scene, _estate: Estate) -> None:
    await asyncio.to_thread(scene.stack.opa.kill)
    await asyncio.to_thread(scene.stack.opa.start)


async def _tokens_expire(scene: Scene, _estate: Estate) -> None:
    """Make both accounts anew, which ends all of their tokens."""

    def expire() -> None:
        for name in ("kube-sync-replicator", "kube-sync-remediator"):
            account = scene.api.get("serviceaccounts", name, "kube-sync")
            scene.api.delete("serviceaccounts", name, "kube-sync")
            metadata = {"name": name, "namespace": "kube-sync"}
            scene.api.create({**account, "metadata": metadata})

    old = await asyncio.to_thread(token_of, scene.api, "kube-sync-remediator")
    await asyncio.to_thread(expire)
    client = KubeApi(scene.api.url, scene.api.ca_file, old)
    try:
        await until("the old token is refused", lambda: _is_refused(client))
    finally:
        client.close()
    scene.proxy.cut()  # else watches that are open go on


def _is_refused(client: KubeApi) -> bool:
    try:
        client.get("clusterprofiles", namespace=FLEET)
    except ToolError as error:
        return " 401 " in str(error)
    return False


async def _tokens_are_new(scene: Scene, _estate: Estate) -> None:
    for command in (REPLICATOR, REMEDIATOR):
        await asyncio.to_thread(scene.start, command)


async def _watches_hang(scene: Scene, estate: Estate) -> None:
    scene.proxy.stall()
    await asyncio.to_thread(_forget, scene, _half(estate))


async def _watches_go_on(scene: Scene, estate: Estate) -> None:
    await asyncio.to_thread(_remember, scene, _half(estate))
    scene.proxy.calm()
    await _released(scene)


async def _held(scene: Scene, estate: Estate) -> None:
    """Wait until the remediator has seen what it would take away."""
    await until(
        "the remediator holds every placement", lambda: len(scene.waiting()) == 2 * estate.sets
    )


async def _released(scene: Scene) -> None:
    await until("the remediator holds nothing", lambda: not scene.waiting())


FAULTS = (
    Fault("no cluster is listed", _all_gone, _all_back),
    Fault("a cluster is renamed", _renamed, _renamed_back),
    Fault("half of the fleet is gone", _half_gone, _all_back),
    Fault("the rule selects nothing", _selects_nothing, _rules_are_mended),
    Fault("the rule cannot be read", _does_not_compile, _rules_are_mended),
    Fault("the replicator restarts", _replicator_restarts, _nothing),
    Fault("OPA is killed, and empty", _opa_is_killed, _nothing),
    Fault("the tokens expire", _tokens_expire, _tokens_are_new),
    Fault("watches hang, half is gone", _watches_hang, _watches_go_on),
)
