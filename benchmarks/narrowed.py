"""`fields: auto` against whole objects: OPA's memory, and the first sync against its own floor.

The floor is one plain LIST and one PUT of what the demo's policy reads, by a bare client. Memory is
read after one load into a fresh OPA, and after three (the replicator was restarted twice): a load
replaces what is there in one transaction, and what OPA needed for that it keeps.
"""

from __future__ import annotations

import json
import time
from typing import Any

from benchmarks import world
from benchmarks.bare import REPLICA_SETS, Bare
from tools.demo.fleet import EU, PCI
from tools.servers.stack import RunningStack

_LOADS = 3


async def measure_narrowed(stack: RunningStack, bare: Bare, runs: int) -> dict[str, float]:
    """Load a fresh OPA with whole objects and with what is read, and by hand, in turns.

    The demo's policy and the clusters are those that the decisions were measured with.
    """
    memory: dict[str, list[float]] = {"all": [], "auto": []}
    lasting: dict[str, list[float]] = {"all": [], "auto": []}
    seconds: dict[str, list[float]] = {"all": [], "auto": []}
    floors = []
    for _ in range(runs):
        await world.fresh_opa(stack)
        floors.append(await _by_hand(bare))
        for fields in ("all", "auto"):
            await world.fresh_opa(stack)
            async with world.replicator(stack, {"fields": fields}) as server:
                begun = world.logged_at(server, "started")
                seconds[fields].append(world.logged_at(server, "opa_loaded") - begun)
                memory[fields].append(stack.opa.rss_bytes() / 1e6)
            for _ in range(_LOADS - 1):
                async with world.replicator(stack, {"fields": fields}):
                    lasting_now = stack.opa.rss_bytes() / 1e6
            lasting[fields].append(lasting_now)
    whole, auto = world.median(memory["all"]), world.median(memory["auto"])
    long_whole, long_auto = world.median(lasting["all"]), world.median(lasting["auto"])
    floor, synced = world.median(floors), world.median(seconds["auto"])
    return {
        "OPA's memory, whole objects (MB)": whole,
        "OPA's memory, what is read (MB)": auto,
        "OPA's memory, ratio": auto / whole,
        f"OPA's memory after {_LOADS} loads, whole objects (MB)": long_whole,
        f"OPA's memory after {_LOADS} loads, what is read (MB)": long_auto,
        f"OPA's memory after {_LOADS} loads, ratio": long_auto / long_whole,
        "first sync of what is read, floor (s)": floor,
        "first sync of what is read (s)": synced,
        "first sync of what is read, ratio": synced / floor,
        "first sync of whole objects (s)": world.median(seconds["all"]),
    }


async def _by_hand(bare: Bare) -> float:
    started = time.perf_counter()
    listed = await bare.kube("GET", REPLICA_SETS)
    listed_at = time.perf_counter()
    # Cutting out what is read is not part of the floor: only the bytes' way is.
    tree: dict[str, dict[str, Any]] = {}
    for item in json.loads(listed)["items"]:
        metadata = item["metadata"]
        kept = {key: metadata[key] for key in ("name", "namespace", "uid")}
        said = metadata.get("annotations", {})
        kept["annotations"] = {key: said[key] for key in (EU, PCI) if key in said}
        found = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": kept}
        tree.setdefault(metadata["namespace"], {})[metadata["name"]] = found
    body = json.dumps(tree).encode()
    put_at = time.perf_counter()
    await bare.put("kubernetes/replicasets", body)
    return listed_at - started + time.perf_counter() - put_at
