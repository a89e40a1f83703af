from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from kube_sync.cli import labelled as labels
from kube_sync.cli.remediate import declare, table
from kube_sync.config import Remediate, Settings
from kube_sync.decisions.records import Budget, StatusRecord
from kube_sync.errors import Retriable, SyncError, Terminal
from kube_sync.objects import ObjectKey
from kube_sync.remediation.statuspage import APPLY, STATUS, status_app
from kube_sync.runtime.httpserver import serving
from kube_sync.runtime.tokenfile import TokenFile
from tests.unit.remediation.test_reconciler import ApiServer, World, _decision

TOKEN = "secret"
ONE: dict[str, Any] = {
    "namespace": "ns",
    "name": "a",
    "kind": "manual",
    "reason": "remediation is manual here",
    "release": "kube-sync remediate apply ns/a",
    "changes": {"place": {"is": "us", "wanted": "eu"}, "z": {"is": None, "wanted": None}},
}


@pytest.fixture
async def world() -> AsyncGenerator[World]:
    world = World(ApiServer(a="us", b="us"), "manual")
    async with world.running():
        world.stream(_decision("a", "eu"), _decision("b", "eu"))
        await world.idle()
        yield world


class Page:
    def __init__(self, port: int, token_file: Path) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.settings = Settings(
            remediate=Remediate(listen=f"0.0.0.0:{port}", token_file=str(token_file))
        )

    async def get(self, token: str = TOKEN) -> tuple[int, Any]:
        headers = {"Authorization": f"Bearer {token}"}
        async with (
            aiohttp.ClientSession(headers=headers) as session,
            session.get(self.url + STATUS) as response,
        ):
            return response.status, await response.json() if response.status == 200 else None

    async def post(self, body: str, **headers: str) -> int:
        sent = {"Authorization": "Bearer secret", "Content-Type": "application/json", **headers}
        async with (
            aiohttp.ClientSession(headers=sent) as session,
            session.post(self.url + APPLY, data=body) as response,
        ):
            return response.status

    async def ask(self, *words: str) -> str:
        """Do as the command line does."""
        parser = argparse.ArgumentParser()
        declare(parser)
        arguments = parser.parse_args(words)

        said: str = await asyncio.to_thread(arguments.ask, arguments, self.settings)
        return said


@pytest.fixture
async def page(world: World, tmp_path: Path) -> AsyncGenerator[Page]:
    file = tmp_path / "token"
    file.write_text("secret")
    app = status_app(world.reconciler, TokenFile(str(file)))
    async with serving(app, ("127.0.0.1", 0), grace=0.05) as port:
        yield Page(port, file)


async def test_the_status_says_what_is_held_and_what_releases_it(page: Page) -> None:
    code, found = await page.get()
    assert (code, found["active"], found["held"]) == (200, True, [])
    first = found["waiting"][0]
    assert {key: first[key] for key in ("namespace", "name", "uid", "kind", "approve")} == {
        "namespace": "ns",
        "name": "a",
        "uid": "u",
        "kind": "manual",
        "approve": None,
    }
    assert first["changes"] == {"place": {"is": "us", "wanted": "eu"}}
    assert first["release"] == "kube-sync remediate apply a -n ns"


@pytest.mark.parametrize("token", ["", "wrong", "\udcff"])
async def test_nobody_without_the_token_sees_what_runs_where(page: Page, token: str) -> None:
    assert (await page.get(token))[0] == 401


@pytest.mark.parametrize("body", ["", "[]", '{"everything": true}'])
async def test_what_is_not_understood_lets_nothing_through(
    page: Page, world: World, body: str
) -> None:
    assert await page.post(body) == 400
    assert world.waits() == {"a": "manual", "b": "manual"}


@pytest.fixture
async def open_page(world: World, tmp_path: Path) -> AsyncGenerator[Page]:
    """The page of a remediator that asks for no token."""
    app = status_app(world.reconciler, TokenFile(None))
    async with serving(app, ("127.0.0.1", 0), grace=0.05) as port:
        yield Page(port, tmp_path / "none")


ALL = '{"all": true}'
FORMS = ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "")


