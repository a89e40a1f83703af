"""Policy sync between a real hub and real spokes of which one is cut off for a while.

What was on its way is there once afterwards, what happened meanwhile is followed, and nothing is
taken away that the hub does not want away.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kube_sync.certificates import issue, make_authority
from kube_sync.policysync.manifestworks import WORKS
from kube_sync.policysync.placers import CONCURRENT_STEPS
from kube_sync.processes.context import Context
from kube_sync.processes.policysync import policy_sync
from tests.eventually import eventually
from tests.faults.proxy import FaultProxy
from tests.integration.syncing_world import (
    COLORS,
    World,
    running,
    world_of,
)
from tests.integration.test_machinery import ROOT
from tools.servers.apiserver import write_kubeconfig
from tools.servers.files import LOOPBACK, write_file, write_pair
from tools.servers.spokes import RunningSpoke
from tools.servers.stack import RunningStack

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

SYNCED = "kube-sync.io/Synced"
MANY = 25  # policies, each on two clusters
_AMID = 250_000  # bytes through the proxy: some of the copies are written, and some are not
_PATIENCE = 90.0  # seconds: what is awaited waits for Leases and back-off
Said = dict[str, tuple[str, str, str]]


@pytest.fixture
async def world(
    hub: RunningStack,
    gateway_api: RunningStack,
    spokes: tuple[RunningSpoke, ...],
    namespace: str,
) -> AsyncGenerator[World]:
    gateway_api.install_kinds(ROOT / "manifests/examples/colorpolicy")
    async with world_of(hub, spokes, namespace) as found:
        await found.install()
        yield found


@asynccontextmanager
async def proxied(
    url: str, ca_file: Path, token: str, folder: Path
) -> AsyncGenerator[tuple[FaultProxy, Path]]:
    """A proxy before an API server, and a kubeconfig of its admin by way of it."""
    authority = make_authority("fault proxy")
    own_ca = write_file(folder / "ca.crt", authority.cert_pem)
    write_pair(folder, "tls", issue(authority, "proxy", LOOPBACK))
    serve = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serve.load_cert_chain(folder / "tls.crt", folder / "tls.key")
    reach = ssl.create_default_context(cafile=ca_file)
    async with FaultProxy(int(url.rpartition(":")[2]), serve=serve, reach=reach) as proxy:
        here = f"https://127.0.0.1:{proxy.port}"
        yield proxy, write_kubeconfig(folder, "proxied", here, own_ca, token)


def refuse(proxy: FaultProxy) -> None:
    """End every connection, and let nobody open another."""
    proxy.refusing = True
    proxy.cut()


async def test_a_hub_that_is_cut_off_amid_many_copies_gets_each_of_them_once(
    world: World, tmp_path: Path
) -> None:
    async with _amid_many(world, tmp_path, refuse) as (proxy, context):
        trouble = await eventually(lambda: _trouble(context), bool, _PATIENCE)
        assert f"{COLORS.resource}" in trouble
        await _meanwhile(world)
        proxy.calm()
        await _all_are_there_once(world)


async def test_a_hub_that_hangs_until_the_lease_is_over_gets_each_copy_once(
    world: World, tmp_path: Path
) -> None:
    """What was asked for before arrives long after, when it is not this one's to write."""
    async with _amid_many(world, tmp_path, FaultProxy.stall) as (proxy, context):
        await _meanwhile(world)
        await eventually(lambda: _noted(context, "copies"), "another one brings them", _PATIENCE)
        proxy.calm()
        await _all_are_there_once(world)


