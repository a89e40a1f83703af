"""What the page asks for, over HTTP and without a browser."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import AsyncGenerator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from kube_sync.decisions.canary import Canary
from kube_sync.errors import Retriable
from kube_sync.opa.analysis.result import Document, FieldRead, Reads
from kube_sync.opa.sides import Side
from kube_sync.ui.remediator_client import RemediatorStatus
from tests.fakes.board import DECISION, POLICY, PREFERENCES, Board, served_board


class Client:
    """Asks, with or without a token."""

    def __init__(self, session: aiohttp.ClientSession, board: Board) -> None:
        self._session = session
        self._origin = f"http://127.0.0.1:{board.port}"

    async def get(
        self, path: str, headers: Mapping[str, str] | None = None, status: int = 200
    ) -> Any:
        """Return the JSON, or the text of what is no success."""
        async with self._session.get(
            self._origin + path, headers=headers, allow_redirects=False
        ) as response:
            text = await response.text()
            assert response.status == status, text
            self.headers = response.headers
            return json.loads(text) if response.content_type == "application/json" else text


@pytest.fixture
async def board() -> AsyncGenerator[Board]:
    board = Board()
    board.add_clusters(["c1", "c2"], region="eu")
    async with served_board(board):
        board.decide("web", {"c1": 1})
        yield board


@pytest.fixture
async def client(board: Board) -> AsyncGenerator[Client]:
    async with aiohttp.ClientSession() as session:
        yield Client(session, board)


def _story(name: str = "web", **others: str) -> str:
    asked = {"resource": "replicasets.v1.apps", "namespace": "shop", "name": name} | others
    return "/v1/board/story?" + "&".join(f"{key}={value}" for key, value in asked.items())


async def test_page_is_what_its_policy_allows_and_asks_nobody_else(client: Client) -> None:
    text = await client.get("/ui")
    policy = client.headers["Content-Security-Policy"]
    (script,) = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}';" in policy
    for part in ("default-src 'none'", "frame-ancestors 'none'", "base-uri 'none'"):
        assert part in policy
    assert "unsafe" not in policy
    assert client.headers["X-Content-Type-Options"] == "nosniff"
    assert client.headers["Referrer-Policy"] == "no-referrer"
    assert client.headers["Cache-Control"] == "no-store"
    assert not re.search(r"https?://|innerHTML|insertAdjacent|document\.write|eval\(", text)


@pytest.mark.parametrize("path", ["/", "/ui/"])
async def test_neighbouring_addresses_lead_to_the_page(client: Client, path: str) -> None:
    await client.get(path, status=308)
    assert client.headers["Location"] == "/ui"


async def test_page_needs_no_token_and_all_else_does(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("secret")
    board = Board(str(file))
    right = {"Authorization": "Bearer secret", "Host": "replicator.example"}
    async with served_board(board), aiohttp.ClientSession() as session:
        client = Client(session, board)
        await client.get("/ui")
        for name in ("fleet", "health", "held", "history"):
            await client.get(f"/v1/board/{name}", status=401)
            await client.get(f"/v1/board/{name}", headers=right)
        for path in (_story(), "/ui/../v1/board/fleet", "/ui/x", "/nothing", "/ui%2f..%2fv1"):
            await client.get(path, status=401)
        await client.get("/v1/board/fleet", {"Authorization": "Bearer wrong"}, status=401)


async def test_rebound_name_gets_nothing_where_no_token_is_asked_for(client: Client) -> None:
    for path in ("/ui", "/v1/board/fleet", "/v1/decisions/io/k8s/federation/admission"):
        said = await client.get(path, {"Host": "evil.example"}, status=403)
        assert "decisions.token_file" in said
        await client.get(path, {"Sec-Fetch-Site": "cross-site"}, status=403)


async def test_fleet_has_names_labels_and_attributes(board: Board, client: Client) -> None:
    board.clusters["fleet"]["c1"]["spec"] = {"displayName": "One", "clusterManager": {"name": "m"}}
    board.clusters["fleet"]["c1"]["status"] = {
        "version": {"kubernetes": "1.36"},
        "properties": [{"name": "cpu", "value": "9"}, {"value": "x"}, "odd"],
        "conditions": [{"type": "Healthy", "status": "True"}],
        "secret": "not told",
    }
    found = await client.get("/v1/board/fleet")
    assert found["stream"] == "/v1/decisions/io/k8s/federation/admission"
    assert found["placements"][PREFERENCES] == "preferences"
    first, second = found["fleet"]["clusters"]
    assert (first["name"], first["namespace"], first["labels"]) == ("c1", "fleet", {"region": "eu"})
    assert first["attributes"] == {
        "displayName": "One",
        "clusterManager": "m",
        "kubernetes": "1.36",
        "cpu": "9",
        "Healthy": "True",
    }
    assert (second["name"], second["attributes"]) == ("c2", {})


async def test_history_is_read_on(board: Board, client: Client) -> None:
    board.decide("web", {"c2": 1}, cause="data")
    found = await client.get("/v1/board/history")
    (change,) = found["changes"]
    assert (change["object"]["name"], change["cause"], found["more"]) == ("web", "data", False)
    assert (await client.get(f"/v1/board/history?since={found['upto']}"))["changes"] == []
    for wrong in ("-1", "x", "1" * 19, "%C2%B2"):
        await client.get(f"/v1/board/history?since={wrong}", status=400)


async def test_story_has_inputs_rules_history_and_what_waits(board: Board, client: Client) -> None:
    mine = {"resource": "replicasets.v1.apps", "namespace": "shop", "name": "web", "kind": "pace"}
    board.held = RemediatorStatus({"waiting": [mine, mine | {"name": "other"}, "odd"]})
    board.explanation = [f"{POLICY}:3 | Exit data.io.k8s.federation.admission.annotations"]
    board.result = {"annotations": {"other": "answer"}}
    story = await client.get(_story())
    assert story["record"]["object"]["name"] == "web"
    assert [(one["path"], one["value"]) for one in story["inputs"]] == [
        ("kind", '"ReplicaSet"'),
        ("metadata.labels.team", '"blue"'),
    ]
    assert [(one["row"], one["applied"]) for one in story["rules"]] == [(3, True)]
    assert story["waiting"] == [mine]
    assert story["decided_otherwise"]
    assert (story["history"], story["history_cut"]) == ([], False)
    board.result = {"annotations": dict(board.hub.records.popitem()[1].decision.annotations)}  # type: ignore[union-attr]
    assert not (await client.get(_story()))["decided_otherwise"]


async def test_story_of_what_a_canary_decides_is_told_by_its_rules_and_reads(
    board: Board, client: Client
) -> None:
    own, source = "policies/placement-candidate/policy.rego", "package p\n\nannotations := {}\n"
    reads = Reads(Document((FieldRead(("kind",), whole=False, asked=()),), used=True), {}, (), {})
    board.policies.canary = Canary(
        Side("policies/placement", "0", frozenset({"shop"})), "c", reads, {own: source}
    )
    board.asked = f"kube_sync_stage/canary/{DECISION}"
    moved = "kube_sync_stage/canary/policies__placement-candidate__policy.rego"
    board.explanation = [f"{moved}:3 | Exit data.kube_sync_stage.canary.p.annotations"]
    story = await client.get(_story())
    assert story["canary"] == {
        "stands_for": "policies/placement",
        "share": "0",
        "namespaces": ["shop"],
        "told": "all in shop",
    }
    (rule,) = story["rules"]
    assert (rule["file"], rule["name"], rule["text"]) == (own, "p.annotations", "annotations := {}")
    assert [one["path"] for one in story["inputs"]] == ["kind"]
    board.policies.canary = replace(board.policies.canary, side=Side("policies/placement"))
    board.asked, board.explanation = DECISION, []
    story = await client.get(_story())
    assert (story["canary"], len(story["inputs"])) == (None, 2)


async def test_part_of_a_story_that_is_not_there_says_why(board: Board, client: Client) -> None:
    board.objects.clear()
    board.held = RemediatorStatus(failure="nobody answers")
    story = await client.get(_story())
    assert story["inputs_failure"] == "OPA does not hold it"
    assert story["rules_failure"] == "there is nothing to ask about"
    assert story["waiting_failure"] == "nobody answers"
    board.decide("web", {"c2": 1}, cause="data")
    board.policies.reads = None
    assert "no policies are in force" in (await client.get(_story()))["inputs_failure"]
    story = {**(await client.get(_story()))}
    assert story["rules_failure"] is None
    board.objects["kubernetes", "replicasets", "shop", "web"] = {"metadata": {"annotations": 1}}
    board.policies.reads = Board().policies.reads
    assert (await client.get(_story()))["inputs"][0]["value"] is None
    board.objects["kubernetes", "replicasets", "shop", "web"] = ["odd"]
    assert (await client.get(_story()))["inputs_failure"] == "the object cannot be read"
    board.failing = Retriable("OPA is away")
    assert (await client.get(_story()))["inputs_failure"] == "OPA is away"
    board.targets = ()
    assert "not about this resource" in (await client.get(_story()))["inputs_failure"]


async def test_story_of_what_is_gone_is_its_history(board: Board, client: Client) -> None:
    board.hub.delete(next(iter(board.hub.records)))
    story = await client.get(_story())
    assert (story["record"], story["history"][0]["gone"]) == (None, True)


@pytest.mark.parametrize(
    ("path", "status"),
    [
        (_story("nobody"), 404),
        (_story(resource="replicasets.v1"), 404),
        (_story(resource="replicasets"), 400),
        (_story(name=""), 400),
        (_story(name="x" * 600), 400),
        ("/v1/board/story", 400),
    ],
)
async def test_story_of_nothing_is_none(client: Client, path: str, status: int) -> None:
    await client.get(path, status=status)


async def test_health_tells_collections_policies_and_what_is_not_ready(
    board: Board, client: Client
) -> None:
    board.collections[0].pending, board.collections[0].pending_seconds = 2, 1.23456
    board.policies.rejected = {"policies/b": "why"}
    board.policies.warned = {"policies/a": ["a.rego:3: unknown_rule: it has none"]}
    board.readiness.waiting("data", "loading")
    board.hub.hold("x", "held back")
    board.hub.freshness.report("clusters", "503")
    found = await client.get("/v1/board/health")
    assert found["waiting"] == {"data": "loading"}
    assert found["held"] == ["held back"]
    assert found["stale"][0]["source"] == "clusters"
    assert found["collections"][0]["lag_seconds"] == 1.235
    assert found["policies"]["modules"] == [POLICY]
    assert found["policies"]["rejected"] == [{"name": "policies/b", "error": "why"}]
    assert found["policies"]["warned"] == [
        {"name": "policies/a", "warnings": ["a.rego:3: unknown_rule: it has none"]}
    ]
    assert await client.get("/v1/board/held") == {
        "status": {"v": 1, "active": True, "held": [], "limits": {}, "waiting": []},
        "failure": None,
    }