@pytest.mark.parametrize("kind", FORMS)
async def test_body_that_a_form_can_send_moves_nothing(
    page: Page, open_page: Page, world: World, kind: str
) -> None:
    for one in (page, open_page):
        assert await one.post(ALL, **{"Content-Type": kind}) == 415
    assert world.waits() == {"a": "manual", "b": "manual"}


@pytest.mark.parametrize(
    "sent",
    [
        {"Origin": "https://evil"},
        {"Origin": "null"},
        {"Origin": "https://evil", "Sec-Fetch-Mode": "navigate"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Host": "evil.example", "Origin": "http://evil.example"},
    ],
)
async def test_page_of_another_origin_moves_nothing(
    open_page: Page, world: World, sent: dict[str, str]
) -> None:
    assert await open_page.post(ALL, **sent) == 403
    assert world.waits() == {"a": "manual", "b": "manual"}


async def test_page_of_another_origin_moves_nothing_with_a_token_either(
    page: Page, world: World
) -> None:
    assert await page.post(ALL, Origin="https://evil") == 403
    assert world.waits() == {"a": "manual", "b": "manual"}


async def test_name_that_was_rebound_reads_nothing_without_a_token(open_page: Page) -> None:
    headers = {"Host": "evil.example"}
    async with (
        aiohttp.ClientSession(headers=headers) as session,
        session.get(open_page.url + STATUS) as response,
    ):
        assert response.status == 403
        assert "remediate.token_file" in await response.text()
    assert (await open_page.get())[0] == 200


async def test_program_on_this_machine_may_apply_without_a_token(
    open_page: Page, world: World
) -> None:
    assert await open_page.post(ALL, **{"Content-Type": "application/json; charset=utf-8"}) == 200
    await world.idle()
    assert world.waits() == {}


@pytest.mark.parametrize(
    "named", ["a -n ns", "ns/a", "rs a -n ns", "rs/ns/a", "replicasets.apps/a"]
)
async def test_one_that_is_named_is_let_through(page: Page, world: World, named: str) -> None:
    assert await page.ask("apply", *named.split()) == "ns/a: let through"
    await world.idle()
    assert (world.server.patched, world.waits()) == (["a"], {"b": "manual"})


async def test_those_with_a_label_are_let_through(
    page: Page, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = frozenset([("apps", "replicasets", ObjectKey("ns", "a"))])
    monkeypatch.setattr(labels, "labelled", lambda *_: found)
    with pytest.raises(Terminal, match="nothing of that name waits"):
        await page.ask("apply", "ns/b", "-l", "team=a")
    assert await page.ask("apply", "-l", "team=a") == "ns/a: let through"
    await world.idle()
    assert world.waits() == {"b": "manual"}


async def test_all_of_a_namespace_are_let_through(page: Page, world: World) -> None:
    with pytest.raises(Terminal, match="nothing waits"):
        await page.ask("apply", "--all", "-n", "other")
    assert await page.ask("apply", "--all") == "ns/a: let through\nns/b: let through"
    await world.idle()
    assert world.waits() == {}


async def test_a_remediator_that_may_not_write_lets_nothing_through(
    page: Page, world: World
) -> None:
    world.left = 0.0
    for what in ("ns/a", "--all"):
        with pytest.raises(Terminal, match=r"^another remediator is active"):
            await page.ask("apply", what)
    assert "nothing is written: another remediator is active" in await page.ask("status")


async def test_the_status_comes_as_a_table_or_whole(page: Page) -> None:
    assert "place=us" in await page.ask("status")
    assert json.loads(await page.ask("status", "--json", "--url", page.url))["v"] == 1
    assert await page.ask("status", "-o", "json") == await page.ask("status", "--json")
    head, first, *_ = (await page.ask("status", "-o", "wide")).splitlines()
    assert (head.split()[0], head.split()[-1]) == ("TYPE", "UID")
    assert (first.split()[0], first.split()[-1]) == ("replicasets.v1.apps", "u")


async def test_names_of_what_waits_are_those_that_can_be_applied(page: Page, world: World) -> None:
    first, second = (await page.ask("status", "-o", "name")).split()
    assert await page.ask("apply", first) == "ns/a: let through"
    await page.ask("apply", second)
    await world.idle()
    assert (world.waits(), await page.ask("status", "-o", "name")) == ({}, "")


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        ("rs/a -n ns", ["replicasets.apps/a"]),
        ("-n ns", ["replicasets.apps/a", "replicasets.apps/b"]),
        ("-A", ["replicasets.apps/ns/a", "replicasets.apps/ns/b"]),
        ("-n other", []),
        ("-l team=a", ["replicasets.apps/ns/a"]),
    ],
)
async def test_status_is_of_what_is_named_as_kubectl_has_it(
    page: Page, monkeypatch: pytest.MonkeyPatch, words: str, shown: list[str]
) -> None:
    found = frozenset([("apps", "replicasets", ObjectKey("ns", "a"))])
    monkeypatch.setattr(labels, "labelled", lambda *_: found)
    assert (await page.ask("status", "-o", "name", *words.split())).split() == shown
    whole = json.loads(await page.ask("status", "-o", "json", *words.split()))
    assert len(whole["waiting"]) == len(shown)