@asynccontextmanager
async def _amid_many(
    world: World, folder: Path, fault: Any
) -> AsyncGenerator[tuple[FaultProxy, Context]]:
    """Begin to place many copies beside those of two policies, and let a fault end that."""
    first, second = world.names
    await world.gateway("other", placement="other")
    await world.decide(first, placement="other")
    await world.policy("gone")
    await world.policy("moved", to="other")
    stack = world.stack
    token = stack.kube_tokens["admin"]
    way = proxied(stack.apiserver_url, stack.apiserver_ca_file, token, folder)
    async with way as (proxy, kubeconfig):
        settings = world.settings(kubeconfig)
        async with running(settings, policy_sync) as context:  # it ends before its proxy
            await eventually(world.works, {"gone": [first, second], "moved": [first]}, _PATIENCE)
            met = asyncio.Event()

            def meet() -> None:
                fault(proxy)
                met.set()

            proxy.after(_AMID, meet)
            await asyncio.gather(*(world.policy(name) for name in _many()))
            async with asyncio.timeout(_PATIENCE):
                await met.wait()
            found = await world.works()
            assert 3 < sum(map(len, found.values())) < 2 * MANY + 3
            assert world.writes()["delete manifestworks"] == 0
            yield proxy, context
            proxy.calm()  # whoever ends hands the Lease over


async def _meanwhile(world: World) -> None:
    await world.delete(COLORS, world.space, "gone")
    await world.delete(COLORS, world.space, _many()[-1])
    await world.decide(world.names[1], placement="other")


async def _all_are_there_once(world: World) -> None:
    first, second = world.names
    *stay, last = _many()
    wanted = {"moved": [second], **{name: [first, second] for name in stay}}
    await eventually(world.works, wanted, _PATIENCE)
    for name in stay:
        await eventually(partial(world.listed, name), world.names, _PATIENCE)
    await eventually(lambda: _is_quiet(world), expected=True)
    assert await world.works() == wanted
    for cluster in world.names:
        assert set(await _generations(world, cluster)) == {1}  # nothing was written anew
    writes = _writes(world)
    removed = {policy for (policy, _), verb, _ in writes if verb == "delete"}
    assert {"gone", "moved"} <= removed <= {"gone", "moved", last}
    # One that was cut off may be done whatever the answer that nobody read; it is asked for again.
    asked = Counter(copy for copy, verb, _ in writes if verb == "patch")
    assert asked.total() - len(asked) <= CONCURRENT_STEPS
    made = Counter(copy for copy, verb, code in writes if (verb, code) == ("patch", 201))
    assert set(made.values()) == {1}


async def _is_quiet(world: World) -> bool:
    before = world.writes()
    await asyncio.sleep(2.5)  # looks at all, and answers that are told together
    return world.writes() == before


def _many() -> list[str]:
    return [f"paint-{number:02}" for number in range(MANY)]


def _writes(world: World) -> list[tuple[tuple[str, str], str, int]]:
    """Return of each write of a work the policy and the cluster, the verb and the answer's code."""
    found = [
        (one["objectRef"], one["verb"], one["responseStatus"]["code"]) for one in world.audited()
    ]
    return [
        ((_policy_of(world, ref["name"]), ref["namespace"]), verb, code)
        for ref, verb, code in found
        if ref["resource"] == WORKS.resource
    ]


def _policy_of(world: World, work: str) -> str:
    named = work.partition(f"{world.space}-")[2]
    return named.rpartition("-")[0]  # without its digest


async def _generations(world: World, cluster: str) -> list[int]:
    listed = json.loads(await world.hub.request("GET", WORKS.path(cluster)))["items"]
    return [one["metadata"]["generation"] for one in listed]


