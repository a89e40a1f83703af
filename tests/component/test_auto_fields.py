"""The policies say which fields go into OPA, between two fake servers."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from kube_sync.config import Placement, Policies, Replicate, Resource, Settings
from kube_sync.opa.analysis import analyzer
from kube_sync.opa.analysis.analyzer import analyze_read
from kube_sync.opa.analysis.result import Document
from kube_sync.replicator.class_backfill import FEW
from kube_sync.replicator.resources import Resources
from tests.component.test_reconfiguration import CL, RS, World, brisk, of, sample
from tests.fakes.apiserver import fake_apiserver, lists
from tests.fakes.clients import CLUSTERS, CONFIGMAPS, REPLICASETS, SECRETS, key
from tests.fakes.compiler import FakeCompiler, reading
from tests.fakes.http import answer, held
from tests.fakes.opa import fake_opa, puts, writes
from tests.unit.async_tools import until

__all__ = ["brisk"]

NAMESPACE = "policies"
SPEC = {"a": 1, "b": 2, "c": {"d": 3, "e": 4}}
NAMES = {"apiVersion", "kind", "metadata"}


def configured(*resources: Resource, fields: Any = "auto", verify: float = 0.0) -> Settings:
    return Settings(
        replicate=Replicate(resources=resources, fields=fields, verify=verify),
        policies=Policies(namespaces=(NAMESPACE,)),
        placement=Placement(resources=("replicasets",)),
    )


BOTH = configured(RS, CL)


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let what nobody reads go soon."""
    defaults = Resources.__init__.__kwdefaults__
    assert defaults is not None
    monkeypatch.setitem(defaults, "shrink", 0.02)


class Fleet(World):
    """A world whose OPA decides as its policies say they read."""

    def policy(self, name: str, *paths: str) -> None:
        self.api.put(CONFIGMAPS, key(name, NAMESPACE), data={"p.rego": reading(*paths)})

    def decided(self, found: Any, data: Any) -> Any:
        """Say of everything that the policies in force read what it is."""
        text = "\n".join(self.opa.policies.values())
        paths = re.findall(r"^# reads: (\S+)$", text, re.MULTILINE)
        whole = {"input": found, "data": data}
        return {"annotations": {_key(path): _at(whole, path.split(".")) for path in paths}}

    def spec(self, collection: str, name: str, namespace: str) -> Any:
        """Return what OPA holds of an object but for its names."""
        found = self.opa.data["kubernetes"][collection][namespace][name]
        return {key: found[key] for key in found.keys() - NAMES}

    async def until_spec(self, **kept: Any) -> None:
        where = {"replicasets": ("a", "n1"), "clusters": ("east", "fleet")}
        await until(lambda: self.settled)
        await until(
            lambda: all(self.spec(found, *where[found]) == spec for found, spec in kept.items())
        )
        await until(lambda: self.settled)

    @asynccontextmanager
    async def watched(self) -> AsyncGenerator[None]:
        """Ask all the time what the policies in force read: it is always there."""
        absent: list[str] = []

        async def watch() -> None:
            while True:
                for found in self.opa.data["kubernetes"]["replicasets"]["n1"].values():
                    decision = self.decided(found, self.opa.data)["annotations"]
                    absent.extend(path for path, v in decision.items() if "absent" in str(v))
                await asyncio.sleep(0)

        task = asyncio.create_task(watch())
        yield
        assert not task.done()
        task.cancel()
        assert not absent


def _key(path: str) -> str:
    """Return what an annotation with a path's name is called."""
    return path.replace("*", "each")


def _at(value: Any, path: list[str]) -> Any:
    if not path:
        return value
    if path[0] == "*":
        return [_at(member, path[1:]) for member in value.values()]
    return _at(value[path[0]], path[1:]) if path[0] in value else "absent"


@pytest.fixture
async def fleet(tmp_path: Path) -> AsyncGenerator[Fleet]:
    async with fake_apiserver() as api, fake_opa() as opa:
        api.define(REPLICASETS, "ReplicaSet")
        api.define(CONFIGMAPS, "ConfigMap")
        api.define(SECRETS, "Secret")
        api.define(CLUSTERS, "ClusterProfile", builtin=False)
        api.put(REPLICASETS, key("a", "n1"), spec=SPEC)
        api.put(CLUSTERS, key("east", "fleet"), spec=SPEC)
        fleet = Fleet(api, opa, tmp_path)
        fleet.compiler = FakeCompiler(trees=True)
        opa.decide = fleet.decided
        yield fleet


