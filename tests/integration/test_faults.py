"""The replicator between real servers that fail: in the end OPA holds what is there, unaided."""

from __future__ import annotations

import asyncio
import base64
import gzip
import json
import os
import random
import secrets
from collections.abc import AsyncGenerator, Iterator
from contextlib import nullcontext, suppress
from functools import partial
from pathlib import Path

import aiohttp
import pytest

from benchmarks.bare import bare_client
from tests.faults.proxy import reply
from tests.faults.relist import operations_of_a_relist
from tests.faults.world import REPLICASETS, Way, World, faulty_world, fill, seeded, until
from tests.parts import examples, quickly
from tools.servers.running import Launcher
from tools.servers.stack import RunningStack, furnished_stack

FAULTS = int(os.environ.get("KUBE_SYNC_FAULTS") or examples(150))
SEED = int(os.environ.get("KUBE_SYNC_SEED") or secrets.randbelow(10**6))
_OBJECTS = 300
_COMPARE_EVERY = 20  # faults
_LOADS, _LISTS = "kube_sync_opa_loads_total", "kube_sync_reflector_lists_total"
_LOST = "kube_sync_opa_answers_lost_total"
_EXPIRED = (
    json.dumps(
        {"type": "ERROR", "object": {"kind": "Status", "code": 410, "reason": "Expired"}}
    ).encode()
    + b"\n"
)
_POLICIES = "/api/v1/namespaces/kube-federation-scheduling-policy/configmaps"
_RECORD = "/api/v1/namespaces/kube-sync/configmaps/kube-sync-last-good"
_IN_FORCE, _LOADED = "kube_sync_policies_in_force", "kube_sync_policy_loads_total"
_LEFT_OUT = "kube_sync_objects_left_out_total"
_EMPTY = b'{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"0"},"items":[]}'


def _ok(body: bytes, length: int) -> bytes:
    head = f"HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
    return head.encode() + body


@pytest.fixture(scope="module")
def servers(launcher: Launcher, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningStack]:
    """A stack that no other test sees fail, with several hundred objects and a policy."""
    with furnished_stack(launcher, tmp_path_factory.mktemp("faults")) as running:

        async def furnish() -> None:
            async with bare_client(running) as bare:
                await fill(bare, _OBJECTS)

        asyncio.run(furnish())
        yield running


@pytest.fixture
async def world(servers: RunningStack, tmp_path: Path) -> AsyncGenerator[World]:
    """A replicator that has loaded everything, behind proxies without faults."""
    async with (
        bare_client(servers) as bare,
        faulty_world(servers, bare, tmp_path / "replicate", SEED) as running,
    ):
        await running.settled()
        yield running
        await running.objects.clear()


def way(world: World, name: str) -> Way:
    return world.kube if name == "kube" else world.opa


@pytest.mark.parametrize("name", quickly(1, ["kube", "opa"]))
async def test_connections_cut_at_random_bytes_lose_nothing(world: World, name: str) -> None:
    proxy, bytes_ = way(world, name).outer, 400_000
    async with world.churning():
        # Wider apart than a load, or OPA would stay lost as long as the faults last.
        way(world, name).cut_often(seeded(SEED), 50_000 if name == "kube" else 800_000)
        passed = proxy.passed
        await until("bytes pass", lambda: proxy.passed > passed + bytes_)
    await world.settled()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["kube", "opa"])
async def test_stall_in_mid_message_loses_nothing(world: World, name: str) -> None:
    proxy = way(world, name).outer
    proxy.after(seeded(SEED).randrange(20_000), proxy.stall)
    async with world.churning():
        await until("nothing passes", lambda: proxy.stalled)
        await world.objects.goes_on(20)
    await world.settled()


@pytest.mark.slow
@pytest.mark.parametrize("cut", [True, False], ids=["then cut", "then on"])
async def test_slow_network_loses_nothing(world: World, *, cut: bool) -> None:
    for each in (world.kube, world.opa):
        each.outer.delay = 0.02
    await world.objects.some(30)
    if cut:
        world.kube.outer.cut()
        world.opa.outer.cut()
    await world.objects.some(10)
    await world.settled()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["kube", "opa"])
async def test_bursts_of_refusals_are_waited_out(world: World, name: str) -> None:
    for code, headers in ((429, ["Retry-After: 1"]), (500, []), (503, [])):
        way(world, name).answer(reply(code, *headers), times=3)
        await world.objects.some(10)
        await until("refused", lambda: way(world, name).inner.replied)
        await world.settled()


@pytest.mark.slow
async def test_answers_lost_after_opa_took_the_batch_cost_no_load(world: World) -> None:
    """Nobody told the replicator that OPA holds them: the fence does."""
    loads, lost = await world.metric(_LOADS), await world.metric(_LOST)
    async with world.churning():
        while not await world.more(_LOST, lost + 2):  # it may be a heartbeat's
            world.opa.inner.swallow(b"PATCH ", times=1)
            await until("an answer is lost", lambda: world.opa.inner.replied)
            await until("OPA answers", world.ready)
    await world.settled()
    assert await world.metric(_LOADS) == loads


