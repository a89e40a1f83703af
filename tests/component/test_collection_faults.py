"""Every collection that is followed, and every answer that looks as if nothing were there."""

from __future__ import annotations

import ast
import json
import time
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kube_sync.kube.approvals import APPROVED, approvals
from kube_sync.kube.cache import Cache
from kube_sync.kube.client import KubeClient
from kube_sync.kube.collection import KubeCollection
from kube_sync.kube.configmaps import ConfigMaps, read_configmap
from kube_sync.kube.definitions import DEFINITIONS, Definitions
from kube_sync.kube.maybeserved import MaybeServed
from kube_sync.kube.placementdecisions import PLACEMENT_DECISIONS
from kube_sync.kube.placementpolicies import PLACEMENT_POLICIES, PlacementPolicies
from kube_sync.kube.policymaps import PolicyMaps
from kube_sync.kube.policyobjects import PolicyObjects
from kube_sync.kube.reflector import ListerWatcher, Reflector, Store
from kube_sync.kube.webhooks import CONFIGURATIONS, Registered
from kube_sync.objects import GroupVersionResource, ObjectKey
from kube_sync.policykinds.kinds import SCHEDULING
from kube_sync.policykinds.policy_cache import HeldPolicies
from kube_sync.policysync.copy_cache import CopyCache
from kube_sync.policysync.feedback_fields import FIELDS
from kube_sync.policysync.object_cache import ObjectCache
from kube_sync.policysync.spoke_collection import copy_in
from kube_sync.policysync.spoke_secrets import SpokeSecrets
from kube_sync.remediation.argocd.clusters import ArgoClusters
from kube_sync.remediation.clusters import Clusters
from kube_sync.remediation.targets import Targets
from kube_sync.replicator.bulk_load import EVERYWHERE
from kube_sync.replicator.mirror import Mirror
from kube_sync.replicator.selection import Part
from kube_sync.topology.controller.world import World
from kube_sync.topology.gateway import GATEWAY, gateway_api
from tests.fakes.apiserver import FakeApiServer, error_event, fake_apiserver, lists, watches
from tests.fakes.clients import CLUSTERS, CONFIGMAPS, REPLICASETS, SECRETS, key, kube_of
from tests.fakes.copies import AUTH, PLACE, copy, policy
from tests.fakes.definitions import definition, install
from tests.fakes.http import Handler, answer, failing, stream
from tests.fakes.listing import at_once
from tests.unit.async_tools import Waits, running, until

Probe = Callable[[], object]  # what a Store holds
ROOT = Path(__file__).parents[2]
TABLE = ROOT / "docs" / "replication.md"
GATEWAYS = GroupVersionResource(GATEWAY.group, "v1", "gateways")
# They hand on what they are given, and hold nothing.
HANDING_ON = {"Store", "_Valve", "Part", "FollowedKind", "Both", "Proven"}


def ignored(*_: object) -> None:
    return


def maps(store: ConfigMaps[Any]) -> tuple[Store, Probe]:
    return store, lambda: (store.listed, sorted(map(repr, store)))


def approved() -> tuple[Store, Probe]:
    return maps(approvals(["default"], ignored)[0])


def placement_policies() -> tuple[Store, Probe]:
    store = PlacementPolicies("default", ignored)
    return store, lambda: (store.listed, sorted(str(one.key) for one in store))


def mirror() -> tuple[Store, Probe]:
    store = Mirror("things", ("kubernetes",), ignored)

    def held() -> object:
        return store.known, sorted(map(str, store.keys())), store.pending

    return Loading(store), held


class Loading(Part):
    """A Part of a Mirror whose first document OPA holds as soon as it is whole."""

    def __init__(self, store: Mirror) -> None:
        super().__init__(store, EVERYWHERE)
        self._store = store

    def finish(self, *, known: bool) -> None:
        super().finish(known=known)
        if not self._store.loaded:
            at_once(self._load())

    async def _load(self) -> None:
        _, first = await self._store.first_load()
        self._store.first_written(first)


def topology() -> tuple[Store, Probe]:
    world = World()
    store = world.store(next(kind for kind in gateway_api().kinds if kind.id == GATEWAY))
    return store, lambda: (sorted(map(str, world.snapshot())), world.due)


def definitions() -> tuple[Store, Probe]:
    store = Definitions(ignored)
    return store, lambda: (store.listed, [one.name for one in store])


def held_policies() -> tuple[Store, Probe]:
    store = HeldPolicies(ignored)
    return store, lambda: sorted(map(str, store.objects))


def policy_objects() -> tuple[Store, Probe]:
    store = PolicyObjects(ignored)
    return store, lambda: (store.listed, len(store), store.any_in("default"))


def registered() -> tuple[Store, Probe]:
    store = Registered(ignored)
    return store, lambda: (store.listed, repr(store.found))


def targets() -> tuple[Store, Probe]:
    store = Targets(ignored)
    return store, lambda: (store.listed, sorted(str(name) for name, _ in store.objects.items()))