def test_wide_table_cuts_nothing_and_says_the_kind_of_each_object_once() -> None:
    changes = {"a": {"is": "1", "wanted": "2"}, "b": {"is": "3", "wanted": "4"}}
    one = {**ONE, "reason": "x" * 100, "changes": changes, "resource": "rs", "uid": "u"}
    _, first, second = table({"held": [], "waiting": [one]}, wide=True).splitlines()
    assert (first.split()[0], first.split()[-1]) == ("rs", "u")
    assert "x" * 100 in first
    assert second.split() == ["b=3", "4"]


async def test_a_remediator_that_is_not_there_is_said_to_be_away(page: Page) -> None:
    for url in ("http://127.0.0.1:1", "nonsense"):
        with pytest.raises(Retriable, match=url):
            await page.ask("status", "--url", url)


async def test_a_refused_token_is_told(page: Page, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("another")
    page.settings = Settings(remediate=Remediate(listen=page.url.removeprefix("http://")))
    with pytest.raises(SyncError, match=r"401 a bearer token is needed \(is remediate\.token_file"):
        await page.ask("status")


def test_a_table_has_a_row_for_each_change_and_cuts_what_is_long() -> None:
    long = {**ONE, "namespace": "", "reason": "x" * 100 + "\x1b[2J", "changes": {}}
    first, second, third, fourth = table({"held": [], "waiting": [ONE, long]}).splitlines()
    assert first.split() == ["OBJECT", "HELD", "BY", "WHY", "RELEASED", "BY", "IS", "WANTED"]
    assert second.split()[-2:] == ["place=us", "eu"]
    assert third.strip() == ""
    assert fourth.startswith("a ")
    assert "x" * 59 + "…" in fourth
    assert "\x1b" not in fourth


def test_where_nothing_waits_that_is_said() -> None:
    assert table({"held": [], "waiting": []}) == "nothing waits"
    assert table({"held": ["why"], "waiting": []}) == "nothing is written: why\nnothing waits"


async def test_the_status_says_what_policies_tighten(page: Page, world: World) -> None:
    document = {"moves_per_minute": 5, "mass_share": 0.05, "not_before": {"ns/a": 7, "ns/b": 8}}
    world.take(StatusRecord((), "me", budget=Budget(document)))
    code, found = await page.get()
    assert (code, found["limits"]) == (
        200,
        {
            "known": True,
            "tightened": {"moves_per_minute": 5, "mass_share": 0.05},
            "not_before": {"ns/a": 7, "ns/b": 8},
            "trouble": None,
        },
    )
    said = (await page.ask("status")).splitlines()[0]
    expected = "policies tighten: moves_per_minute 5, mass_share 0.05, not_before of 2 objects"
    assert said == expected


async def test_the_status_says_what_is_wrong_with_the_limits(page: Page, world: World) -> None:
    world.take(StatusRecord((), "me", budget=Budget({"a\nb": 1})))
    said = (await page.ask("status")).splitlines()[0]
    assert said.startswith("limits of policies are not in force as they are (the last good limits")
    assert "unknown field `a b`" in said


def test_limits_that_nobody_knows_are_told_as_such() -> None:
    limits = {"known": False, "tightened": {}, "not_before": {"n/a": 1}, "trouble": "a conflict"}
    assert table({"held": [], "waiting": [], "limits": limits}).splitlines() == [
        "policies tighten: not_before of 1 object",
        "limits of policies are not in force as they are (nothing moves): a conflict",
        "nothing waits",
    ]
