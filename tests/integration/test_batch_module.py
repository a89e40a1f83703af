"""The generated module on a real OPA: each object as it was asked for, and what limits moves."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kube_sync.admission.requested_values import asked, view
from kube_sync.admission.response import allow
from kube_sync.config import Opa
from kube_sync.decisions.batch_module import batch_module
from kube_sync.decisions.budget_watcher import BudgetWatcher
from kube_sync.decisions.classifier import classifier
from kube_sync.decisions.decision import PLACEMENT, REQUESTED, Decision, parse_decision
from kube_sync.decisions.evaluator import Evaluator
from kube_sync.decisions.hub import DecisionHub
from kube_sync.decisions.records import Budget
from kube_sync.decisions.requested import as_requested
from kube_sync.errors import Retriable
from kube_sync.guard import parse_tightening
from kube_sync.kube.meta import Amend, Apply
from kube_sync.objects import ObjectKey
from kube_sync.opa.client import OpaClient, opa_client
from kube_sync.remediation.plan import Current, Step, Unusable, Wanted, after, plan
from tests.analysis.opa import plain_spec
from tests.fakes.reviews import create, stored, update
from tests.parts import examples
from tools.servers.http import request
from tools.servers.running import Launcher, free_port, launch_on_free_port

PATH = "io/k8s/federation/admission"
EPOCH = "e"
WEB = ObjectKey("shop", "web")
MAY = Path(__file__).resolve().parents[2] / "rego/examples/conflicts_may/conflicts_may.rego"
DOCUMENTED = Path(__file__).resolve().parents[2] / "docs/decisions.md"
_INVALID = "includes invalid clusters"
_ECHO = """package io.k8s.federation

admission["annotations"] := {"seen": input}
"""


_READS_A = """
_a := object.get(input, ["metadata", "annotations", "a"], "none")
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


@settings(max_examples=examples(20), suppress_health_check=[HealthCheck.too_slow])
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
    wanted = (json.loads(as_requested(json.dumps(found).encode())) for found in objects)
    assert seen == {str(index): found for index, found in enumerate(wanted)}


_ODD = st.sampled_from(
    [
        '{"a":"\\ud800"}',
        '{"\\udc00":null,"a":null}',
        '{"a":1,"a":"b"}',
        '{"a":{"b":[]},"a":null}',
        '{"a":"\\ud83d\\ude00"}',
        '{"a":"\\u0000"}',
        '{"a":NaN,"a":"b"}',
        '\ufeff{"a":"b"}',
        "{'a':'b'}",
        "a: b",
    ]
)
_noted = st.builds(
    lambda has, note: {
        "metadata": {"uid": "u", "annotations": has | ({} if note is None else {REQUESTED: note})}
    },
    st.dictionaries(st.just("a"), st.sampled_from("1b")),
    st.none() | _notes | _ODD,
)


@settings(max_examples=examples(20), suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(_noted, min_size=40, max_size=40))
def test_objects_of_one_class_are_decided_alike_whatever_their_notes_say(
    opa: PlainOpa, objects: list[Any]
) -> None:
    """Else whoever writes a note that only OPA can read decides for objects of others."""
    opa.policy('package io.k8s.federation.admission\nannotations["seen"] := _a\n' + _READS_A)
    classify = classifier([("metadata", "annotations", "a")])
    assert classify is not None
    opa.put(
        "data/kubernetes", {"replicasets": {"shop": {str(n): o for n, o in enumerate(objects)}}}
    )
    items = [["shop", str(n)] for n in range(len(objects))]
    question = {"epoch": EPOCH, "collection": "replicasets", "items": items}
    where = f"{opa.url}/v1/data/kube_sync/batch/decisions"
    answer = request("POST", where, body=json.dumps({"input": question})).body
    decided: dict[bytes, set[str]] = {}
    for index, one in json.loads(answer)["result"].items():
        kind = classify(json.dumps(objects[int(index)]).encode())
        decided.setdefault(kind, set()).add(json.dumps(one["decision"]))
    assert all(len(found) == 1 for found in decided.values())


def test_what_decisions_are_made_on_comes_with_them_and_no_secret_does(opa: PlainOpa) -> None:
    opa.policy(_ECHO)
    opa.put("data/kube_sync/fence", {EPOCH: {"7": True}})
    secret = {"kind": "Secret", "metadata": {"uid": "s"}, "data": {"password": "eA=="}}
    web = {"kind": "ReplicaSet", "metadata": {"uid": "u", "annotations": {REQUESTED: "{}"}}}
    clusters = {"fleet": {"a": {"metadata": {"name": "a"}, "n": 1}}}
    held = {"replicasets": {"shop": {"web": web, "hidden": secret}}, "clusters": clusters}
    opa.put("data/kubernetes", held)
    items = [["shop", name] for name in ("hidden", "web", "gone")]
    question = {"epoch": EPOCH, "collection": "replicasets", "items": items}
    where = f"{opa.url}/v1/data/kube_sync/batch/witnessed"
    more = {"data": ["clusters", "unknown"], "inputs": [0, 1, 2]}
    body = json.dumps({"input": {**question, **more}})
    found = json.loads(request("POST", where, body=body).body)["result"]
    assert found["inputs"] == {"1": {"kind": "ReplicaSet", "metadata": _as_asked(web)["metadata"]}}
    assert (found["data"], found["fence"]) == ({"clusters": clusters}, {"7": True})
    assert [*found["decisions"]] == ["0", "1"]
    opa.put("data/kube_sync/fence", {})
    assert b"result" not in request("POST", where, body=body).body, (
        "whose state it is of is unknown"
    )


