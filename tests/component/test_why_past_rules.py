"""Rules of a decision of the past, worked out by the pinned OPA from what was recorded."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from kube_sync.config import Settings
from kube_sync.decisions.decision import parse_decision
from kube_sync.decisions.input_reader import Basis
from kube_sync.inspect.why import command
from kube_sync.inspect.why.past import PastRequest
from kube_sync.kube.naming import reference
from kube_sync.ledger.bases import text_of_basis
from kube_sync.ledger.entries import Entry, text, text_of
from kube_sync.ledger.store import Store
from tests.fakes.ledgers import START, decided
from tests.unit.inspect.plan.fleets import PLACEMENT, POLICY, ZONE, preferences, zoned
from tools.servers.binaries import ensure_binary

MODULE = "kube-federation-scheduling-policy/placement/placement.rego"
INPUT = {
    "kind": "ReplicaSet",
    "metadata": {"name": "web", "namespace": "shop", "annotations": {ZONE: "eu"}},
}
CLUSTERS = {"fleet": {"c1": zoned("c1", "eu"), "c2": zoned("c2", "us")}}
BASIS = Basis(
    "kubernetes",
    "io/k8s/federation/admission",
    (),
    {},
    {"clusters": json.dumps(CLUSTERS).encode()},
    {},
    {},
)
LACKING = replace(BASIS, collections={}, lacks={"clusters": "it is too large"})


def recorded(path: Path, cluster: str, basis: Basis | None = BASIS) -> None:
    """Make a ledger in which `web` was put on a cluster by the recorded policy."""
    source, asked = text(POLICY.encode()), text_of(INPUT)
    over = [] if basis is None else [text_of_basis(basis)]
    listed = text_of({MODULE: source.digest})
    answer = json.dumps({"annotations": {PLACEMENT: preferences(cluster)}}).encode()
    body = text_of(parse_decision(answer))
    entry = msgspec.structs.replace(
        decided("")[0],
        new=body.digest,
        input=asked.digest,
        data="".join(one.digest for one in over),
    )
    policy = Entry(kind="policy", policy="p1", new=listed.digest)
    store = Store(path)
    store.append([(policy, [listed, source]), (entry, [body, asked, *over])], START)
    store.close()


async def told(path: Path) -> dict[str, object]:
    settings = msgspec.convert({"opa": {"binary": str(ensure_binary("opa"))}}, Settings)
    asked = PastRequest(str(path), reference("replicaset/web"), "shop", START, "json")
    found: dict[str, object] = json.loads((await command.run_past([asked], settings)).text)
    return found


async def test_rules_that_made_a_decision_are_told_with_what_they_read(tmp_path: Path) -> None:
    recorded(tmp_path / "l.db", "c1")
    found = await told(tmp_path / "l.db")
    rules = msgspec.convert(found["rules"], list[dict[str, object]])
    assert found["rules_failure"] is None
    assert {(r["file"], r["row"], r["applied"]) for r in rules} >= {(MODULE, 3, True)}
    inputs = msgspec.convert(found["inputs"], list[dict[str, object]])
    assert [one["value"] for one in inputs if ZONE in str(one["path"])] == ['"eu"']


@pytest.mark.parametrize(
    ("cluster", "basis", "complaint"),
    [
        ("c1", None, "not known: the data that was read is not recorded with row 2"),
        (
            "c1",
            LACKING,
            "not known: of what was read this is not recorded: clusters (it is too large)",
        ),
        ("c2", BASIS, "not known: of what was recorded another decision comes out now"),
    ],
)
async def test_rules_of_another_decision_are_not_told(
    tmp_path: Path, cluster: str, basis: Basis | None, complaint: str
) -> None:
    recorded(tmp_path / "l.db", cluster, basis)
    found = await told(tmp_path / "l.db")
    assert (found["rules"], found["rules_failure"]) == ([], complaint)
