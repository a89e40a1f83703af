"""The page in a real browser, on a hub that the test fills. Screenshots stay in build/screenshots.

Frames are compared with those of an empty page in the same browser, never with a clock: machines
differ.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from kube_sync.decisions.canary import Canary
from kube_sync.decisions.records import Source
from kube_sync.opa.sides import Side
from kube_sync.ui.remediator_client import RemediatorStatus
from tests.fakes.board import POLICY, PREFERENCES, Board, served_board
from tests.fakes.browser import Page, tab

SCREENSHOTS = Path(__file__).resolve().parents[2] / "build/screenshots"
HOSTILE = '<img src=x onerror="document.title=1">'


@pytest.fixture
def browser_address(chromium: str | None) -> str:
    if chromium is None:
        pytest.skip("there is no browser")
    return chromium


@asynccontextmanager
async def _shown(browser_address: str, board: Board, fragment: str = "") -> AsyncGenerator[Page]:
    """Yield the page, once it is live; it must not complain of anything."""
    async with served_board(board), tab(browser_address) as page:
        await page.open(board.url + fragment)
        await page.until('document.getElementById("state")?.dataset.state === "live"')
        yield page
        assert page.troubles == []
        own = f"http://127.0.0.1:{board.port}/"
        assert [url for url in page.requests if not url.startswith(own)] == []


def _fleet(workloads: int = 40, clusters: int = 5) -> Board:
    board = Board()
    names = [f"cluster-{number:02}" for number in range(clusters)]
    board.add_clusters(names, region="europe-1")
    for number in range(workloads):
        first, second = names[number % clusters], names[(number * 3 + 1) % clusters]
        weights = {first: 3, second: 1} if first != second else {first: 1}
        board.decide(f"app-{number:05}", weights)
    return board


def _rows(*, also: str = "") -> str:
    return (
        '[...document.querySelectorAll("#names .name:not([hidden])")]'
        f'.map((name) => name.querySelector("span").textContent){also}'
    )


def _in(element: str, text: str) -> str:
    return f"document.getElementById({json.dumps(element)}).innerText.includes({json.dumps(text)})"


async def test_board_shows_workloads_by_clusters_with_weights(browser_address: str) -> None:
    board = _fleet()
    async with _shown(browser_address, board) as page:
        await page.until(_rows(also=".length > 10"))
        first = "document.querySelector(\"#canvas .row[data-row='1']\")"
        cells = f'[...{first}.querySelectorAll(".cell:not([hidden])")]'
        shown = await page.run(f"{cells}.map((cell) => [cell.dataset.column, cell.textContent])")
        assert shown == [["1", "375%"], ["2", "125%"]]
        heads = await page.run('document.getElementById("head").innerText')
        assert "cluster-04" in heads
        assert "workloads" in heads
        await page.prefer("light")
        light = await page.shoot(SCREENSHOTS / "board-light.png")
        await page.prefer("dark")
        await page.until('document.documentElement.dataset.theme === "dark"')
        dark = await page.shoot(SCREENSHOTS / "board-dark.png")
        assert light != dark
        await page.press("t")
        assert await page.run("document.documentElement.dataset.theme") == "light"


async def test_change_is_seen_on_the_board_and_among_the_changes(browser_address: str) -> None:
    board = _fleet(3, 2)
    async with _shown(browser_address, board) as page:
        source = Source("clusters", "fleet/cluster-00")
        board.decide("app-00000", {"cluster-01": 1}, cause="data", source=source)
        await page.until('document.querySelector(".name.fresh")?.innerText.includes("app-00000")')
        await page.press("2")
        await page.until(_in("changes", "cluster-00=3, cluster-01=1 → cluster-01"))
        await page.until(_in("changes", "data: clusters fleet/cluster-00"))
        board.hub.delete(board.decide("app-00001", {"cluster-00": 1}, cause="object"))
        await page.until(_in("changes", "→ gone"))
        await page.shoot(SCREENSHOTS / "changes.png")


async def test_search_finds_by_name_cluster_and_kind_and_escape_clears_it(
    browser_address: str,
) -> None:
    board = _fleet(60)
    board.decide("refused-one", None, errors=("not in the EU",))
    async with _shown(browser_address, board) as page:
        await page.press("/")
        assert await page.run("document.activeElement.id") == "search"
        await page.type("app-00017")
        await page.until(_rows(also='.join() === "shop/app-00017"'))
        await page.press("Escape")
        await page.until(_rows(also=".length > 10"))
        await page.type("is:refused")
        await page.until(_rows(also='.join() === "shop/refused-one"'))
        await page.press("Escape")
        await page.type("on:cluster-03 app-0000")
        await page.until(_rows(also=".length === 4"))
        await page.press("Escape", "Escape")
        assert await page.run("document.activeElement.id") == "grid"


async def test_story_of_a_workload_is_told_by_keyboard_alone(browser_address: str) -> None:
    board = _fleet(20, 3)
    board.decide("app-00003", {"cluster-02": 1}, cause="object")
    board.result = {"annotations": {PREFERENCES: {"clusters": {"cluster-02": {"weight": 1}}}}}
    board.explanation = [
        f"{POLICY}:3     | Enter data.io.k8s.federation.admission.annotations",
        f"{POLICY}:3     | Exit data.io.k8s.federation.admission.annotations",
    ]
    change = {PREFERENCES: {"is": "old", "wanted": "new"}}
    waiting = {
        "resource": "replicasets.v1.apps",
        "namespace": "shop",
        "name": "app-00003",
        "kind": "pace",
        "reason": "too many moves",
        "release": "time",
        "changes": change,
    }
    board.held = RemediatorStatus(
        {"v": 1, "active": True, "held": [], "limits": {}, "waiting": [waiting]}
    )
    async with _shown(browser_address, board) as page:
        await page.until(_rows(also=".length > 10"))
        await page.press("/", "Escape")
        await page.press("Home", control=True)
        await page.press("ArrowDown", "ArrowDown", "ArrowDown")
        marked = 'document.getElementById("grid").getAttribute("aria-activedescendant")'
        active = f"document.getElementById({marked})"
        await page.until(f'{active}?.innerText.includes("app-00003")')
        await page.press("Enter")
        for text in (
            "shop/app-00003",
            "cluster-02",
            f"{POLICY}:3",
            'annotations["x"] := 1 if input.kind',
            "metadata.labels.team",
            '"blue"',
            "too many moves",
        ):
            await page.until(_in("panel", text))
        await page.until('document.querySelector(".tag")?.innerText === "held"')
        assert "moving" not in await page.run('document.getElementById("panel").innerText')
        await page.shoot(SCREENSHOTS / "story.png")
        await page.press("Escape")
        assert await page.run('document.getElementById("panel").hidden')
        assert await page.run("document.activeElement.id") == "grid"
        reads = board.policies.reads
        assert reads is not None
        side = Side("policies/placement", "0", frozenset({"shop"}))
        board.policies.canary = Canary(side, "c", reads, board.policies.in_force)
        board.asked = f"kube_sync_stage/canary/{board.asked}"
        await page.press("Enter")
        told = "One that stands for policies/placement decides on it, and on all in shop."
        await page.until(_in("panel", told))
        await page.press("3")
        await page.until(_in("held", "too many moves"))
        await page.shoot(SCREENSHOTS / "held.png")


async def test_health_tells_lag_and_rejected_policies(browser_address: str) -> None:
    board = _fleet(3, 2)
    board.collections[1].pending, board.collections[1].pending_seconds = 7, 2.5
    board.policies.rejected = {"policies/broken": "policy.rego:3: unexpected } token"}
    board.policies.warned = {"policies/odd": ["a.rego:3: unknown_rule: a decision has none"]}
    board.readiness.waiting("data", "replicasets: is being loaded")
    async with _shown(browser_address, board) as page:
        await page.press("4")
        for text in (
            "2.5 s",
            "policies/broken",
            "unexpected } token",
            "is being loaded",
            "policies/odd",
            "unknown_rule",
            POLICY,
        ):
            await page.until(_in("health", text))
        await page.shoot(SCREENSHOTS / "health.png")


async def test_lost_stream_is_said_and_resumed_where_it_was(browser_address: str) -> None:
    board = _fleet(3, 2)
    async with tab(browser_address) as page:
        async with served_board(board):
            await page.open(board.url)
            await page.until('document.getElementById("state")?.dataset.state === "live"')
        await page.until('document.getElementById("state").dataset.state === "lost"')
        await page.until(_in("banner", "stream is lost"))
        await page.shoot(SCREENSHOTS / "lost.png")
        seq = board.hub.seq
        board.decide("app-00002", {"cluster-00": 9, "cluster-01": 1}, cause="data")
        page.requests.clear()
        async with served_board(board):
            await page.until('document.getElementById("state").dataset.state === "live"')
            await page.until(_in("grid", "90%"))
            assert any(url.endswith(f"since=5f0c%3A{seq}") for url in page.requests)
            assert await page.run('document.getElementById("banner").hidden')


async def test_stream_that_is_silent_for_long_is_lost(browser_address: str) -> None:
    async with served_board(_fleet(3, 2)) as board, tab(browser_address) as page:
        await page.before(
            "const later = window.setTimeout;"
            "window.setTimeout = (f, ms) => later(f, ms === 30000 ? 300 : ms);"
        )
        await page.open(board.url)
        await page.until(_in("banner", "it was silent for 30 s"))
        await page.until(_rows(also=".length === 3"))


async def test_replicator_of_another_version_is_no_longer_believed(browser_address: str) -> None:
    async with served_board(_fleet(3, 2)) as board, tab(browser_address) as page:
        await page.before(
            "const parse = JSON.parse;"
            "JSON.parse = (text) =>"
            " ({ ...parse(text), ...(text.includes('bookmark') && { v: 2 }) });"
        )
        await page.open(board.url)
        await page.until('document.getElementById("state").dataset.state === "stopped"')
        await page.until(_in("banner", "another version"))


async def test_keyboard_reaches_every_view_and_the_clusters(browser_address: str) -> None:
    board = _fleet(20, 30)
    async with _shown(browser_address, board) as page:
        await page.until(_rows(also=".length > 10"))
        await page.run('document.getElementById("tab-board").focus()')
        for name in ("changes", "held", "health", "board"):
            await page.press("ArrowRight")
            assert await page.run("document.activeElement.dataset.view") == name
            assert await page.run(f'document.getElementById("{name}").hidden') is False
        await page.press("/", "Escape")
        await page.press("Home", control=True)
        await page.press("End", "ArrowUp")
        active = 'document.getElementById("grid").getAttribute("aria-activedescendant")'
        await page.until(f'{active} === "c-30"')
        await page.press("Enter")
        await page.until(_in("panel", "region"))
        assert await page.run('document.getElementById("panel-title").innerText') == "cluster-29"
        await page.press("Enter")  # on its button to close
        assert await page.run('document.getElementById("panel").hidden')
        await page.press("ArrowDown", "PageDown", "Home")
        await page.until(f'{active}.startsWith("r-")')
        await page.press("?")
        assert await page.run('document.getElementById("keys").open')
        await page.press("Escape")
        assert not await page.run('document.getElementById("keys").open')


async def test_replicator_that_began_again_is_followed_from_the_start(browser_address: str) -> None:
    board = _fleet(3, 2)
    async with tab(browser_address) as page:
        async with served_board(board):
            await page.open(board.url)
            await page.until(_rows(also=".length === 3"))
            board.decide("app-00000", {"cluster-01": 7}, cause="object")
            await page.press("2")
            await page.until(_in("changes", "app-00000"))
        other = Board()
        other.hub.instance, other.port = "another", board.port
        other.decide("only-one", {"cluster-00": 1})
        async with served_board(other):
            await page.until('document.getElementById("state").dataset.state === "live"')
            other.decide("only-one", {"cluster-09": 1}, cause="object")
            await page.until(_in("changes", "only-one"))
            assert "app-00000" not in await page.run("document.body.innerText")
            await page.press("1")
            await page.until(_rows(also='.join() === "shop/only-one"'))


async def test_token_is_asked_for_and_leaves_the_address_at_once(
    browser_address: str, tmp_path: Path
) -> None:
    file = tmp_path / "token"
    file.write_text("s3cret")
    board = Board(str(file))
    board.decide("app", {"c": 1})
    async with served_board(board), tab(browser_address) as page:
        await page.open(board.url)
        await page.until('document.getElementById("ask")?.open')
        await page.until(_in("grid", "not known yet"))
        await page.shoot(SCREENSHOTS / "token.png")
        await page.type("wrong")
        await page.press("Enter")
        await page.until(_in("ask", "not accepted"))
        await page.type("s3cret")
        await page.press("Enter")
        await page.until(_rows(also='.join() === "shop/app"'))
        assert all("s3cret" not in url for url in page.requests)
    async with served_board(board), tab(browser_address) as page:
        await page.open(board.url + "#token=s3cret")
        await page.until(_rows(also='.join() === "shop/app"'))
        assert await page.run("location.href") == board.url
        assert await page.run("localStorage.length") == 0
        assert await page.run("document.cookie") == ""


async def test_hostile_names_are_text(browser_address: str) -> None:
    board = Board()
    names = [HOSTILE, "constructor", "__proto__", "</script><script>document.title=1</script>"]
    board.add_clusters(names, label=HOSTILE)
    board.decide(HOSTILE, dict.fromkeys(names, 1), namespace="javascript:alert(1)")
    board.decide("bad", {"c": HOSTILE}, errors=(HOSTILE,))
    board.explanation = [f"{POLICY}:3 | Exit data.x[{json.dumps(HOSTILE)}]"]
    board.hub.note("x", HOSTILE)
    async with _shown(browser_address, board) as page:
        await page.until(_in("grid", HOSTILE))
        await page.until(_in("banner", HOSTILE))
        await page.press("/", "Escape")
        await page.press("Home", control=True)
        await page.press("ArrowDown", "Enter")
        await page.until(_in("panel", HOSTILE))
        await page.press("Escape", "2")
        board.decide("bad", {HOSTILE: 1}, cause=HOSTILE)
        await page.until(_in("changes", HOSTILE))
        assert await page.run("document.title") == "kube-sync"
        assert await page.run('document.querySelectorAll("img, iframe, object").length') == 0
        assert await page.run('document.querySelectorAll("script").length') == 1
        made = await page.run(
            'Promise.resolve().then(() => { document.body.innerHTML = "<b>x</b>"; return "made"; })'
            ".catch((error) => error.name)"
        )
        assert made == "TypeError"
        page.troubles.clear()  # of this one


_FRAMES = """
(async () => {
  const times = [];
  const scroller = document.getElementById("grid") || document.scrollingElement;
  let last = await new Promise(requestAnimationFrame), place = 0;
  for (let i = 0; i < 60; i++) {
    scroller.scrollTop = (place += 240);
    const now = await new Promise(requestAnimationFrame);
    times.push(now - last);
    last = now;
  }
  times.sort((a, b) => a - b);
  return times[Math.floor(times.length / 2)];
})()
"""


@pytest.mark.slow
async def test_ten_thousand_workloads_scroll_and_change_as_an_empty_page(
    browser_address: str,
) -> None:
    async with tab(browser_address) as page:
        await page.open("about:blank")
        floor = await page.run(_FRAMES)
    board = _fleet(10_000, 20)
    async with _shown(browser_address, board) as page:
        await page.until(
            'document.getElementById("grid").getAttribute("aria-rowcount") === "10001"'
        )
        still = min([await page.run(_FRAMES) for _ in range(2)])
        for number in range(1_000):
            board.decide(f"app-{number:05}", {"cluster-07": number + 2}, cause="data")
        changing = await page.run(_FRAMES)
        assert await page.run('document.querySelectorAll("#canvas .row").length') < 100
        await page.press("/")
        await page.type("app-09999")
        await page.until(_rows(also='.join() === "shop/app-09999"'))
        await page.press("Escape")
        await page.shoot(SCREENSHOTS / "ten-thousand.png")
    told = f"frames: {floor:.1f} ms empty, {still:.1f} ms scrolling, {changing:.1f} ms changing"
    assert still < 3 * floor, told
    assert changing < 4 * floor, told
