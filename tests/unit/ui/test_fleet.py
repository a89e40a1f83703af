from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from kube_sync.errors import Retriable
from kube_sync.opa.paths import DataPath
from kube_sync.ui.fleet import MOST, FleetReader, fleet


class Opa:
    """Counts who asks."""

    def __init__(self) -> None:
        self.asked = 0
        self.failure: Exception | None = None
        self.document: Any = {"fleet": {"c": {"metadata": {"name": "c"}}}}

    async def get_data(self, path: DataPath) -> bytes | None:
        assert path == ("kubernetes", "clusters")
        self.asked += 1
        await asyncio.sleep(0)
        if self.failure is not None:
            raise self.failure
        return None if self.document is None else json.dumps(self.document).encode()


async def test_many_readers_ask_once_and_again_when_it_is_old() -> None:
    now = [100.0]
    opa = Opa()
    reader = FleetReader(opa, "kubernetes", lambda: now[0])
    found = await asyncio.gather(*(reader.read() for _ in range(5)))
    assert (opa.asked, {one.clusters[0].name for one in found}) == (1, {"c"})
    now[0] += 3
    opa.document = None
    assert ((await reader.read()).clusters, opa.asked) == ((), 2)


async def test_last_fleet_stands_while_opa_does_not_answer() -> None:
    now = [100.0]
    opa = Opa()
    reader = FleetReader(opa, "kubernetes", lambda: now[0])
    opa.failure = Retriable("away")
    assert await reader.read() == fleet(b"{}").__class__(failure="away")
    now[0] += 3
    opa.failure = None
    assert (await reader.read()).failure is None
    now[0] += 3
    opa.failure = Retriable("away")
    found = await reader.read()
    assert (found.clusters[0].name, found.failure) == ("c", "away")


@pytest.mark.parametrize("odd", [b"1", b"[]", b'{"a":1}', b'{"a":{"metadata":1}}', b"[[[", b'""'])
def test_odd_documents_are_no_clusters(odd: bytes) -> None:
    assert fleet(odd).clusters == ()


def test_clusters_without_namespaces_are_found_and_values_are_bounded() -> None:
    labels = {f"l{number}": "x" * 1000 for number in range(100)}
    one = {"metadata": {"name": "c", "labels": labels | {"n": 1}}, "status": {"properties": 1}}
    (found,) = fleet(json.dumps({"c": one}).encode()).clusters
    assert (found.name, len(found.labels), len(found.labels["l0"])) == ("c", 64, 256)


def test_more_clusters_than_are_shown_are_counted() -> None:
    many = {f"c{n:05}": {"metadata": {"name": f"c{n:05}"}} for n in range(MOST + 7)}
    found = fleet(json.dumps(many).encode())
    assert (len(found.clusters), found.left_out) == (MOST, 7)
