"""The command on the fakes: what it asks of servers, and what it makes of their answers."""

from __future__ import annotations

import argparse
import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from kube_sync.cli.analyze import declare, requested
from kube_sync.config import Kubernetes, Opa, Replicate, Resource, Settings
from kube_sync.errors import Misconfigured, Refused
from kube_sync.inspect.survey import command, progress
from kube_sync.inspect.survey.command import Request
from kube_sync.inspect.survey.policysets import PolicySet
from kube_sync.opa.analysis.analyzer import PolicyModule
from tests.fakes.apiserver import FakeApiServer, fake_apiserver, lists
from tests.fakes.clients import CLUSTERS, REPLICASETS, key
from tests.fakes.http import answer
from tests.fakes.opa import FakeOpa


def parsed(*arguments: str) -> Request:
    parser = argparse.ArgumentParser()
    declare(parser)
    return requested(parser.parse_args(arguments))


def test_arguments_become_a_request() -> None:
    every = ("--decision", "a/b", "-o", "json", "--max-whole", "3", "--cluster-scoped", "nodes")
    assert parsed("p", "q", *every, "--objects", "o") == Request(
        ("p", "q"), "a/b", json=True, max_whole=3, objects="o", cluster_scoped=frozenset({"nodes"})
    )
    assert parsed("--live", "--cluster", "--sarif", "r") == Request((), cluster=True, sarif="r")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "a FOLDER of policies or --live"),
        (("p", "--live"), "a FOLDER of policies or --live"),
        (("p", "--cluster", "--objects", "o"), "^--objects: "),
        (("p", "--cluster", "--cluster-scoped", "nodes"), "^--cluster-scoped: "),
        (("p", "--max-whole", "-1"), "^--max-whole: -1"),
        (("p", "--decision", "/a"), '^--decision: "/a"'),
    ],
)
def test_what_cannot_go_together_is_said_by_name(arguments: tuple[str, ...], said: str) -> None:
    with pytest.raises(Misconfigured, match=said):
        parsed(*arguments)


def tree(name: str) -> Any:
    """Return `package a; b := input.<name>` as OPA compiles it."""
    path = [{"type": "var", "value": "data"}, {"type": "string", "value": "a"}]
    value = [{"type": "var", "value": "input"}, {"type": "string", "value": name}]
    always = [{"terms": {"type": "boolean", "value": True}, "index": 0}]
    head = {
        "name": "b",
        "ref": [{"type": "var", "value": "b"}],
        "value": {"type": "ref", "value": value},
    }
    return {"package": {"path": path}, "rules": [{"head": head, "body": always}]}