@pytest.mark.slow
async def test_410_in_mid_stream_lists_again(world: World) -> None:
    lists = await world.metric(_LISTS)
    async with world.churning():
        for plural in (b"replicasets", b"clusterprofiles"):
            await until("a watch", partial(world.kube.inner.inject, plural, _EXPIRED))
        await until("both are listed again", lambda: world.more(_LISTS, lists + 1))
    await world.settled()


@pytest.fixture
async def policy(world: World) -> AsyncGenerator[bytes]:
    """A policy in force and on record; returns the record."""
    metadata = {"name": "stands", "namespace": _POLICIES.split("/")[4]}
    data = {"stands.rego": "package faults.stands\n\nok := true\n"}
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}
    before = await world.metric(_IN_FORCE)
    await world.bare.kube("POST", _POLICIES, body)
    await until("it is in force", lambda: world.more(_IN_FORCE, before))
    await until("it is on record", partial(_is_on_record, world))
    yield await world.bare.kube("GET", _RECORD)
    await world.bare.kube("DELETE", f"{_POLICIES}/stands")


async def _is_on_record(world: World) -> bool:
    with suppress(aiohttp.ClientResponseError):
        record = json.loads(await world.bare.kube("GET", _RECORD))
        packed = base64.b64decode(record["binaryData"]["modules.json.gz"])
        return b"faults.stands" in gzip.decompress(packed)
    return False


@pytest.mark.parametrize(
    "answer",
    quickly(
        1,
        [
            reply(404),
            reply(403),
            reply(410),
            _ok(_EMPTY, len(_EMPTY)),
            _ok(_EMPTY[:-9], len(_EMPTY) - 9),
        ],
    ),
    ids=["404", "403", "410", "empty", "half"],
)
async def test_no_answer_to_a_list_of_policies_unloads_one(
    world: World, policy: bytes, answer: bytes
) -> None:
    before = await world.metrics(_IN_FORCE, _LOADED)
    world.kube.answer(reply(404), times=2, wanted=b"/configmaps?watch")
    await until("the watch is refused", lambda: world.kube.inner.replied)
    world.kube.inner.reply(b"/configmaps?limit", answer, times=2)
    await until("a watch", partial(world.kube.inner.inject, b"/configmaps?watch", _EXPIRED))
    await until("the list is answered so", lambda: world.kube.inner.replied)
    await world.settled()
    assert await world.metrics(_IN_FORCE, _LOADED) == before
    assert await world.bare.kube("GET", _RECORD) == policy


@pytest.mark.slow
async def test_object_nested_too_deeply_stays_as_it_was_until_it_can_be_read(world: World) -> None:
    """Also when it is listed: what cannot be read is there all the same."""
    await world.objects.create("clusters")
    await world.settled()
    (place,) = world.objects.alive
    _, where, name = place
    before = await world.nest(where, name)
    await until("it is left out", lambda: world.more(_LEFT_OUT, 0))
    lists = await world.metric(_LISTS)
    await until("a watch", partial(world.kube.inner.inject, b"clusterprofiles", _EXPIRED))
    await until("they are listed again", lambda: world.more(_LISTS, lists))
    await world.objects.create("replicasets")
    await until("OPA goes on", partial(_is_held, world))
    assert (await world.held())["clusters"][where][name] == before
    await world.specify(where, name, None)
    await world.settled()


async def _is_held(world: World) -> bool:
    held = await world.held()
    return all(name in held[kind].get(where, {}) for kind, where, name in world.objects.alive)


@pytest.mark.slow
async def test_410_as_an_answer_lists_again(world: World) -> None:
    world.kube.answer(reply(410), times=2, wanted=b"watch=1")
    await until("refused", lambda: world.kube.inner.replied)
    await world.objects.some(10)
    await world.settled()


@pytest.mark.slow
async def test_opa_killed_while_idle_is_loaded_again(world: World) -> None:
    loads = await world.metric(_LOADS)
    await world.kill_opa()
    await world.start_opa()
    await world.settled()
    assert await world.metric(_LOADS) > loads


async def test_opa_killed_in_mid_load_is_loaded_again(world: World) -> None:
    world.opa.outer.after(seeded(SEED).randrange(10_000, 300_000), world.opa.outer.stall)
    await world.wipe_opa()
    await until("a load has begun", lambda: world.opa.outer.stalled)
    await world.objects.some(10)
    await world.kill_opa()
    await world.start_opa()
    await world.settled()


@pytest.mark.slow
async def test_opa_killed_in_mid_burst_is_loaded_again(world: World) -> None:
    async with world.churning():
        for _ in range(2):
            await world.objects.goes_on(20)
            await world.kill_opa()
            await world.start_opa()
    await world.settled()


@pytest.mark.slow
@pytest.mark.parametrize("busy", [True, False], ids=["busy", "idle"])
async def test_opa_wiped_by_hand_is_loaded_again(world: World, *, busy: bool) -> None:
    loads = await world.metric(_LOADS)
    async with world.churning() if busy else nullcontext():
        await world.wipe_opa()
        await until("the wipe is noticed", lambda: world.more(_LOADS, loads))
    await world.settled()


