"""The generated module on a real OPA: its input is each object as it was asked for."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kube_sync.admission.answer import allow
from kube_sync.admission.asking import asked, view
from kube_sync.decisions.decision import REQUESTED, Decision, parse_decision
from kube_sync.decisions.evaluator import Evaluator, batch_module
from kube_sync.decisions.placement import PLACEMENT
from kube_sync.decisions.requested import as_asked
from kube_sync.objects import ObjectKey
from kube_sync.opa.client import OpaClient, opa_client
from kube_sync.remediator.plan import Amend, Apply, Current, Held, Step, Wanted, after, plan
from kube_sync.settings import Opa
from tests.analysis.opa import plain_spec
from tests.fakes.reviews import create, stored, update
from tools.servers.http import request
from tools.servers.running import Launcher, free_port, launch_on_free_port

PATH = "io/k8s/federation/admission"
EPOCH = "e"
WEB = ObjectKey("shop", "web")
MAY = Path(__file__).resolve().parents[2] / "rego/examples/conflicts_may/conflicts_may.rego"
_INVALID = "includes invalid clusters"
_ECHO = """package io.k8s.federation

admission["annotations"] := {"seen": input}
"""


class PlainOpa:
    """An OPA with what a test puts into it."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.put("data/kube_sync/epoch", {EPOCH: "loaded"})
        self.put("policies/batch", batch_module("kubernetes", PATH))

    def put(self, path: str, content: Any) -> None:
        body = content if isinstance(content, str) else json.dumps(content)
        found = request("PUT", f"{self.url}/v1/{path}", body=body)
        assert found.status in (200, 204), found.body

    def policy(self, source: str) -> None:
        self.put("policies/placement", source)


@pytest.fixture(scope="module")
def opa(launcher: Launcher, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PlainOpa]:
    """One for the tests of this module."""
    folder = tmp_path_factory.mktemp("opa")
    server = launch_on_free_port(launcher, lambda: plain_spec(folder, free_port()))
    yield PlainOpa(server.url)
    server.stop()


@pytest.fixture
async def client(opa: PlainOpa) -> AsyncGenerator[OpaClient]:
    async with opa_client(Opa(opa.url)) as client:
        yield client


_texts = st.text('ab/\u00fc\\"', max_size=3)
_notes = st.one_of(
    st.dictionaries(_texts, st.none() | _texts, max_size=3).map(json.dumps),
    st.dictionaries(st.sampled_from(["a", REQUESTED]), st.none() | _texts).map(json.dumps),
    st.sampled_from(["", "{", "[]", "null", "1", '"a"', "{}", '{"a":1}', '{"a":null,"b":{}}']),
    st.sampled_from(['{"a":"b"} ', '{"a":"b"}x', '{"a":"1","a":"2"}', '{"a":["b"]}', " {}"]),
)
_metadata = st.fixed_dictionaries(
    {"uid": st.just("u"), "name": st.just("x")},
    optional={
        "labels": st.dictionaries(_texts, _texts, max_size=2),
        "annotations": st.builds(
            lambda has, note: has | ({} if note is None else {REQUESTED: note}),
            st.dictionaries(st.sampled_from(["a", "b", "c/d"]), _texts),
            st.none() | _notes,
        ),
    },
)
_objects = st.builds(lambda metadata: {"kind": "ReplicaSet", "metadata": metadata}, _metadata)