async def test_only_what_the_policies_read_is_replicated(fleet: Fleet) -> None:
    fleet.policy("p", "input.spec.a", "data.kubernetes.clusters.*.*.spec.c.d")
    async with fleet.replicating(BOTH):
        await fleet.until_spec(replicasets={"spec": {"a": 1}}, clusters={"spec": {"c": {"d": 3}}})
        metadata = fleet.opa.data["kubernetes"]["replicasets"]["n1"]["a"]["metadata"]
        assert metadata.keys() == {"name", "namespace", "uid"}
        assert fleet.decision("a")["input.spec.a"] == "1"
        assert (fleet.loads("replicasets"), fleet.epochs) == (1, 1)
        assert sample("kube_sync_replicated_fields", resource="replicasets") == 1


async def test_classes_come_with_the_list_that_is_sent(fleet: Fleet) -> None:
    for index in range(FEW):
        fleet.api.put(REPLICASETS, key(f"b{index:03}", "n1"), spec=SPEC)
    fleet.policy("p", "input.spec.a")
    async with fleet.replicating(BOTH):
        await until(lambda: fleet.settled and len(fleet.hub.records) == FEW + 1)
        (members,) = [m.members for m in fleet.replicator.collections if m.name == "replicasets"]
        assert (members.known, members.classes) == (FEW + 1, 1)
        assert fleet.count(lists, REPLICASETS) == 1


async def test_nothing_is_sent_before_it_is_known_what_is_read(fleet: Fleet) -> None:
    """What is listed meanwhile waits, so that no time is lost."""
    fleet.policy("p", "input.spec.a")
    gate = asyncio.Event()
    fleet.api.http.fault(lists(CONFIGMAPS), held(gate))
    async with fleet.replicating(configured(RS, of(CLUSTERS, "clusters", fields="all"))):
        await until(lambda: "which fields" in fleet.readiness.reasons.get("policies", ""))
        await until(lambda: fleet.count(lists, CLUSTERS))
        await until(lambda: "clusters" in fleet.opa.data.get("kubernetes", {}))
        await until(lambda: fleet.count(lists, REPLICASETS))
        assert "replicasets" not in fleet.opa.data["kubernetes"]
        gate.set()
        await fleet.until_spec(replicasets={"spec": {"a": 1}}, clusters={"spec": SPEC})


async def test_data_grows_before_a_policy_that_reads_more_is_in_force(fleet: Fleet) -> None:
    fleet.policy("p", "input.spec.a")
    async with fleet.replicating(BOTH):
        await fleet.until_spec(replicasets={"spec": {"a": 1}}, clusters={})
        gate = asyncio.Event()
        fleet.api.http.fault(lists(CLUSTERS), held(gate))
        with capture_logs() as logs:
            fleet.policy("p", "input.spec.a", "data.kubernetes.clusters.*.*.spec.b")
            await until(lambda: "listed again" in fleet.readiness.reasons.get("policies", ""))
            assert fleet.decision("a") == {"input.spec.a": "1"}
            assert not any("spec.b" in source for source in fleet.opa.policies.values())
            gate.set()
            await until(lambda: len(fleet.decision("a") or ()) == 2)
        assert fleet.decision("a")["data.kubernetes.clusters.each.each.spec.b"] == "[[2]]"
        (grown,) = [line for line in logs if line["event"] == "fields_grow"]
        assert grown["resource"] == "clusters"
        assert "spec.b: policies/p/p.rego" in grown["asked"][0]
        assert (fleet.loads("replicasets"), fleet.epochs) == (1, 1)


async def test_data_shrinks_after_a_policy_that_reads_less_is_in_force(fleet: Fleet) -> None:
    fleet.policy("p", "input.spec.a", "input.spec.b")
    async with fleet.replicating(BOTH):
        await fleet.until_spec(replicasets={"spec": {"a": 1, "b": 2}})
        fleet.policy("p", "input.spec.b", "input.spec.c.d")
        async with fleet.watched():
            await fleet.until_spec(replicasets={"spec": {"b": 2, "c": {"d": 3}}})
        assert fleet.decision("a") == {"input.spec.b": "2", "input.spec.c.d": "3"}
        assert fleet.loads("replicasets") == 3  # with both sets of fields in between
        assert fleet.epochs == 1