def clusters() -> tuple[Store, Probe]:
    store = Clusters(lambda _key: True, ignored, time.monotonic)
    return store, lambda: (store.listed, len(store), store.lowest(0.0))


def kept() -> tuple[Store, Probe]:
    store = Cache(lambda item: item.version, ignored, ignored)
    return store, lambda: (store.listed, store.get(key("one")), store.get(key("two")))


def bodies() -> tuple[Store, Probe]:
    store = ObjectCache(ignored)
    return store, lambda: (store.complete, sorted(map(str, store.objects)))


def secrets() -> tuple[Store, Probe]:
    store = SpokeSecrets(ignored)
    return store, lambda: (store.listed, sorted(store.spokes))


def argo_clusters() -> tuple[Store, Probe]:
    store = ArgoClusters()
    return store, lambda: (store.listed, repr(sorted(store.named().items())))


def copies() -> tuple[Store, Probe]:
    store = CopyCache(partial(copy_in, cluster="east", fields=FIELDS), ignored, "us")
    return store, lambda: (store.listed, [str(one.where) for one in store.of(policy())])


def content_of_a_copy() -> dict[str, Any]:
    managed = [{"manager": "us", "operation": "Apply"}]
    return {"metadata": {**copy().body["metadata"], "managedFields": managed}, "spec": {}}


@dataclass
class Case:
    """One collection; `row` is what the documentation calls it."""

    row: str
    gvr: GroupVersionResource
    make: Callable[[], tuple[Store, Probe]]
    content: dict[str, Any] = field(default_factory=dict[str, Any])
    where: ObjectKey = field(default_factory=lambda: key("one"))
    maybe: bool = False


_REGO = {"data": {"a.rego": "package a"}}
_MODULES = {"spec": {"modules": [{"name": "a.rego", "rego": "package a"}]}}
_APPROVED = {"metadata": {"annotations": {APPROVED: "a"}}}
_SPEC = {"spec": definition("Shade", "example.com", "v1")["spec"]}
_NOWHERE = ObjectKey("", "one")
CASES = [
    Case("policy ConfigMaps", CONFIGMAPS, lambda: maps(PolicyMaps("default", ignored)), _REGO),
    Case("PlacementPolicies", PLACEMENT_POLICIES, placement_policies, _MODULES, maybe=True),
    Case(
        "ConfigMaps with data",
        CONFIGMAPS,
        lambda: maps(ConfigMaps("default", ignored, read_configmap)),
        _REGO,
    ),
    Case("replicated resources, built in", REPLICASETS, mirror),
    Case("replicated resources, custom", CLUSTERS, mirror),
    Case("kinds of the topology", GATEWAYS, topology),
    Case("CustomResourceDefinitions", DEFINITIONS, definitions, _SPEC, _NOWHERE),
    Case("policies whose conditions are written", SCHEDULING.gvr, held_policies, _MODULES),
    Case("policies of built-in systems, for the webhook", SCHEDULING.gvr, policy_objects),
    Case("the webhook's registration", CONFIGURATIONS, registered, {}, _NOWHERE),
    Case("targets of the remediator", REPLICASETS, targets),
    Case("clusters to count", CLUSTERS, clusters),
    Case("ConfigMaps with approvals", CONFIGMAPS, approved, _APPROVED),
    Case("PlacementDecisions of ours, ClusterProfiles to refer to", PLACEMENT_DECISIONS, kept),
    Case("objects of the policy hub", GATEWAYS, bodies),
    Case("Secrets of spokes", SECRETS, secrets),
    Case("clusters of Argo CD", SECRETS, argo_clusters, {"data": {"name": "b25l"}}),
    Case("copies on spokes", AUTH, copies, content_of_a_copy(), PLACE),
]


def empty(case: Case) -> bytes:
    found = {"kind": "ThingList", "metadata": {"resourceVersion": "0"}, "items": []}
    return json.dumps({"apiVersion": case.gvr.version, **found}).encode()


_HALF = b'{"kind":"ThingList","apiVersion":"v1","metadata":{"resourceVersion":"9"},"items":['
# By what the documentation calls it: what a LIST is answered, and a WATCH.
FAULTS: dict[str, Callable[[Case], tuple[Handler, Handler]]] = {
    "404": lambda _case: (
        answer(404, b"404 page not found\n"),
        answer(404, b"404 page not found\n"),
    ),
    "404 of a stream": lambda _case: (
        failing(404, "the server could not find the requested resource"),
        stream(error_event(404, "NotFound")),
    ),
    "403": lambda _case: (failing(403, "RBAC: not ready"), failing(403, "RBAC: not ready")),
    "410": lambda _case: (failing(410, "too old"), stream(error_event(410))),
    "empty, resourceVersion 0": lambda case: (answer(200, empty(case)), answer(200, empty(case))),
    "half a body, cut": lambda _case: (stream(_HALF, cut=True), stream(_HALF, cut=True)),
    "half a body, whole": lambda _case: (answer(200, _HALF), answer(200, _HALF)),
}


