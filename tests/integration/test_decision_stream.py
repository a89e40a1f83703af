"""The decision stream of a replicator process, read as people do: by curl and kube-sync."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import shlex
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import jsonschema
import pytest

from benchmarks.bare import Bare, bare_client
from benchmarks.decisions import create_clusters, flip, load_policy
from benchmarks.world import NAMESPACE, replicator
from kube_sync.inspect import schemas
from tests.fakes.browser import tab
from tests.integration.test_pair import ROOT
from tools.demo.fleet import POLICIES, POLICY, replica_set
from tools.servers.running import Launcher
from tools.servers.stack import RunningStack, furnished_stack

DOCUMENTED = (ROOT / "docs/decisions.md").read_text(encoding="utf-8")
PREFERENCES = "federation.kubernetes.io/replica-set-preferences"
BROKEN = "package io.k8s.federation.admission\n\nannotations[}"
RECORD = jsonschema.Draft202012Validator(schemas.decisions())
_PATIENCE = 30.0

Line = dict[str, Any]


class Reader:
    """A program that prints the stream, as long as the block lasts."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    async def line(self) -> str:
        assert self.process.stdout is not None
        async with asyncio.timeout(_PATIENCE):
            return (await self.process.stdout.readline()).decode()

    async def until(self, check: Callable[[Line], object]) -> list[Line]:
        """Return the records up to the first one that passes; each is valid by its schema."""
        found: list[Line] = []
        while not found or not check(found[-1]):
            line = await self.line()
            assert line, f"it ended after {found}"
            found.append(json.loads(line))
            RECORD.validate(found[-1])
        return found


@asynccontextmanager
async def _reading(*command: str) -> AsyncGenerator[Reader]:
    process = await asyncio.create_subprocess_exec(
        *command,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        limit=1 << 22,
    )
    try:
        yield Reader(process)
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.communicate()


def _curl(stack: RunningStack, query: str) -> list[str]:
    """Return the command line of docs/decisions.md, for this stack and query."""
    endpoint = stack.endpoint
    (words,) = re.findall(r"^curl (?:.*\\\n)*.*$", DOCUMENTED, re.MULTILINE)
    token = endpoint.token_file.read_text(encoding="utf-8").strip()
    for placeholder, value in (
        ("$TOKEN", token),
        ("ca.crt", str(endpoint.ca_file)),
        ("https://replicator:9400", endpoint.url),
        ("?watch", query),
    ):
        assert placeholder in words
        words = words.replace(placeholder, value)
    return shlex.split(words.replace("\\\n", " "))


def _kube_sync(stack: RunningStack, *arguments: str) -> list[str]:
    endpoint = stack.endpoint
    files = ("--token-file", str(endpoint.token_file), "--ca-file", str(endpoint.ca_file))
    return [
        sys.executable,
        "-m",
        "kube_sync",
        "decisions",
        "--url",
        endpoint.url,
        *files,
        *arguments,
    ]


def _is_bookmark(line: Line) -> bool:
    return bool(line["type"] == "bookmark")


def _clusters(line: Line) -> list[str]:
    return sorted(json.loads(line["decision"]["annotations"][PREFERENCES])["clusters"])


async def _ran(*command: str) -> subprocess.CompletedProcess[str]:
    return await asyncio.to_thread(
        subprocess.run, command, capture_output=True, text=True, timeout=_PATIENCE, check=False
    )


async def _create(bare: Bare, name: str) -> None:
    manifest = replica_set(name, eu=True)
    manifest["metadata"]["namespace"] = NAMESPACE
    await bare.kube("POST", f"/apis/apps/v1/namespaces/{NAMESPACE}/replicasets", manifest)


async def _policy(bare: Bare, name: str, source: str) -> None:
    path = f"/api/v1/namespaces/{POLICIES}/configmaps/{name}?fieldManager=test&force=true"
    metadata = {"name": name, "namespace": POLICIES}
    manifest = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
    data = {"data": {"policy.rego": source}}
    await bare.kube("PATCH", path, manifest | data, "apply-patch+yaml")


@pytest.fixture
def own_stack(launcher: Launcher, tmp_path: Path) -> Iterator[RunningStack]:
    with furnished_stack(launcher, tmp_path / "stack") as running:
        yield running


@pytest.mark.timeout(240)
async def test_stream_tells_changes_faults_and_restarts_to_whoever_reads_it(
    own_stack: RunningStack, chromium: str | None
) -> None:
    async with bare_client(own_stack) as bare:
        await load_policy(bare)
        await create_clusters(bare, 0, 2)
        for name in ("app", "web"):
            await _create(bare, name)
        async with replicator(own_stack):
            position = await _curl_tells_what_is_decided_and_what_changes(own_stack, bare)
            await _curl_resumes_where_it_stopped(own_stack, bare, position)
            await _a_person_sees_the_same(own_stack, bare)
            if chromium is not None:
                await _the_page_tells_who_decided(own_stack, bare, chromium)
            await _a_policy_at_fault_is_said_and_changes_nothing(own_stack, bare)
        await _another_replicator_is_410_and_a_watch_goes_on(own_stack, position)


async def _curl_tells_what_is_decided_and_what_changes(stack: RunningStack, bare: Bare) -> Line:
    async with _reading(*_curl(stack, "?watch")) as reader:
        first = await reader.until(_is_bookmark)
        while sum(line["type"] == "decision" for line in first) < 2:
            first += await reader.until(_is_bookmark)
        await flip(bare, inside=False)
        changes = await reader.until(_is_bookmark)
    told = {line["object"]["name"]: line for line in changes if line["type"] == "decision"}
    assert sorted(told) == ["app", "web"]
    for line in told.values():
        assert (line["v"], _clusters(line)) == (1, ["cluster-0001"])
        assert line["old"] != line["decision"]
        assert (line["cause"], line["source"]) == (
            "data",
            {"collection": "clusters", "object": "fleet/cluster-0000", "count": 1},
        )
        assert line["data"] > 0
    return changes[-1]