def test_decision_on_an_input_comes_with_the_loads_that_opa_holds(opa: PlainOpa) -> None:
    opa.policy(_ECHO)
    web = {"kind": "ReplicaSet", "metadata": {"name": "web", "annotations": {REQUESTED: "{}"}}}
    where, body = f"{opa.url}/v1/data/kube_sync/batch/reviewed", json.dumps({"input": web})

    def reviewed() -> Any:
        return json.loads(request("POST", where, body=body).body)["result"]

    # As it was sent: the webhook itself puts back what was asked for.
    said = {"epochs": [EPOCH], "decision": {"annotations": {"seen": web}}}
    assert reviewed() == said
    opa.put("data/kube_sync/epoch", {EPOCH: "loading"})
    assert reviewed() == {**said, "epochs": []}
    opa.put("data/kube_sync/epoch", {EPOCH: "loaded"})
    opa.policy("package io.k8s.elsewhere\n")
    assert reviewed() == {"epochs": [EPOCH]}


def _as_asked(found: Any) -> Any:
    return json.loads(as_requested(json.dumps(found).encode()))


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
    assert isinstance(step, Unusable)
    assert _INVALID in step.reason
    fleet.europe("bac")
    await fleet.remediate()
    assert fleet.placement == "ab"


class Limited:
    """A hub that is told the limits of one OPA."""

    def __init__(self, opa: PlainOpa, client: OpaClient) -> None:
        self._opa = opa
        self.hub = DecisionHub("me")
        self._budget_watcher = BudgetWatcher(client, EPOCH, self.hub, parse_tightening)

    async def say(self, source: str) -> Budget | None:
        """Put a policy in force, and return what is told of it."""
        self._opa.put("policies/limits", source)
        self._budget_watcher.policies_changed(None, is_empty=False)
        await self._budget_watcher.refresh()
        return self.hub.budget


@pytest.fixture
def limited(opa: PlainOpa, client: OpaClient) -> Iterator[Limited]:
    yield Limited(opa, client)
    opa.put("policies/limits", "package nothing.here")
    opa.put("data/kube_sync/epoch", {EPOCH: "loaded"})


async def test_no_policy_of_limits_limits_nothing(limited: Limited) -> None:
    assert await limited.say("package nothing.here") is None
    assert await limited.say("package kube_sync_budget\n\nmoves_burst := 1 if 1 == 2") == Budget({})


async def test_helpers_are_no_limits(limited: Limited) -> None:
    source = """package kube_sync_budget

moves_per_minute := _few

_few := 6

_twice(x) := 2 * x

not_before[name] := _twice(7) if some name in {"ns/a", "b"}
"""
    document = {"moves_per_minute": 6, "not_before": {"ns/a": 14, "b": 14}}
    assert await limited.say(source) == Budget(document)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("moves_burst := n if some n in input_of\n\ninput_of := [1, 2]", "conflict"),
        ("moves := 1", "unknown field `moves`"),
        ('moves_burst := "1"', "Expected `int"),
        ("moves_burst := 1000000 * (1000000 * 1000000)", "Expected `int"),
    ],
)
async def test_limits_that_cannot_be_used_leave_the_last_good_ones(
    limited: Limited, body: str, said: str
) -> None:
    good = {"moves_burst": 1}
    assert await limited.say("package kube_sync_budget\n\nmoves_burst := 1") == Budget(good)
    found = await limited.say(f"package kube_sync_budget\n\n{body}")
    assert found is not None
    assert (found.document, found.last_good) == (good, True)
    assert said in str(found.failure)
    assert await limited.say("package nothing.here") is None


async def test_the_documented_example_limits(limited: Limited, opa: PlainOpa) -> None:
    page = await asyncio.to_thread(DOCUMENTED.read_text, encoding="utf-8")
    (source,) = re.findall(r"```rego\n(package kube_sync_budget.*?)```", page, re.DOTALL)
    sale = {"not_before": {"shop/web": 1796079600}}
    assert await limited.say(source) == Budget(sale)
    east = {"metadata": {"labels": {"maintenance": "true"}}}
    opa.put("data/kubernetes/clusters/fleet/east", east)
    slow = {"moves_per_minute": 6, "cluster_moves_burst": 1}
    assert await limited.say(source) == Budget(sale | slow)


async def test_limits_over_half_the_data_are_not_told(limited: Limited, opa: PlainOpa) -> None:
    opa.put("data/kube_sync/epoch", {EPOCH: "loading"})
    with pytest.raises(Retriable, match="does not hold all"):
        await limited.say("package kube_sync_budget\n\nmoves_burst := 1")