async def test_a_spoke_that_is_cut_off_keeps_what_it_has_and_no_other_waits_for_it(
    world: World, tmp_path: Path
) -> None:
    first, second = world.names
    await world.below_it()
    await world.policy("old")
    await world.policy("gone")
    options = {"placers": ["direct"], "spokes": {"namespace": world.space}}
    cluster = world.spokes[1].cluster
    way = proxied(cluster.url, cluster.ca_file, cluster.tokens["admin"], tmp_path)
    async with way as (proxy, kubeconfig):
        await world.grant(**{second: kubeconfig})
        async with world.topologies(), world.syncing(**options) as context:
            await eventually(lambda: world.copies("gone"), dict.fromkeys(world.names, "red"))
            await eventually(lambda: world.said("old"), _is_accepted, _PATIENCE)
            kept = await world.get(COLORS, world.below, "old", on=second)
            refuse(proxy)
            await eventually(
                lambda: _noted(context, "spokes"), lambda note: note.startswith(second), _PATIENCE
            )
            await world.policy()
            await world.policy("old", "blue")
            await world.delete(COLORS, world.space, "gone")
            await eventually(world.copies, {first: "red"})
            await eventually(lambda: world.copies("old"), {first: "blue", second: "red"})
            await eventually(lambda: world.copies("gone"), {second: "red"})
            for name in ("paint", "old"):
                said = await eventually(
                    partial(world.said, name),
                    lambda said: said.get("Accepted", ("", "", ""))[2].startswith(f"{second}: "),
                    _PATIENCE,
                )
                assert said["Accepted"][0] == "Unknown"
                assert said[SYNCED][0] != "True"
                assert second in said[SYNCED][2]
                assert first not in said[SYNCED][2]
            assert await world.get(COLORS, world.below, "old", on=second) == kept
            proxy.calm()
            await eventually(world.copies, dict.fromkeys(world.names, "red"), _PATIENCE)
            await eventually(lambda: world.copies("old"), dict.fromkeys(world.names, "blue"))
            await eventually(lambda: world.copies("gone"), {}, _PATIENCE)
            for name in ("paint", "old"):
                await eventually(partial(world.said, name), _is_accepted, _PATIENCE)
    after = await world.get(COLORS, world.below, "old", on=second)
    assert kept is not None
    assert after is not None
    assert after["metadata"]["uid"] == kept["metadata"]["uid"]


async def test_a_spoke_whose_agent_ends_is_named_on_the_hub_and_goes_on_where_it_was(
    world: World,
) -> None:
    first, second = world.names
    await world.below_it()
    await world.policy()
    await world.policy("gone")
    async with world.agents(first), world.syncing():
        async with world.agents(second):
            await eventually(lambda: world.said("gone"), _is_synced)
            await eventually(world.said, _is_synced)
        kept = await world.get(COLORS, world.below, "paint", on=second)
        await world.policy(color="blue")
        await world.policy("late")
        await world.delete(COLORS, world.space, "gone")
        await eventually(world.copies, {first: "blue", second: "red"})
        await eventually(lambda: world.copies("late"), {first: "red"})
        await eventually(lambda: world.copies("gone"), {second: "red"})
        for name in ("paint", "late"):
            said = await eventually(
                partial(world.said, name),
                lambda said: said.get(SYNCED, ("", "", ""))[2].startswith(f"{second}: "),
                _PATIENCE,
            )
            assert said[SYNCED][:2] == ("Unknown", "Pending")
        assert await world.get(COLORS, world.below, "paint", on=second) == kept
        assert (await world.works())["late"] == [first, second]
        async with world.agents(second):
            await eventually(world.copies, dict.fromkeys(world.names, "blue"))
            await eventually(lambda: world.copies("late"), dict.fromkeys(world.names, "red"))
            await eventually(lambda: world.copies("gone"), {})
            for name in ("paint", "late"):
                await eventually(partial(world.said, name), _is_synced, _PATIENCE)
    after = await world.get(COLORS, world.below, "paint", on=second)
    assert kept is not None
    assert after is not None
    assert after["metadata"]["uid"] == kept["metadata"]["uid"]


def _is_synced(said: Said) -> bool:
    return said.get(SYNCED, ("", "", ""))[0] == "True"


def _is_accepted(said: Said) -> bool:
    return said.get("Accepted", ("", "", ""))[0] == "True"


async def _noted(context: Context, name: str) -> str:
    return str(context.readiness.conditions.get(name, ""))


async def _trouble(context: Context) -> str:
    """Return what readiness says of the policies, "" while it has no complaint."""
    note = await _noted(context, f"{COLORS} policies")
    return "" if note == "ok" else f"{COLORS}: {note}"