async def _curl_resumes_where_it_stopped(stack: RunningStack, bare: Bare, position: Line) -> None:
    await bare.kube("DELETE", f"/apis/apps/v1/namespaces/{NAMESPACE}/replicasets/web")
    since = f"{position['instance']}:{position['seq']}"
    async with _reading(*_curl(stack, f"?watch&since={since}")) as reader:
        lines = await reader.until(lambda line: line["type"] == "deleted")
    assert lines[-1]["object"]["name"] == "web"
    assert not any(line["type"] == "decision" for line in lines)
    snapshot = await _ran(*_curl(stack, ""))
    records = [json.loads(line) for line in snapshot.stdout.splitlines()]
    assert [line["object"]["name"] for line in records if line["type"] == "decision"] == ["app"]
    assert _is_bookmark(records[-1])


async def _a_person_sees_the_same(stack: RunningStack, bare: Bare) -> None:
    printed = await _ran(*_kube_sync(stack))
    assert (printed.returncode, printed.stderr) == (0, "")
    title, row = printed.stdout.splitlines()
    assert title.split() == ["OBJECT", "DECISION", "CAUSE", "POLICY"]
    assert row.split()[:2] == [f"{NAMESPACE}/app", "cluster-0001"]
    async with _reading(*_kube_sync(stack, "--watch")) as reader:
        assert "OBJECT" in await reader.line()
        await reader.line()
        await flip(bare, inside=True)
        line = await reader.line()
    assert f"{NAMESPACE}/app  cluster-0001 -> cluster-0000,cluster-0001  (data: clusters" in line
    missing = await _ran(*_kube_sync(stack, "nobody"))
    assert (missing.returncode, missing.stdout) == (1, "")
    assert missing.stderr == "kube-sync: nothing is decided of nobody\n"


async def _the_page_tells_who_decided(stack: RunningStack, bare: Bare, chromium: str) -> None:
    endpoint = stack.endpoint
    origin = "{0.scheme}://{0.netloc}".format(urlsplit(endpoint.url))
    token = endpoint.token_file.read_text(encoding="utf-8").strip()
    async with tab(chromium) as page:
        await page.open(f"{origin}/ui#token={token}")
        await page.until(_shows("state", "live"))
        await page.until(_shows("grid", f"{NAMESPACE}/app"))
        await page.press("/", "Escape", "ArrowDown", "Enter")
        for text in (
            # A rule of it, with its row, and what is written there.
            f"{POLICIES}/placement/placement.rego:13",
            _row_of_the_policy(13),
            "metadata.annotations",
            "cluster-0001",
            "the remediator does not answer",
        ):
            await page.until(_shows("panel", text))
        assert "moving" not in await page.run('document.getElementById("panel").innerText')
        await page.shoot(ROOT / "build/screenshots/real-story.png")
        await flip(bare, inside=False)
        await page.until(_shows("panel", "cluster-0000, cluster-0001 → cluster-0001"))
        await page.press("Escape", "4")
        await page.until(_shows("health", f"{POLICIES}/placement/"))
        await page.shoot(ROOT / "build/screenshots/real-health.png")
        await flip(bare, inside=True)
        assert page.troubles == []


def _row_of_the_policy(number: int) -> str:
    return POLICY.read_text(encoding="utf-8").splitlines()[number - 1].strip()


def _shows(element: str, text: str) -> str:
    return f"document.getElementById({json.dumps(element)})?.innerText.includes({json.dumps(text)})"


async def _a_policy_at_fault_is_said_and_changes_nothing(stack: RunningStack, bare: Bare) -> None:
    async with _reading(*_curl(stack, "?watch")) as reader:
        # The last flip may be on its way still.
        await reader.until(lambda line: line["type"] == "decision" and len(_clusters(line)) == 2)
        await reader.until(_is_bookmark)
        await _policy(bare, "placement", BROKEN)
        lines = await reader.until(lambda line: line.get("notes"))
        assert lines[-1]["held"] == []
        (note,) = lines[-1]["notes"]
        assert note.startswith(f"policy ConfigMap {POLICIES}/placement: not in force as it is: ")
        assert not any(line["type"] == "decision" for line in lines)
        conflict = 'package io.k8s.federation.admission\n\nannotations["a"] := [1, 2][_]'
        await _policy(bare, "other", conflict)
        failed = (await reader.until(lambda line: line.get("failure")))[-1]
        assert failed["last_good"]
        assert _clusters(failed) == ["cluster-0000", "cluster-0001"]
        await asyncio.to_thread(stack.opa.kill)
        await reader.until(lambda line: line["type"] == "status" and line["notes"])
        await asyncio.to_thread(stack.opa.start)
        await reader.until(lambda line: line.get("held"))


async def _another_replicator_is_410_and_a_watch_goes_on(
    stack: RunningStack, position: Line
) -> None:
    since = f"{position['instance']}:{position['seq']}"
    async with replicator(stack), _reading(*_kube_sync(stack, "-w", "-o", "json")) as reader:
        await reader.until(_is_bookmark)
        gone = await _ran(*_curl(stack, f"?since={since}"), "--write-out", "%{http_code}")
        assert gone.stdout.endswith(": start afresh\n410")