async def test_policies_never_read_what_is_not_there_while_they_come_and_go(fleet: Fleet) -> None:
    fleet.policy("p", "input.spec.a")
    async with fleet.replicating(BOTH):
        await fleet.until_spec(replicasets={"spec": {"a": 1}})
        async with fleet.watched():
            for name in ("b", "c", "a", "c"):
                path = f"input.spec.{name}"
                fleet.policy("p", path, f"data.kubernetes.clusters.*.*.spec.{name}")
                fleet.policy("q", path)
                await until(lambda: path in (fleet.decision("a") or {}))  # noqa: B023
            await fleet.until_spec(replicasets={"spec": {"c": SPEC["c"]}})


async def test_edit_that_is_taken_back_before_it_is_in_force_changes_nothing(fleet: Fleet) -> None:
    fleet.policy("p", "input.spec.a")
    async with fleet.replicating(BOTH):
        await fleet.until_spec(replicasets={"spec": {"a": 1}})
        gate = asyncio.Event()
        fleet.api.http.fault(lists(REPLICASETS), held(gate))
        fleet.policy("p", "input.spec.b")
        await until(lambda: "listed again" in fleet.readiness.reasons.get("policies", ""))
        fleet.policy("p", "input.spec.a")
        gate.set()
        await fleet.until_spec(replicasets={"spec": {"a": 1}})
        assert fleet.decision("a") == {"input.spec.a": "1"}
        assert fleet.epochs == 1


async def test_policies_that_cannot_be_analysed_get_whole_objects(fleet: Fleet) -> None:
    fleet.compiler.trees = False
    fleet.policy("p", "input.spec.a")
    async with fleet.replicating(BOTH):
        await fleet.until_spec(replicasets={"spec": SPEC}, clusters={"spec": SPEC})
        assert sample("kube_sync_replicated_fields", resource="replicasets") == -1


async def test_resource_that_nobody_knows_is_whole_when_it_comes(fleet: Fleet) -> None:
    fleet.api.undefine(CLUSTERS)
    fleet.policy("p", "input.spec.a", "data.kubernetes.clusters.*.*.spec.a")
    with capture_logs() as logs:
        async with fleet.replicating(BOTH):
            await until(lambda: any(one["event"] == "resource_not_analysed" for one in logs))
            fleet.api.define(CLUSTERS, "ClusterProfile", builtin=False)
            fleet.api.put(CLUSTERS, key("east", "fleet"), spec=SPEC)
            # What nobody reads of it goes again, once it is known where it lies.
            await fleet.until_spec(replicasets={"spec": {"a": 1}}, clusters={"spec": {"a": 1}})
    assert [line["event"] for line in logs].count("resource_not_analysed") == 1
    came = (json.dumps(json.loads(r.body)) for r in fleet.opa.http.requests if b"east" in r.body)
    assert json.dumps(SPEC) in next(came)


async def test_event_that_changes_nothing_that_is_read_is_not_written(fleet: Fleet) -> None:
    fleet.policy("p", "input.spec.a")
    async with fleet.replicating(BOTH):
        await fleet.until_spec(replicasets={"spec": {"a": 1}})
        await fleet.api.watched(REPLICASETS)
        before = sample("kube_sync_unchanged_events_total", resource="replicasets") or 0
        written = sum(map(writes, fleet.opa.http.requests))
        fleet.api.put(REPLICASETS, key("a", "n1"), spec={**SPEC, "b": 3})
        await until(
            lambda: sample("kube_sync_unchanged_events_total", resource="replicasets") == before + 1
        )
        assert sum(map(writes, fleet.opa.http.requests)) == written
        fleet.api.put(REPLICASETS, key("a", "n1"), spec={**SPEC, "a": 5})
        await fleet.until_spec(replicasets={"spec": {"a": 5}})


async def test_opa_that_lives_on_has_what_its_old_policies_read_until_they_go(fleet: Fleet) -> None:
    fleet.policy("p", "input.spec.a")
    async with fleet.replicating(BOTH):
        await fleet.until_spec(replicasets={"spec": {"a": 1}})
    fleet.policy("p", "input.spec.b")
    async with fleet.watched(), fleet.replicating(BOTH):
        await fleet.until_spec(replicasets={"spec": {"b": 2}})
        assert fleet.loads("replicasets") == 3  # with both fields in between