class Told:
    """The command, with policies that were compiled already."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *sets: PolicySet) -> None:
        async def policies(*_: object) -> list[PolicySet]:
            return list(sets)

        monkeypatch.setattr(command, "_read_policies", policies)
        self.said: list[str] = []

    async def run(self, request: Request, settings: Settings) -> Any:
        self.answer = await command.run(request, settings, self.said.append)
        return json.loads(self.answer.text)


KIND = PolicySet("one", (PolicyModule("a.rego", tree("kind")),))
NAMED = PolicySet("two", (PolicyModule("a.rego", tree("metadata")),))
BROKEN = PolicySet("broken", (PolicyModule("a.rego", {"error": "what"}),))
REQUEST = Request(("p",), "a/b", json=True, cluster=True)


async def cluster(api: FakeApiServer, folder: Path) -> Settings:
    api.define(REPLICASETS, "ReplicaSet")
    api.page_size = 2
    for name in "abcde":
        api.put(REPLICASETS, key(name), spec={"replicas": 1})
    for name in "xyz":
        api.put(REPLICASETS, key(name, "ignored"))
    replicate = Replicate(ignore_namespaces=("ignored",))
    kubernetes = Kubernetes(kubeconfig=api.kubeconfig(folder / "kubeconfig"))
    return Settings(kubernetes=kubernetes, replicate=replicate)


async def test_cluster_is_listed_once_for_all_sets_and_page_by_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "_SECONDS", 0.0)
    told = Told(monkeypatch, KIND, NAMED)
    async with fake_apiserver() as api:
        found = await told.run(REQUEST, await cluster(api, tmp_path))
        lists = [r for r in api.http.requests if r.path == REPLICASETS.path()]
    assert len(lists) == 3
    one, two = (s["savings"]["resources"] for s in found["sets"])
    assert (one["replicasets"]["objects"], one["replicasets"]["classes"]) == (5, 1)
    assert (two["replicasets"]["objects"], two["replicasets"]["classes"]) == (5, 5)
    assert 0 < one["replicasets"]["projected_bytes"] < one["replicasets"]["listed_bytes"]
    assert one["clusters"] == {
        "objects": 0,
        "listed_bytes": 0,
        "projected_bytes": 0,
        "classes": None,
        "known": False,
    }
    assert told.said[-1] == "replicasets: 5 objects read …"


async def test_named_namespaces_are_all_that_is_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = Told(monkeypatch, KIND)
    async with fake_apiserver() as api:
        settings = await cluster(api, tmp_path)
        some = Resource("apps", "v1", "replicasets", namespaces=("ignored", "default"))
        settings = Settings(kubernetes=settings.kubernetes, replicate=Replicate(resources=(some,)))
        found = await told.run(REQUEST, settings)
        assert not [r for r in api.http.requests if r.path == REPLICASETS.path()]
    assert found["sets"][0]["savings"]["objects"] == 8


async def test_objects_of_a_kind_without_namespaces_are_listed_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = Told(monkeypatch, KIND)
    async with fake_apiserver() as api:
        settings = await cluster(api, tmp_path)
        api.define(CLUSTERS, "ClusterProfile", builtin=False, namespaced=False)
        api.put(CLUSTERS, key("west", ""))
        found = await told.run(REQUEST, settings)
    assert found["sets"][0]["savings"]["resources"]["clusters"]["objects"] == 1


async def test_most_whole_fields_count_for_each_set_by_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told = Told(monkeypatch, KIND, NAMED)
    await told.run(Request(("p",), "a/b", json=True, max_whole=1), Settings())
    assert not told.answer.complaints
    await told.run(Request(("p",), "a/b", json=True, max_whole=0), Settings())
    assert told.answer.complaints == (
        "one: 1 field is read whole, --max-whole allows 0",
        "two: 1 field is read whole, --max-whole allows 0",
    )


async def test_policies_that_cannot_be_analysed_exceed_every_number(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told = Told(monkeypatch, BROKEN)
    await told.run(Request(("p",), "a/b", json=True, max_whole=99), Settings())
    (complaint,) = told.answer.complaints
    assert complaint.startswith("broken: everything counts as read: a.rego: ")


async def test_kinds_that_are_not_replicated_are_told_beside_the_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = Told(monkeypatch, KIND)
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}}
    file = tmp_path / "objects.json"
    await asyncio.to_thread(file.write_text, json.dumps([pod, pod]))
    found = await told.run(Request(("p",), "a/b", json=True, objects=str(file)), Settings())
    assert told.said == [f"{file}: 2 of v1 Pod left out: not in replicate.resources"]
    assert found["sets"][0]["savings"]["objects"] == 0


async def test_object_of_the_cluster_that_is_no_text_is_left_out_and_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = Told(monkeypatch, KIND)
    page = (
        b'{"kind":"ReplicaSetList","metadata":{"resourceVersion":"7"},'
        b'"items":[{"metadata":{"name":"a","namespace":"n"},"spec":"\xff"}]}'
    )
    async with fake_apiserver() as api:
        settings = await cluster(api, tmp_path)
        api.http.fault(lists(REPLICASETS), answer(200, page))
        with capture_logs() as logs:
            found = await told.run(REQUEST, settings)
    assert found["sets"][0]["savings"]["objects"] == 0
    assert [line["reason"] for line in logs if line["event"] == "object_left_out"] == ["malformed"]


async def test_cluster_that_refuses_is_the_end_and_says_what_it_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = Told(monkeypatch, KIND)
    async with fake_apiserver() as api:
        settings = await cluster(api, tmp_path)
        body = b'{"kind":"Status","code":403,"message":"replicasets.apps is forbidden"}'
        api.http.fault(lists(REPLICASETS), answer(403, body))
        with pytest.raises(Refused, match=r"replicasets\.apps is forbidden"):
            await told.run(REQUEST, settings)


async def test_password_in_the_address_of_an_opa_is_not_printed(
    opa: FakeOpa, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []

    async def of_opa(_held: object, name: str, *_: object) -> PolicySet:
        seen.append(name)
        return KIND

    monkeypatch.setattr(command, "set_of_opa", of_opa)
    url = opa.http.url.replace("://", "://me:secret@")
    await command.run(Request((), "a/b"), Settings(opa=Opa(url=url)), lambda _line: None)
    assert "secret" not in seen[0]