class Bench:
    """One Store, filled by a Reflector that everything happens to."""

    def __init__(self, case: Case, api: FakeApiServer, client: KubeClient) -> None:
        self.case = case
        self.api = api
        self.store, self.held = case.make()
        self.seen: list[object] = []
        self.failures = 0
        source: ListerWatcher = KubeCollection(client, case.gvr)
        if case.maybe:
            source = MaybeServed(client, case.gvr, "default")
        self.reflector = Reflector(
            "test", source, self.store, self.report, backoff=Waits().backoff()
        )

    def report(self, reason: str | None) -> None:
        self.failures += reason is not None
        self.seen.append(self.held())

    def put(self, name: str) -> None:
        where = ObjectKey(self.case.where.namespace, name)
        self.api.put(self.case.gvr, where, **json.loads(json.dumps(self.case.content)))

    @asynccontextmanager
    async def filled(self) -> AsyncGenerator[object]:
        """Run until the object is held; yield what is held then."""
        nothing = self.held()
        self.put(self.case.where.name)
        async with running(self.reflector.run(), patience=10.0):
            await self.api.watched(self.case.gvr)
            await until(lambda: self.held() != nothing)
            self.seen.clear()
            yield self.held()

    def fault(self, handlers: Iterable[Handler]) -> list[Any]:
        """Let three LISTs and three WATCHes be answered so."""
        asked = (lists(self.case.gvr), watches(self.case.gvr))
        return [self.api.http.fault(*pair, times=3) for pair in zip(asked, handlers, strict=True)]


@asynccontextmanager
async def bench_of(case: Case, folder: Path) -> AsyncGenerator[Bench]:
    async with fake_apiserver() as api, kube_of(api, folder) as client:
        api.define(DEFINITIONS, "CustomResourceDefinition", namespaced=False)
        api.define(case.gvr, "Thing", namespaced=bool(case.where.namespace))
        yield Bench(case, api, client)


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.row)
async def test_answer_that_is_no_list_takes_nothing_away(
    tmp_path: Path, case: Case, fault: str
) -> None:
    async with bench_of(case, tmp_path) as bench, bench.filled() as before:
        of_list, of_watch = bench.fault(FAULTS[fault](case))
        bench.api.http.cut()
        await until(lambda: of_watch.times < 3)
        bench.api.bookmark(case.gvr)
        bench.api.compact()  # so that it has to be listed, too
        bench.api.http.cut()
        await until(lambda: of_list.times == 0)
        of_watch.times = 0
        await bench.api.watched(case.gvr)
        await until(lambda: bench.seen)
        assert {repr(one) for one in bench.seen} == {repr(before)}
        assert bench.held() == before
        if case.gvr not in (AUTH, CONFIGURATIONS):  # one copy, one registration
            bench.put("two")
            await until(lambda: bench.held() != before)


def test_every_store_of_a_collection_is_tried() -> None:
    tried = {type(store).__name__ for case in CASES for store, _ in [case.make()]}
    stores = {
        found.name
        for path in (ROOT / "kube_sync").rglob("*.py")
        if "def abandon(" in (source := path.read_text(encoding="utf-8")) or "Cache[" in source
        for found in ast.walk(ast.parse(source))
        if isinstance(found, ast.ClassDef)
        and ({"page", "finish", "abandon"} <= methods(found) or is_cache(found))
    }
    assert stores - HANDING_ON - {"KindStore", "Mirror", "ConfigMaps"} == tried - {
        "KindStore",  # handed out by a World
        "Loading",  # of a Mirror
        "ConfigMaps",
        "PolicyMaps",
    }


def is_cache(found: ast.ClassDef) -> bool:
    return any(ast.unparse(base).startswith("Cache[") for base in found.bases)


def methods(found: ast.ClassDef) -> set[str]:
    defined = (ast.FunctionDef, ast.AsyncFunctionDef)
    return {one.name for one in found.body if isinstance(one, defined)}


def test_table_of_the_documentation_names_every_collection() -> None:
    text = TABLE.read_text(encoding="utf-8").partition("## When the API server answers wrongly")[2]
    rows = [line.split("|")[1].strip() for line in text.splitlines() if line.startswith("| ")]
    assert [row for row in rows if row != "collection"][: len(CASES)] == [c.row for c in CASES]


async def test_custom_resource_that_is_gone_takes_its_objects_away(tmp_path: Path) -> None:
    """What is not believed at once is believed in the end."""
    case = next(case for case in CASES if case.make is clusters)
    async with fake_apiserver() as api, kube_of(api, tmp_path) as client:
        api.define(DEFINITIONS, "CustomResourceDefinition", namespaced=False)
        install(api, definition("ClusterProfile", CLUSTERS.group, CLUSTERS.version))
        bench = Bench(case, api, client)
        async with bench.filled() as before:
            api.undefine(CLUSTERS)
            await until(lambda: bench.failures > 2)
            assert bench.held() == before
            api.delete(DEFINITIONS, ObjectKey("", "clusterprofiles.multicluster.x-k8s.io"))
            await until(lambda: bench.held() != before)
            assert len(bench.store) == 0  # type: ignore[arg-type] # it is what is counted
