from __future__ import annotations

import json
import random
from pathlib import PurePosixPath
from typing import Any, cast

import pytest

from benchmarks.bare import Bare
from tests.parts import quickly
from tools.soak.classes import churn
from tools.soak.classes.policies import BROKEN, EVERYWHERE, REGION, REGIONS, REV, TIER, TIERS

_REQUESTS = 3000


class Enough(Exception):
    """So many requests were made."""


class World:
    """What the API server holds, and what a policy that reads all of it decides."""

    def __init__(self) -> None:
        self.requests = 0
        self._found: dict[str, dict[str, dict[str, Any]]] = {}  # by resource and name
        self._now: dict[tuple[str, str], str] = {}
        self._gone: set[tuple[tuple[str, str], str]] = set()

    async def kube(self, method: str, path: str, body: Any, kind: str) -> bytes:
        assert method == "PATCH"
        if BROKEN in (body.get("data") or {}).values():
            return b""  # the version before it stays in force
        where = PurePosixPath(path.partition("?")[0].removesuffix("/status"))
        kept = self._found.setdefault(where.parent.name, {})
        metadata = body.get("metadata", {})
        if kind == "apply-patch+yaml":
            kept[where.name] = {"labels": metadata["labels"], "data": body.get("data")}
        kept[where.name]["labels"] |= metadata.get("labels", {})
        kept[where.name] |= {"status": body["status"]} if "status" in body else {}
        self._look()
        return b""

    async def answer(self, method: str, path: str) -> tuple[int, str]:
        assert method == "DELETE"
        where = PurePosixPath(path)
        del self._found[where.parent.name][where.name]
        self._look()
        return 200, ""

    def _look(self) -> None:
        """Fail if an answer has come back."""
        for region in REGIONS:
            for tier in TIERS:
                answer = self._answer(region, tier)
                key = (region, tier)
                if key in self._now and answer != self._now[key]:
                    self._gone.add((key, self._now[key]))
                assert (key, answer) not in self._gone
                self._now[key] = answer
        self.requests += 1
        if self.requests >= _REQUESTS:
            raise Enough

    def _answer(self, region: str, tier: str) -> str:
        clusters = self._found.get("clusterprofiles", {})
        objects = self._found.get("replicasets", {})
        read = [
            {n: _seen(c) for n, c in clusters.items() if _label(c, REGION) in (region, EVERYWHERE)},
            {n: _label(o, REV) for n, o in objects.items() if _label(o, TIER) == tier},
            {name: found["data"] for name, found in self._found.get("configmaps", {}).items()},
        ]
        return json.dumps(read, sort_keys=True)


def _label(found: dict[str, Any], name: str) -> str:
    return str(found["labels"][name])


def _seen(cluster: dict[str, Any]) -> list[Any]:
    return [_label(cluster, REV), cluster.get("status")]


@pytest.mark.parametrize("seed", quickly(1, range(5)))
async def test_no_answer_returns(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The witness takes an answer that OPA gave neither before nor after for a wrong one."""
    monkeypatch.setattr(churn, "_UNSHARED_SECONDS", 0.0)
    chance = random.Random(seed)  # noqa: S311 - not a secret
    changes = churn.Churn(cast("Bare", World()), chance, gap=1e-9)
    await changes.set_up()
    with pytest.raises(Enough):
        await changes.run()
    assert "cluster's region" in changes.counts
