from __future__ import annotations

import argparse
import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from kube_sync.cli import labelled as labels
from kube_sync.cli.decisions import declare, pointed, requested
from kube_sync.config import Decisions, Settings
from kube_sync.decisions import command
from kube_sync.decisions.decision import Decision
from kube_sync.decisions.evaluator import Outcome
from kube_sync.decisions.hub import DecisionHub
from kube_sync.decisions.printing import Request
from kube_sync.decisions.records import BookmarkRecord, DecisionRecord, Target, decode
from kube_sync.decisions.stream import PATH, stream_app
from kube_sync.errors import Misconfigured, NotFound, Retriable, SyncError
from kube_sync.kube.naming import reference
from kube_sync.objects import ObjectKey
from kube_sync.runtime.httpserver import serving
from kube_sync.runtime.tokenfile import TokenFile
from tests.unit.async_tools import PATIENCE, running, until


def _update(hub: DecisionHub, name: str, text: str) -> None:
    target = Target("apps", "v1", "replicasets", name, "shop")
    hub.publish(target.gvr, target.key, Outcome("u", Decision({"place": text})), "data", "ab12cd34")


@dataclass
class Terminal:
    """What a person saw."""

    out: list[str] = field(default_factory=list)
    err: list[str] = field(default_factory=list)

    async def run(self, url: str, **asked: object) -> None:
        request, settings = Request(**asked), Settings(decisions=Decisions(url=url))  # type: ignore[arg-type]
        async with asyncio.timeout(PATIENCE):
            await command.run(request, settings, self.out.append, self.err.append)


@asynccontextmanager
async def _served(hub: DecisionHub, port: int = 0) -> AsyncGenerator[str]:
    app = stream_app(hub, TokenFile(None))
    async with serving(app, ("127.0.0.1", port), grace=0.05) as found:
        yield f"http://127.0.0.1:{found}{PATH}"


@pytest.fixture
def hub() -> DecisionHub:
    hub = DecisionHub("me")
    _update(hub, "web", "1")
    _update(hub, "app", "2")
    return hub


async def test_what_is_decided_now_is_printed_and_that_is_all(hub: DecisionHub) -> None:
    terminal = Terminal()
    async with _served(hub) as url:
        await terminal.run(url)
    assert terminal.out == [
        "OBJECT    DECISION  CAUSE  POLICY",
        "shop/app  place=2   data   ab12cd",
        "shop/web  place=1   data   ab12cd",
    ]
    assert terminal.err == []


async def test_names_and_yaml_are_printed_for_other_programs(hub: DecisionHub) -> None:
    for asked, first in (
        ({"form": "name"}, "replicasets.apps/shop/app"),
        ({"form": "name", "namespace": "shop"}, "replicasets.apps/app"),
        ({"form": "yaml"}, "---\ntype: status"),
    ):
        terminal = Terminal()
        async with _served(hub) as url:
            await terminal.run(url, **asked)
        assert any(line.startswith(first) for line in terminal.out)


async def test_json_is_the_records_of_what_was_asked_for(hub: DecisionHub) -> None:
    terminal = Terminal()
    async with _served(hub) as url:
        await terminal.run(url, form="json", of=(reference("web"),))
    records = [decode(f"{line}\n".encode()) for line in terminal.out]
    assert [r.object.name for r in records if isinstance(r, DecisionRecord)] == ["web"]
    assert records[-1] == BookmarkRecord(2, "me")


async def test_nothing_decided_of_a_name_is_not_found(hub: DecisionHub) -> None:
    async with _served(hub) as url:
        with pytest.raises(NotFound, match="nothing is decided of gone in shop"):
            await Terminal().run(url, of=(reference("gone"),), namespace="shop")


async def test_nothing_decided_at_all_is_said_beside_the_empty_output() -> None:
    terminal = Terminal()
    async with _served(DecisionHub("me")) as url:
        await terminal.run(url)
    assert (terminal.out, terminal.err) == ([], ["nothing is decided of any resource"])


async def test_a_hold_is_said_beside_the_table(hub: DecisionHub) -> None:
    hub.hold("load", "OPA is being loaded")
    terminal = Terminal()
    async with _served(hub) as url:
        await terminal.run(url)
    assert len(terminal.out) == 3
    (line,) = terminal.err
    assert line.endswith("-- held: OPA is being loaded")


@pytest.mark.parametrize("watch", [True, False])
async def test_a_replicator_that_does_not_answer_ends_it(watch: bool) -> None:  # noqa: FBT001 - a parameter of the test
    with pytest.raises(Retriable, match="Cannot connect to host"):
        await Terminal().run("http://127.0.0.1:1/", watch=watch)


async def test_a_stream_that_breaks_before_the_table_ends_it() -> None:
    async with _served(DecisionHub("me")) as url:
        with pytest.raises(SyncError, match="404"):
            await Terminal().run(f"{url}/elsewhere")