async def test_target_that_comes_or_goes_has_what_is_read_of_it_as_such(fleet: Fleet) -> None:
    fleet.policy("p", "input.spec.a", "data.kubernetes.clusters.*.*.spec.b")
    async with fleet.replicating(BOTH):
        await fleet.until_spec(replicasets={"spec": {"a": 1}}, clusters={"spec": {"b": 2}})
        wanted = Settings(
            replicate=BOTH.replicate,
            policies=BOTH.policies,
            placement=Placement(resources=("clusters",)),
        )
        fleet.replicator.configure(wanted)
        await fleet.until_spec(clusters={"spec": {"a": 1, "b": 2}}, replicasets={})


async def test_fields_that_become_auto_and_stay_so_no_longer(fleet: Fleet) -> None:
    fleet.policy("p", "input.spec.a")
    async with fleet.replicating(configured(RS, CL, fields="all")):
        await fleet.until_spec(replicasets={"spec": SPEC}, clusters={"spec": SPEC})
        fleet.replicator.configure(BOTH)
        await fleet.until_spec(replicasets={"spec": {"a": 1}}, clusters={})
        fleet.replicator.configure(configured(RS, CL, fields="all"))
        await fleet.until_spec(replicasets={"spec": SPEC}, clusters={"spec": SPEC})
        assert fleet.epochs == 1


async def test_exchange_that_opa_refuses_is_made_again_with_the_same_fields(fleet: Fleet) -> None:
    fleet.policy("p", "input.spec.a")
    async with fleet.replicating(BOTH):
        await fleet.until_spec(replicasets={"spec": {"a": 1}})
        fleet.opa.http.fault(puts("/v1/data/kubernetes/replicasets"), answer(503))
        fleet.policy("p", "input.spec.b")
        await fleet.until_spec(replicasets={"spec": {"b": 2}})
        assert fleet.decision("a") == {"input.spec.b": "2"}
        assert fleet.epochs == 1


async def test_opa_that_was_restarted_gets_the_same_fields(fleet: Fleet) -> None:
    fleet.policy("p", "input.spec.a")
    async with fleet.replicating(BOTH):
        await fleet.until_spec(replicasets={"spec": {"a": 1}})
        fleet.opa.restart()
        await until(lambda: fleet.epochs == 2)
        await fleet.until_spec(replicasets={"spec": {"a": 1}}, clusters={})
        assert fleet.loads("replicasets") == 2


def checked(outcome: str, resource: str = "replicasets") -> float:
    return sample(f"kube_sync_selfcheck_{outcome}_total", resource=resource) or 0


async def test_check_over_whole_objects_finds_nothing(fleet: Fleet) -> None:
    fleet.policy("p", "input.spec.a", "data.kubernetes.clusters.*.*.spec.b")
    before = checked("decisions"), checked("differences")
    async with fleet.replicating(configured(RS, CL, verify=1.0)):
        await fleet.until_spec(replicasets={"spec": {"a": 1}})
        await until(lambda: checked("decisions") > before[0])
        fleet.api.put(REPLICASETS, key("a", "n1"), spec={**SPEC, "a": 7})
        await until(lambda: checked("decisions") > before[0] + 1)
        await fleet.until_spec(replicasets={"spec": {"a": 7}})
        assert checked("differences") == before[1]