@pytest.mark.slow
async def test_data_wiped_by_hand_beside_the_epoch_is_loaded_again(world: World) -> None:
    """Nothing changes, and the epoch says that all is well: only the audit finds it."""
    loads = await world.metric(_LOADS)
    await world.wipe_data()
    await until("the wipe is noticed", lambda: world.more(_LOADS, loads))
    await world.settled()
    assert await world.metric("kube_sync_audit_differences_total") == 1


async def test_api_server_killed_and_restarted_loses_nothing(world: World) -> None:
    async with world.churning():
        await world.kill_apiserver()
        await world.start_apiserver()
        await world.objects.goes_on(10)
    await world.settled()


@pytest.mark.slow
async def test_both_killed_at_once_lose_nothing(world: World) -> None:
    async with world.churning():
        await asyncio.gather(world.kill_opa(), world.kill_apiserver())
        await asyncio.gather(world.start_opa(), world.start_apiserver())
    await world.settled()


@pytest.mark.slow
async def test_etcd_compacted_while_disconnected_lists_again(world: World) -> None:
    """The API server forgets too: what it held of the past in memory, etcd no longer has."""
    world.kube.outer.refusing = True
    world.kube.outer.cut()
    await world.objects.some(30)
    await world.compact_etcd()
    await world.kill_apiserver()
    await world.start_apiserver()
    await world.settled()
    assert await world.metric('kube_sync_reflector_lists_total{reason="expired"') >= 1


@pytest.mark.slow
async def test_relist_with_ten_changes_sends_ten_operations(world: World) -> None:
    """As many as changed, however many are listed."""
    held = (await world.held())[REPLICASETS]
    names = [(where, name) for where, inside in held.items() for name in inside]
    assert await operations_of_a_relist(world, names[:10]) == 10
    await world.settled()


# Weights: a server that starts again takes seconds, the rest milliseconds.
_KINDS = {
    "cut": 30,
    "cut at a byte": 20,
    "stall": 8,
    "delay": 8,
    "refuse": 8,
    "429": 6,
    "500": 6,
    "503": 6,
    "410": 6,
    "410 in the stream": 6,
    "lost answer": 6,
    "wipe": 6,
    "wipe beside the epoch": 4,
    "compact": 4,
    "kill opa": 2,
    "kill the api server": 1,
    "kill both": 1,
}


@pytest.mark.property
@pytest.mark.timeout(120 + 3 * FAULTS)
async def test_random_faults_end_in_an_equal_opa(world: World) -> None:
    chance = seeded(SEED)
    kinds = chance.choices(list(_KINDS), list(_KINDS.values()), k=FAULTS)
    done: list[str] = []
    try:
        for start in range(0, FAULTS, _COMPARE_EVERY):
            async with world.churning():
                for kind in kinds[start : start + _COMPARE_EVERY]:
                    done.append(kind)
                    await _fault(world, chance, kind)
            await world.settled()
    except Exception as error:
        replay = f"KUBE_SYNC_SEED={SEED} KUBE_SYNC_FAULTS={FAULTS}"
        msg = f"after fault {len(done)}, {done[-_COMPARE_EVERY:]}; {replay} replays it"
        raise AssertionError(msg) from error


async def _fault(  # noqa: C901, PLR0912 - one case a kind
    world: World, chance: random.Random, kind: str
) -> None:
    """Do one thing wrong while objects change; what lasts is taken back."""
    one, few = chance.choice((world.kube, world.opa)), chance.randrange(8)
    match kind:
        case "cut":
            one.outer.cut()
        case "cut at a byte":
            one.outer.after(chance.randrange(40_000), one.outer.cut)
        case "stall":
            one.outer.stall()
        case "delay":
            one.outer.delay = chance.random() / 20
        case "refuse":
            one.outer.refusing = True
            one.outer.cut()
        case "429" | "500" | "503":
            one.answer(reply(int(kind), *_retry_after(chance)), 1 + chance.randrange(3))
        case "410":
            world.kube.answer(reply(410), 1, b"watch=1")
        case "410 in the stream":
            world.kube.inner.inject(chance.choice((b"replicasets", b"clusters")), _EXPIRED)
        case "lost answer":
            one.inner.swallow(chance.choice((b"PATCH ", b"PUT ", b"GET ")), 1)
        case "wipe":
            await world.wipe_opa()
        case "wipe beside the epoch":
            await world.wipe_data()
        case "compact":
            await world.compact_etcd()
        case _:
            await _crash(world, kind, few)
    await world.objects.goes_on(few)
    if kind in {"stall", "delay", "refuse"}:
        one.calm()


def _retry_after(chance: random.Random) -> list[str]:
    return ["Retry-After: 1"] if chance.random() < 0.5 else []


async def _crash(world: World, kind: str, few: int) -> None:
    if kind != "kill the api server":
        await world.kill_opa()
    if kind == "kill opa":
        await world.objects.goes_on(few)
    else:
        await world.kill_apiserver()
        await world.start_apiserver()
    if not world.stack.opa.alive():
        await world.start_opa()