@settings(max_examples=20, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(st.lists(_objects, min_size=20, max_size=20))
def test_input_is_the_object_as_the_webhook_would_show_it(
    opa: PlainOpa, objects: list[Any]
) -> None:
    opa.policy(_ECHO)
    named = {f"n{index}": found for index, found in enumerate(objects)}
    opa.put("data/kubernetes", {"replicasets": {"shop": named}})
    items = [["shop", name] for name in named]
    asked_for = {"input": {"epoch": EPOCH, "collection": "replicasets", "items": items}}
    where = f"{opa.url}/v1/data/kube_sync/batch/decisions"
    answer = request("POST", where, body=json.dumps(asked_for)).body
    found = json.loads(answer)["result"]
    seen = {i: one["decision"]["annotations"]["seen"] for i, one in found.items()}
    wanted = (json.loads(as_asked(json.dumps(found).encode())) for found in objects)
    assert seen == {str(index): found for index, found in enumerate(wanted)}


class Fleet:
    """One workload that is placed among clusters of which some lie in the EU."""

    def __init__(self, opa: PlainOpa, client: OpaClient) -> None:
        self._opa = opa
        self._client = client
        self.web: dict[str, Any] = {}

    def europe(self, names: str) -> None:
        regions = {name: "europe-west1" if name in names else "us-east1" for name in "abc"}
        label = "topology.kubernetes.io/region"
        clusters = {n: {"metadata": {"labels": {label: region}}} for n, region in regions.items()}
        self._opa.put("data/kubernetes/clusters", {"fleet": clusters})

    async def create(self, clusters: str | None) -> None:
        metadata: dict[str, Any] = {"name": "web", "namespace": "shop", "uid": "u"}
        if clusters is not None:
            metadata["annotations"] = {PLACEMENT: _preferences(clusters)}
        sent = {"kind": "ReplicaSet", "metadata": metadata}
        review = create(sent)
        self.web = stored(sent, allow(review, await self._ask(bytes(view(review, "")))))

    async def edit(self, clusters: str) -> None:
        sent = json.loads(json.dumps(self.web))
        sent["metadata"]["annotations"][PLACEMENT] = _preferences(clusters)
        review = update(sent, self.web)
        assert asked(review, "").annotations[PLACEMENT] == _preferences(clusters)
        self.web = stored(sent, allow(review, await self._ask(bytes(view(review, "")))))

    async def remediate(self) -> Step:
        """Plan and write until nothing is left; returns what was done first."""
        steps: list[Step] = []
        for _ in range(4):
            self._opa.put("data/kubernetes/replicasets", {"shop": {"web": self.web}})
            outcomes = await Evaluator(self._client, EPOCH).evaluate("replicasets", [WEB])
            outcome = outcomes[WEB]
            wanted = Wanted(outcome.uid, outcome.decision, outcome.failure)
            current = Current("u", self.web["metadata"]["annotations"])
            steps.append(step := plan(wanted, current))
            if isinstance(step, Apply | Amend):
                self.web["metadata"]["annotations"] = after(step, current)
        assert steps[-1] == steps[-2], "it must come to rest"
        return steps[0]

    @property
    def placement(self) -> str:
        text = self.web["metadata"]["annotations"][PLACEMENT]
        return "".join(sorted(json.loads(text)["clusters"]))

    async def _ask(self, found: bytes) -> Decision:
        answer = await self._client.query(PATH, b'{"input":' + found + b"}")
        assert answer is not None
        decision = parse_decision(answer)
        assert not decision.errors
        return decision


def _preferences(clusters: str) -> str:
    return json.dumps({"clusters": {name: {"weight": 1} for name in clusters}})


@pytest.fixture
def fleet(opa: PlainOpa, client: OpaClient) -> Fleet:
    """The developer chooses; what may not be used is left out with a warning."""
    source = MAY.read_text(encoding="utf-8")
    assert f'errors contains "requested replica-set-preferences {_INVALID}"' in source
    opa.policy(
        source.replace(
            f'errors contains "requested replica-set-preferences {_INVALID}"',
            f'warnings contains "requested replica-set-preferences {_INVALID}"',
        )
    )
    return Fleet(opa, client)


async def test_a_placement_that_was_narrowed_widens_again_to_what_was_asked_for(
    fleet: Fleet,
) -> None:
    fleet.europe("abc")
    await fleet.create("ab")
    assert (fleet.placement, REQUESTED in fleet.web["metadata"]["annotations"]) == ("ab", True)
    for europe, placed in (("ac", "a"), ("a", "a"), ("abc", "ab"), ("bc", "b"), ("abc", "ab")):
        fleet.europe(europe)
        await fleet.remediate()
        assert fleet.placement == placed


async def test_a_developer_who_changes_the_preference_is_given_what_is_new(fleet: Fleet) -> None:
    fleet.europe("ac")
    await fleet.create("ab")
    assert fleet.placement == "a"
    await fleet.edit("bc")
    assert fleet.placement == "c"
    fleet.europe("abc")
    await fleet.remediate()
    assert fleet.placement == "bc"


async def test_who_asks_for_nothing_follows_the_fleet(fleet: Fleet) -> None:
    fleet.europe("ab")
    await fleet.create(None)
    for europe in ("a", "abc", "bc"):
        fleet.europe(europe)
        await fleet.remediate()
        assert fleet.placement == europe


async def test_the_example_as_it_is_objects_until_what_was_asked_for_may_be_used_again(
    opa: PlainOpa, client: OpaClient
) -> None:
    opa.policy(MAY.read_text(encoding="utf-8"))
    fleet = Fleet(opa, client)
    fleet.europe("abc")
    await fleet.create("ab")
    fleet.europe("ac")
    step = await fleet.remediate()
    assert isinstance(step, Held)
    assert _INVALID in step.reason
    fleet.europe("bac")
    await fleet.remediate()
    assert fleet.placement == "ab"