async def test_analysis_that_is_wrong_is_found_and_the_resource_is_whole_from_then_on(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    def blind(modules: Any, decision: str, roots: Any) -> Any:
        return replace(analyze_read(modules, decision, roots), input=Document(used=True))

    monkeypatch.setattr(analyzer, "analyze_read", blind)
    fleet.policy("p", "input.spec.a", "data.kubernetes.clusters.*.*.spec.b")
    before = checked("differences")
    with capture_logs() as logs:
        async with fleet.replicating(configured(RS, CL, verify=1.0)):
            await fleet.until_spec(replicasets={"spec": SPEC}, clusters={"spec": {"b": 2}})
            await until(lambda: (fleet.decision("a") or {}).get("input.spec.a") == "1")
            fleet.opa.restart()
            await until(lambda: fleet.epochs == 2)
            await fleet.until_spec(replicasets={"spec": SPEC}, clusters={"spec": {"b": 2}})
    assert checked("differences") == before + 1
    (found,) = [line for line in logs if line["event"] == "decision_differs"]
    assert (found["resource"], len(found["policies"]) > 0) == ("replicasets", True)


VALUE = "dG9wIHNlY3JldA=="
SECRET: dict[str, Any] = {
    "metadata": {
        "annotations": {"kubectl.kubernetes.io/last-applied-configuration": f'{{"p":"{VALUE}"}}'}
    },
    "data": {"password": VALUE, "user": "YWRtaW4="},
    "type": "Opaque",
}
READS_VALUE = "data.kubernetes.secrets.n1.s.data.password"


def with_secrets(fields: Any = "auto", *, allowed: bool) -> Settings:
    return configured(RS, of(SECRETS, secrets=allowed), fields=fields)


def told_opa(fleet: Fleet) -> bytes:
    """Return all that OPA was ever sent."""
    return b"".join(request.body for request in fleet.opa.http.requests)


def status(fleet: Fleet, name: str) -> Any:
    metadata = fleet.api.get(CONFIGMAPS, key(name, NAMESPACE))["metadata"]
    text = (metadata.get("annotations") or {}).get("openpolicyagent.org/kube-mgmt-status")
    return None if text is None else json.loads(text)


@pytest.mark.parametrize("fields", ["auto", "all"])
async def test_no_value_of_a_secret_comes_into_opa_because_a_policy_reads_it(
    fleet: Fleet, fields: str
) -> None:
    """Its author is told so."""
    fleet.api.put(SECRETS, key("s", "n1"), **SECRET)
    fleet.policy("p", READS_VALUE, "data.kubernetes.secrets.n1.s.type")
    with capture_logs() as logs:
        async with fleet.replicating(with_secrets(fields, allowed=False)):
            await _decided_without_the_value(fleet)
    assert VALUE.encode() not in told_opa(fleet)
    assert VALUE not in str(logs)


async def _decided_without_the_value(fleet: Fleet) -> None:
    await until(lambda: fleet.settled and fleet.decision("a") is not None)
    assert fleet.decision("a")[READS_VALUE] == "absent"
    assert fleet.opa.data["kubernetes"]["secrets"]["n1"]["s"]["type"] == "Opaque"
    await until(lambda: status(fleet, "p") is not None)
    said = status(fleet, "p")
    assert said["status"] == "ok"
    assert said["warnings"][0]["message"].startswith("data.password of secrets is undefined: ")
    fleet.api.put(SECRETS, key("t", "n1"), **SECRET)
    await until(lambda: "t" in fleet.opa.data["kubernetes"]["secrets"]["n1"])


async def test_value_that_the_configuration_allows_comes_in_and_goes_with_the_permission(
    fleet: Fleet,
) -> None:
    fleet.api.put(SECRETS, key("s", "n1"), **SECRET)
    fleet.policy("p", READS_VALUE)

    def held() -> Any:
        return fleet.spec("secrets", "s", "n1")

    async with fleet.replicating(with_secrets(allowed=True)):
        await until(lambda: fleet.settled and held() == {"data": {"password": VALUE}})
        await until(lambda: fleet.decision("a") == {READS_VALUE: VALUE})
        await until(lambda: status(fleet, "p") == {"status": "ok"})
        fleet.replicator.configure(with_secrets(allowed=False))
        await until(lambda: fleet.settled and held() == {})
        await until(lambda: fleet.decision("a") == {READS_VALUE: "absent"})
        await until(lambda: "warnings" in status(fleet, "p"))
        fleet.replicator.configure(with_secrets("all", allowed=True))
        await until(lambda: fleet.settled and held().get("data") == SECRET["data"])


async def test_no_body_of_an_object_is_logged_whatever_goes_wrong_with_it(fleet: Fleet) -> None:
    """Nor one of a policy."""
    fleet.api.put(REPLICASETS, key("b", "n1"), metadata={"annotations": ["hidden"]}, spec="hidden")
    fleet.policy("p", "input.spec.a", "input.metadata.annotations.x")
    fleet.api.put(CONFIGMAPS, key("q", NAMESPACE), data={"q.rego": "does not compile\nhidden"})
    with capture_logs() as logs:
        async with fleet.replicating(BOTH):
            await until(lambda: fleet.settled and fleet.decision("a") is not None)
            fleet.api.put(REPLICASETS, key("c", "n1"), metadata={"labels": "hidden"}, spec=SPEC)
            await until(lambda: "c" in fleet.opa.data["kubernetes"]["replicasets"]["n1"])
    assert "policy_rejected" in {line["event"] for line in logs}
    assert "hidden" not in str(logs)