async def _until(check: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE):
        await until(check)


async def test_a_watch_goes_on_with_one_line_a_change(hub: DecisionHub) -> None:
    terminal = Terminal()
    async with _served(hub) as url, running(terminal.run(url, watch=True)):
        await _until(lambda: len(terminal.out) == 3)
        _update(hub, "web", "3")
        await _until(lambda: len(terminal.out) == 4)
    assert terminal.out[-1][9:] == "shop/web  place=1 -> place=3  (data; policy ab12cd)"


async def test_a_watch_of_a_name_waits_for_it(hub: DecisionHub) -> None:
    terminal = Terminal()
    async with _served(hub) as url, running(terminal.run(url, watch=True, of=(reference("new"),))):
        await _until(lambda: terminal.err)
        _update(hub, "new", "1")
        await _until(lambda: terminal.out)
    assert terminal.err == ["nothing is decided of new"]
    assert terminal.out[0][9:] == "shop/new  - -> place=1  (data; policy ab12cd)"


async def test_a_watch_of_records_goes_on_after_the_bookmark(hub: DecisionHub) -> None:
    terminal = Terminal()
    async with _served(hub) as url, running(terminal.run(url, watch=True, form="json")):
        await _until(lambda: any("bookmark" in line for line in terminal.out))
        _update(hub, "web", "3")
        await _until(lambda: any('"place":"3"' in line for line in terminal.out))


async def test_a_watch_survives_a_replicator_that_restarts_and_says_so(hub: DecisionHub) -> None:
    terminal = Terminal()
    async with _served(hub) as url:
        port = int(url.split(":")[2].split("/")[0])
        watch = asyncio.ensure_future(terminal.run(url, watch=True))
        await _until(lambda: len(terminal.out) == 3)
    other = DecisionHub("another")
    _update(other, "web", "9")
    async with _served(other, port):
        await _until(lambda: len(terminal.out) == 5)
    watch.cancel()
    await asyncio.wait([watch])
    assert terminal.err[0].startswith(f"decision stream {url}: ")
    assert terminal.err[0].endswith("; trying again")
    assert [line[9:] for line in terminal.out[3:]] == [
        "shop/web  place=1 -> place=9  (data; policy ab12cd)",
        "shop/app  gone",
    ]


def _parsed(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    declare(parser)
    return parser.parse_args(words)


def test_the_command_line_says_whose_decisions() -> None:
    assert requested(_parsed(), Settings()) == Request()
    words = ["-w", "-o", "json", "-n", "shop", "web"]
    assert requested(_parsed(*words), Settings()) == Request(
        watch=True, form="json", namespace="shop", of=(reference("web"),)
    )


def test_labels_are_of_the_objects_that_the_api_server_has(monkeypatch: pytest.MonkeyPatch) -> None:
    found = frozenset([("apps", "replicasets", ObjectKey("shop", "web"))])
    monkeypatch.setattr(
        labels, "labelled", lambda *asked: found if asked[1:] == ("a=b", "s") else {}
    )
    request = requested(_parsed("-l", "a=b", "-n", "s"), Settings())
    assert request == Request(namespace="s", labelled=found)


async def test_what_has_not_the_labels_is_not_printed(hub: DecisionHub) -> None:
    terminal = Terminal()
    of = frozenset([("apps", "replicasets", ObjectKey("shop", "web"))])
    async with _served(hub) as url:
        await terminal.run(url, form="name", labelled=of)
        await terminal.run(url, labelled=frozenset())
    assert terminal.out == ["replicasets.apps/shop/web"]
    assert terminal.err == ["nothing is decided of any resource with these labels"]


@pytest.mark.parametrize(
    ("said", "url"),
    [
        ("https://r:9400", "https://r:9400/v1/decisions"),
        ("https://r:9400/", "https://r:9400/v1/decisions"),
        ("https://r/v1/decisions/a/b", "https://r/v1/decisions/a/b"),
    ],
)
def test_the_command_line_wins_over_the_configuration(said: str, url: str) -> None:
    arguments = _parsed("--url", said, "--token-file", "t")
    settings = Settings(decisions=Decisions(ca_file="ca", token_file="other"))
    assert pointed(arguments, settings).decisions == Decisions(
        url=url,
        token_file="t",
        ca_file="ca",
    )


def test_without_arguments_the_configuration_says_where() -> None:
    settings = Settings(decisions=Decisions(url="https://r/x", ca_file="ca"))
    assert pointed(_parsed(), settings) == settings


def test_a_url_that_is_none_is_a_mistake() -> None:
    with pytest.raises(Misconfigured, match="--url"):
        pointed(_parsed("--url", "nowhere"), Settings())


async def test_a_token_file_that_is_missing_ends_it(tmp_path: Path) -> None:
    settings = Settings(decisions=Decisions(token_file=str(tmp_path / "gone")))
    with pytest.raises(SyncError, match="No such file"):
        await command.run(Request(), settings, print, print)
