from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
from prometheus_client import REGISTRY

from kube_sync.decisions.canary import Canary
from kube_sync.errors import Conflict, SyncError
from kube_sync.kube.collection import Event, Item, ResourceVersion
from kube_sync.kube.placementpolicies import PlacementPolicies
from kube_sync.kube.policymaps import STATUS, PolicyMap, PolicyMaps
from kube_sync.kube.policynames import object_key, policy_key
from kube_sync.objects import ObjectKey
from kube_sync.observability.readiness import Readiness
from kube_sync.opa.analysis.paths import Path
from kube_sync.opa.analysis.result import Collection, Reads
from kube_sync.opa.builtins import refusal
from kube_sync.opa.client import OpaClient
from kube_sync.policies.bundle import RESOURCE, Bundle, Stands
from kube_sync.policies.bundle_server import BundleServer
from kube_sync.policies.bundle_server import Refused as Unpublished
from kube_sync.policies.epoch import Epoch
from kube_sync.policies.guard import Guard
from kube_sync.policies.marker import State
from kube_sync.policies.placementpolicy_status import CandidateOutcome, PolicyOutcome, Told
from kube_sync.policies.quarantine import Quarantine
from kube_sync.policies.reading import Reading
from kube_sync.policies.reconciler import PolicyReconciler, policy_loader
from kube_sync.policies.reporter import Reporter
from kube_sync.policies.required_fields import Need
from kube_sync.policies.set_compiler import Versions
from kube_sync.policies.staging.canaries import Canaries, Counting
from kube_sync.policies.staging.lane_builder import LaneMaker
from kube_sync.policies.staging.lanes import Counted, Lanes
from kube_sync.policies.staging.stages import Stages
from kube_sync.regoversion import in_version
from tests.fakes.compiler import FakeCompiler, reading
from tests.fakes.http import Recorded, answer
from tests.fakes.listing import Listing, listed
from tests.fakes.opa import FakeOpa, puts
from tests.unit.async_tools import Waits, running, until

NAMESPACE = "policies"
OK = '{"status":"ok"}'
BROKEN = "package a\ndoes not compile\n"


class Whole:
    """Data that holds everything, whatever is read."""

    narrowed = False

    def begin(self, needs: Iterable[Need | None]) -> None:
        """Do nothing."""

    def hold(self, needs: Iterable[Need | None]) -> bool:  # noqa: ARG002 - it holds all
        """Hold it."""
        return True

    def settle(self, need: Need | None) -> None:
        """Do nothing."""

    def withheld(self, reads: Reads) -> Mapping[str, Sequence[str]]:  # noqa: ARG002 - it holds all
        """Return nothing."""
        return {}


class Noting(Readiness):
    """Tells when the policies were found to be in force."""

    def __init__(self, met: Callable[[], None]) -> None:
        super().__init__()
        self._met = met
        self.seen: list[str] = []

    def waiting(self, condition: str, reason: str) -> None:
        super().waiting(condition, reason)
        self.seen.append(reason)

    def met(self, condition: str) -> None:
        super().met(condition)
        self._met()


class Watched(BundleServer):
    """A Shelf that remembers what was given out."""

    def __init__(self) -> None:
        super().__init__()
        self.published: list[Bundle] = []

    def publish(self, bundle: Bundle, stands: Stands, refused: Unpublished) -> bool:
        self.published.append(bundle)
        return super().publish(bundle, stands, refused)


class Kept:
    """Last good versions that outlive a loader."""

    def __init__(self) -> None:
        self.good: Versions = {}

    async def load(self) -> Any:
        return dict(self.good)

    async def save(self, good: Versions) -> None:
        self.good = dict(good)


class Bench:
    """A PolicyReconciler with one policy namespace and an OPA; statuses go back into the map."""

    def __init__(self, opa: FakeOpa, client: OpaClient) -> None:
        self.opa = opa
        self.client = client
        self.waits = Waits()
        self.readiness = Noting(self._met)
        self.digests: list[str] = []
        self.counts: list[int] = []
        self.steps: list[str] = []
        self.reads: list[Reads] = []
        self.statuses: list[tuple[str, str]] = []
        self.faults: list[str | None] = []
        self.refusal: SyncError | None = None
        self.versions = 0
        self.idle = asyncio.Event()
        self.compiler = FakeCompiler()
        self.canary_compiler: FakeCompiler | None = None  # where that is another one
        self.born: dict[str, str] = {}  # by name
        self.stages: dict[str, str] = {}
        self.terms: dict[str, dict[str, str]] = {}  # annotations
        self.everywhere = True  # the webhook asks the same OPA
        self.staged: list[Reads | None] = []  # what was told of a lane
        self.counting: list[Counting | None] = []
        self.canaries: list[Canary | str | None] = []
        self.places: list[tuple[str, ...]] = []
        self.kept = Kept()
        self.recorded: list[State] = []  # what is on record of what is tried
        self.quarantine = Quarantine(self)
        self.data: Any = Whole()
        self.loader = self.new_loader()
        self.maps = PolicyMaps(NAMESPACE, self.wake)
        listed(self.maps, Listing([], ResourceVersion("1")))
        self.objects = PlacementPolicies(NAMESPACE, self.wake)
        listed(self.objects, Listing([], ResourceVersion("1")))
        self.told: dict[str, PolicyOutcome | CandidateOutcome | None] = {}  # by name
        self.tellings: list[list[str]] = []  # the names of all that was told of at once
        self.loaded = asyncio.Event()
        self.loaded.set()
        self.applied = asyncio.Event()

    def new_loader(self) -> PolicyReconciler:
        """Return what a new process has."""
        self.shelf = Watched()
        return policy_loader(
            self.client,
            self.compiler,
            self.shelf,
            Guard([("kubernetes", "things")]),
            Reading(self.compiler, "p", self._collections),
            {},
            record=self.kept,
            reporter=Reporter(
                self._annotate, self.quarantine, at_fault=self.faults.append, tell=self._tell
            ),
            readiness=self.readiness,
            quarantine=self.quarantine,
            stages=self._stages,
            backoff=self.waits.backoff(),
        )

    def _stages(self, reading: Reading, news: asyncio.Event) -> Stages:
        self.news = news
        canary = self.maker(self.canary_compiler)
        return Stages(
            reading,
            news,
            lanes=Lanes(self.maker()),
            canaries=Canaries(Lanes(canary, "canary"), "a", everywhere=self.everywhere),
            candidates=Lanes(self.maker(), "candidate"),
        )

    async def load(self) -> State:
        return State()

    async def write(self, state: State) -> None:
        self.recorded.append(State(dict(state.trying), dict(state.refused)))

    def maker(self, compiler: FakeCompiler | None = None) -> LaneMaker:
        return LaneMaker(compiler or self.compiler, {}, lambda lane: f"package batch.{lane}")

    async def _collections(self) -> dict[str, Collection]:
        return {"things": Collection(("kubernetes", "things"))}

    def wake(self) -> None:
        self.idle.clear()
        self.loader.wake()

    def _met(self) -> None:
        # The loader says so at the end of each turn; it waits now, unless there was news since.
        if not self.news.is_set():
            self.idle.set()

    async def _annotate(self, policy: PolicyMap, status: str) -> None:
        self.statuses.append((policy.key.name, status))
        if self.refusal is not None:
            raise self.refusal
        modules = {i.rpartition("/")[2]: source for i, source in policy.modules.items()}
        self.put(policy.key.name, status, **modules)

    def _tell(self, told: Told) -> None:
        self.told = {object_key(policy.key).name: outcome for policy, outcome in told}
        self.tellings.append([*self.told])

    def put_object(self, name: str, *, stage: str = "active", **modules: str) -> None:
        """Make a PlacementPolicy hold these modules."""
        found = [{"name": module, "rego": source} for module, source in modules.items()]
        self.put_spec(name, {"modules": found, "stage": stage})

    def put_spec(self, name: str, spec: Any, status: Any = None, **terms: str) -> None:
        self.versions += 1
        born = self.born.setdefault(f"{name}/", f"2026-11-21T00:00:{self.versions:02}Z")
        metadata = {"name": name, "creationTimestamp": born, "annotations": terms}
        body = json.dumps({"metadata": metadata, "spec": spec, "status": status}).encode()
        version = ResourceVersion(str(self.versions))
        item = Item(ObjectKey(NAMESPACE, name), "uid", version, body)
        self.objects.apply(Event("MODIFIED", version, item))

    def put(self, name: str, status: str | None = None, **modules: str) -> None:
        """Make `name` hold these modules, as a watch event would."""
        self.versions += 1
        born = self.born.setdefault(name, f"2026-11-21T00:00:{self.versions:02}Z")
        metadata: dict[str, Any] = {"name": name, "creationTimestamp": born}
        metadata["annotations"] = {**self.terms.get(name, {})}
        if status is not None:
            metadata["annotations"][STATUS] = status
        if name in self.stages:
            metadata["labels"] = {"kube-sync.io/stage": self.stages[name]}
        body = json.dumps({"metadata": metadata, "data": modules}).encode()
        version = ResourceVersion(str(self.versions))
        item = Item(ObjectKey(NAMESPACE, name), "uid", version, body)
        self.maps.apply(Event("MODIFIED", version, item))

    def delete(self, name: str) -> None:
        del self.born[name]
        item = Item(ObjectKey(NAMESPACE, name), "uid", ResourceVersion("9"), b"{}")
        self.maps.apply(Event("DELETED", ResourceVersion("9"), item))

    def lane_changed(self, reads: Reads | None) -> None:
        self.staged.append(reads)

    def counting_changed(self, counting: Counting | None) -> None:
        self.counting.append(counting)

    def canary_changing(self) -> None:
        self.canaries.append("changing")

    def canary_changed(self, canary: Canary | None) -> None:
        self.canaries.append(canary)

    def _changed(self, digest: str, modules: int, reads: Reads) -> None:
        self.steps.append("changed")
        self.reads.append(reads)
        self.digests.append(digest)
        self.counts.append(modules)

    def _renamed(self, digest: str, modules: int, reads: Reads) -> None:
        self._changed(digest, modules, reads)
        self.steps[-1] = "renamed"

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        epoch = Epoch(
            maps=[self.maps],
            objects=[self.objects],
            loaded=self.loaded,
            applied=self.applied,
            changing=lambda: self.steps.append("changing"),
            changed=self._changed,
            renamed=self._renamed,
            stands=self._stands,
            places=lambda: self.places,
            data=self.data,
            staging=self,
        )
        async with running(self.loader.run(epoch)):
            yield

    async def _stands(self) -> None:
        """Find the epoch in OPA."""

    @asynccontextmanager
    async def applied_once(self) -> AsyncGenerator[None]:
        async with self.running():
            await self.applied.wait()
            await self.idle.wait()
            yield

    @property
    def modules(self) -> dict[str, str]:
        prefix = f"{NAMESPACE}/"
        held = self.opa.policies.items()
        return {i.removeprefix(prefix): s for i, s in held if i.startswith(prefix)}

    @property
    def status(self) -> dict[str, str | None]:
        policies = (*self.maps, *self.maps.staged, *self.maps.candidates)
        return {policy.key.name: policy.status for policy in policies}

    @property
    def lanes(self) -> dict[str, str]:
        """What OPA holds of lanes."""
        prefix = "kube_sync_stage/"
        return {i: s for i, s in self.opa.policies.items() if i.startswith(prefix)}

    async def ask_for_a_while(self) -> None:
        """Make round trips to OPA: what the loader were to send would come before the last."""
        for _ in range(5):
            await self.client.policies()

    async def until_idle(self) -> None:
        await self.idle.wait()


@pytest.fixture
def bench(opa: FakeOpa, client: OpaClient) -> Bench:
    return Bench(opa, client)


def policy_writes(recorded: Recorded) -> bool:
    return recorded.path.startswith("/v1/policies/")


def error_of(bench: Bench, name: str) -> Any:
    """Read the status annotation of a policy that is in error."""
    status = json.loads(bench.status[name] or "null")
    assert status["status"] == "error"
    return status["error"]


async def test_policies_wait_for_the_data(bench: Bench, opa: FakeOpa) -> None:
    """A policy over half the data would decide on half a fleet."""
    bench.loaded.clear()
    bench.put("p", **{"a.rego": "package a"})
    async with bench.running():
        await until(lambda: "policies" in bench.readiness.reasons)
        await bench.ask_for_a_while()
        assert not any(map(policy_writes, opa.http.requests))
        bench.loaded.set()
        await bench.applied.wait()
        assert bench.modules == {"p/a.rego": "package a"}


async def test_policies_wait_for_every_namespace_to_be_listed(bench: Bench, opa: FakeOpa) -> None:
    """Unloading what is merely not listed yet would leave resources without a policy."""
    bench.maps.listed = False
    async with bench.running():
        await until(lambda: "not listed" in bench.readiness.reasons.get("policies", ""))
        await bench.ask_for_a_while()
        assert not any(map(policy_writes, opa.http.requests))
        listed(bench.maps, Listing([], ResourceVersion("2")))
        await bench.applied.wait()


async def test_module_is_loaded_and_its_status_says_ok(bench: Bench) -> None:
    bench.put("p", **{"a.rego": "package a", "b.rego": "package b", "README": "words"})
    async with bench.applied_once():
        assert bench.modules == {"p/a.rego": "package a", "p/b.rego": "package b"}
        assert bench.status == {"p": OK}


async def test_unchanged_world_writes_nothing(bench: Bench, opa: FakeOpa) -> None:
    bench.put("p", **{"a.rego": "package a"})
    async with bench.applied_once():
        seen, statuses = len(opa.http.requests), len(bench.statuses)
        for _ in range(3):
            bench.wake()
            await bench.until_idle()
        assert opa.http.requests[seen:] == []
        assert len(bench.statuses) == statuses == 1


async def test_status_that_is_right_already_is_not_written(bench: Bench) -> None:
    bench.put("p", OK, **{"a.rego": "package a"})
    async with bench.applied_once():
        assert bench.statuses == []


async def test_faulty_config_map_keeps_its_last_good_version_and_says_why(bench: Bench) -> None:
    bench.put("p", **{"a.rego": "package a", "b.rego": "package b"})
    async with bench.applied_once():
        bench.put("p", OK, **{"a.rego": BROKEN, "b.rego": "package b # new"})
        await bench.until_idle()
        assert bench.modules == {"p/a.rego": "package a", "p/b.rego": "package b"}
        (cause,) = error_of(bench, "p")["errors"]
        assert cause["location"] == {"file": f"{NAMESPACE}/p/a.rego", "row": 2, "col": 1}
        assert "unexpected identifier" in cause["message"]


async def test_mended_module_is_loaded_and_its_status_says_ok_again(bench: Bench) -> None:
    bench.put("p", **{"a.rego": BROKEN})
    async with bench.applied_once():
        assert bench.modules == {}
        bench.put("p", bench.status["p"], **{"a.rego": "package a"})
        await bench.until_idle()
        assert bench.modules == {"p/a.rego": "package a"}
        assert bench.status == {"p": OK}


async def test_rejected_module_delays_no_other(bench: Bench) -> None:
    bench.put("bad", **{"a.rego": BROKEN})
    bench.put("good", **{"a.rego": "package a"})
    async with bench.applied_once():
        assert bench.modules == {"good/a.rego": "package a"}
        assert bench.status["good"] == OK
        assert "policies" not in bench.readiness.reasons


async def test_faulty_config_maps_are_told_until_they_are_mended(bench: Bench) -> None:
    bench.put("p", **{"a.rego": BROKEN})
    bench.put("q", **{"a.rego": BROKEN})
    async with bench.applied_once():
        where = f"policy ConfigMap {NAMESPACE}/p: not in force as it is: {NAMESPACE}/p/a.rego:2: "
        assert str(bench.faults[-1]).startswith(where)
        assert str(bench.faults[-1]).endswith(" (and 1 more)")
        assert REGISTRY.get_sample_value("kube_sync_policies_rejected") == 2
        for name in "pq":
            bench.put(name, **{"a.rego": "package a"})
        await bench.until_idle()
        assert bench.faults[-1] is None
        assert REGISTRY.get_sample_value("kube_sync_policies_rejected") == 0


async def test_several_rejected_modules_are_all_named(bench: Bench) -> None:
    bench.put("p", **{"a.rego": BROKEN, "b.rego": BROKEN})
    async with bench.applied_once():
        causes = error_of(bench, "p")["errors"]
        files = {cause["location"]["file"] for cause in causes}
        assert files == {f"{NAMESPACE}/p/a.rego", f"{NAMESPACE}/p/b.rego"}


async def test_rejection_without_causes_is_told_with_its_message(
    bench: Bench, opa: FakeOpa
) -> None:
    opa.http.fault(puts(f"/v1/policies/{NAMESPACE}"), answer(400, b"no"), times=9)
    bench.put("p", **{"a.rego": "package a"})
    async with bench.applied_once():
        first, second = error_of(bench, "p")["errors"]
        assert first == {"code": "", "message": "no"}
        assert "only be loaded as a bundle" in second["message"]


async def test_refused_module_delays_no_other_and_says_so(bench: Bench, opa: FakeOpa) -> None:
    """OPA's own authorization may leave a namespace, or an id, out."""
    opa.http.fault(puts(f"/v1/policies/{NAMESPACE}/bad"), answer(401, b"no"), times=99)
    bench.put("bad", **{"a.rego": "package a"})
    bench.put("good", **{"a.rego": "package a"})
    async with bench.applied_once():
        assert bench.modules == {"good/a.rego": "package a"}
        assert error_of(bench, "bad")["code"] == "unauthorized"
        assert REGISTRY.get_sample_value("kube_sync_policies_rejected") == 1


async def test_last_good_version_is_put_into_a_restarted_opa(bench: Bench, opa: FakeOpa) -> None:
    """A new OPA knows nothing; leaving the module out would change decisions."""
    bench.put("p", **{"a.rego": "package a"})
    async with bench.applied_once():
        bench.put("p", OK, **{"a.rego": BROKEN})
        await bench.until_idle()
    opa.restart()
    bench.applied.clear()
    async with bench.applied_once():
        assert bench.modules == {"p/a.rego": "package a"}
        assert error_of(bench, "p")


async def test_what_a_last_good_version_needs_stays_with_it(bench: Bench, opa: FakeOpa) -> None:
    """Deleting the library must not take away what the faulty edit alone could not."""
    bench.put("lib", **{"l.rego": "package lib"})
    bench.put("p", **{"a.rego": f"# needs: {NAMESPACE}/lib/l.rego"})
    async with bench.applied_once():
        bench.put("p", OK, **{"a.rego": BROKEN})
        await bench.until_idle()
    opa.restart()
    bench.delete("lib")
    bench.applied.clear()
    async with bench.applied_once():
        assert set(bench.modules) == {"lib/l.rego", "p/a.rego"}
        assert error_of(bench, "p")


async def test_last_good_version_of_a_dropped_module_is_forgotten(bench: Bench) -> None:
    bench.put("p", **{"a.rego": "package a"})
    async with bench.applied_once():
        bench.delete("p")
        await bench.until_idle()
        bench.put("p", **{"a.rego": BROKEN})
        await bench.until_idle()
        assert bench.modules == {}


@pytest.mark.parametrize("names", ["abc", "cba", "bac"])
async def test_modules_that_need_each_other_load_in_any_order(bench: Bench, names: str) -> None:
    """Ids sort by name, needs do not."""
    first, second, third = (f"{name}/m.rego" for name in names)
    sources = {
        first: f"# needs: {NAMESPACE}/{second}",
        second: f"# needs: {NAMESPACE}/{third}",
        third: "package last",
    }
    for policy_id, source in sources.items():
        bench.put(policy_id[0], **{"m.rego": source})
    async with bench.applied_once():
        assert bench.modules == sources
        assert set(bench.status.values()) == {OK}
        for name in names:
            bench.delete(name)
        await bench.until_idle()
        assert bench.modules == {}


async def test_need_that_comes_later_mends_the_module_that_waited(bench: Bench) -> None:
    bench.put("a", **{"m.rego": f"# needs: {NAMESPACE}/lib/m.rego"})
    async with bench.applied_once():
        assert bench.modules == {}
        bench.put("lib", **{"m.rego": "package lib"})
        await bench.until_idle()
        assert set(bench.modules) == {"a/m.rego", "lib/m.rego"}
        assert bench.status == {"a": OK, "lib": OK}


async def test_dropped_key_is_unloaded(bench: Bench) -> None:
    bench.put("p", **{"a.rego": "package a", "b.rego": "package b"})
    async with bench.applied_once():
        bench.put("p", OK, **{"b.rego": "package b"})
        await bench.until_idle()
        assert set(bench.modules) == {"p/b.rego"}


async def test_module_that_others_need_stays_until_they_are_gone(bench: Bench) -> None:
    bench.put("lib", **{"m.rego": "package lib"})
    bench.put("z", **{"m.rego": f"# needs: {NAMESPACE}/lib/m.rego"})
    async with bench.applied_once():
        bench.delete("lib")
        await bench.until_idle()
        assert set(bench.modules) == {"lib/m.rego", "z/m.rego"}
        bench.delete("z")
        await bench.until_idle()
        assert bench.modules == {}


async def test_modules_of_an_earlier_process_are_adopted(bench: Bench, opa: FakeOpa) -> None:
    """What it held may be anything: what is wanted is written again, the rest unloaded."""
    opa.policies = {
        f"{NAMESPACE}/p/a.rego": "package old",
        f"{NAMESPACE}/gone/a.rego": "package gone",
        "mounted/from/a/file.rego": "package static",
        f"{NAMESPACE}-other/p/a.rego": "package other",
    }
    bench.put("p", **{"a.rego": "package a"})
    async with bench.applied_once():
        assert bench.modules == {"p/a.rego": "package a"}
        assert opa.policies["mounted/from/a/file.rego"] == "package static"
        assert f"{NAMESPACE}-other/p/a.rego" in opa.policies


async def test_status_changed_only_when_it_says_something_new(bench: Bench) -> None:
    bench.put("p", **{"a.rego": BROKEN})
    async with bench.applied_once():
        bench.wake()
        await bench.until_idle()
        assert len(bench.statuses) == 1
        bench.put("p", bench.status["p"], **{"a.rego": BROKEN + "\n"})
        await bench.until_idle()
        assert len(bench.statuses) == 1


async def test_conflict_on_the_status_is_ignored(bench: Bench) -> None:
    """The next version of the ConfigMap is on its way, and gets a status of its own."""
    bench.refusal = Conflict("409 modified")
    bench.put("p", **{"a.rego": "package a"})
    bench.put("q", **{"a.rego": "package q"})
    async with bench.applied_once():
        assert set(bench.modules) == {"p/a.rego", "q/a.rego"}
        assert sorted(bench.statuses) == [("p", OK), ("q", OK)]
        assert bench.readiness.conditions["policies"] == "ok"
    assert bench.waits.seconds == []


async def test_forbidden_module_is_not_loaded_and_its_status_says_what_it_may_not(
    bench: Bench,
) -> None:
    bench.put("bad", **{"a.rego": "package system.authz"})
    bench.put("good", **{"a.rego": "package a"})
    async with bench.applied_once():
        assert bench.modules == {"good/a.rego": "package a"}
        error = error_of(bench, "bad")
        assert error["code"] == "forbidden"
        assert error["errors"][0]["message"] == "package system.authz is reserved"
        assert error["errors"][0]["location"] == {"file": f"{NAMESPACE}/bad/a.rego"}


async def test_rego_v0_for_an_opa_that_takes_policies_one_by_one_is_refused_with_the_way_out(
    bench: Bench,
) -> None:
    """`PUT /v1/policies` has no version: OPA would refuse it for a syntax that is none of v1."""
    bench.put("old", **{"a.rego": in_version("package a", 0)})
    bench.put("new", **{"a.rego": "package a"})
    async with bench.applied_once():
        assert bench.modules == {"new/a.rego": "package a"}
        error = error_of(bench, "old")
        assert error["code"] == "forbidden"
        assert "PUT /v1/policies has no version" in error["message"]


async def test_module_that_becomes_forbidden_keeps_the_last_good_one(bench: Bench) -> None:
    bench.put("p", **{"a.rego": "package a"})
    async with bench.applied_once():
        bench.put("p", OK, **{"a.rego": "package system http.send"})
        await bench.until_idle()
        assert bench.modules == {"p/a.rego": "package a"}
        assert error_of(bench, "p")["message"] == (
            f"package system is reserved; {refusal('http.send')}"
        )


async def test_only_what_is_in_doubt_is_inspected_and_once(bench: Bench) -> None:
    """Parsing takes as long as compiling."""
    suspect = "package a # http.send"
    bench.put("p", **{"a.rego": suspect, "b.rego": "package plain", "c.rego": BROKEN[8:]})
    async with bench.applied_once():
        bench.put("q", **{"a.rego": "package q"})
        await bench.until_idle()
        (inspected,) = bench.compiler.inspected
        assert sorted(inspected.values()) == sorted([suspect, BROKEN[8:]])


async def test_unchanged_set_is_not_compiled_again(bench: Bench) -> None:
    bench.put("p", **{"a.rego": BROKEN})
    async with bench.applied_once():
        compiled = len(bench.compiler.checked)
        bench.wake()
        await bench.until_idle()
        assert len(bench.compiler.checked) == compiled


async def test_failure_is_tried_again_after_as_long_as_opa_asks(bench: Bench, opa: FakeOpa) -> None:
    bench.put("p", **{"a.rego": "package a"})
    opa.http.fault(puts(f"/v1/policies/{NAMESPACE}"), answer(503, b"busy", retry_after="7"))
    async with bench.applied_once():
        assert bench.waits.seconds == [7.0]
        assert any("503 busy" in reason for reason in bench.readiness.seen)
        assert set(bench.modules) == {"p/a.rego"}


async def test_change_of_what_is_in_force_is_told_once(bench: Bench) -> None:
    bench.put("p", **{"a.rego": "package a"})
    async with bench.applied_once():
        assert len(bench.digests) == 1
        bench.put("p", OK, **{"a.rego": BROKEN})
        await bench.until_idle()
        assert len(bench.digests) == 1  # the last good version is still in force
        bench.put("p", OK, **{"a.rego": "package b"})
        await bench.until_idle()
        assert len(set(bench.digests)) == 2
        assert bench.counts == [1, 1]


async def test_new_epoch_is_told_the_digest_again(bench: Bench) -> None:
    bench.put("p", **{"a.rego": "package a"})
    async with bench.applied_once():
        pass
    bench.applied.clear()
    async with bench.applied_once():
        assert len(bench.digests) == 2
        assert len(set(bench.digests)) == 1


async def test_another_process_knows_the_last_good_version(bench: Bench, opa: FakeOpa) -> None:
    bench.put("p", **{"a.rego": "package a"})
    async with bench.applied_once():
        bench.put("p", OK, **{"a.rego": BROKEN})
        await bench.until_idle()
    opa.restart()
    bench.loader = bench.new_loader()
    bench.applied.clear()
    async with bench.applied_once():
        assert bench.modules == {"p/a.rego": "package a"}
        status = json.loads(bench.status["p"] or "")
        assert status["in_force"] == "the last good version"


async def test_faulty_config_map_without_a_good_version_says_that_nothing_of_it_is_in_force(
    bench: Bench,
) -> None:
    bench.put("p", **{"a.rego": BROKEN, "b.rego": "package b"})
    async with bench.applied_once():
        assert bench.modules == {}
        assert json.loads(bench.status["p"] or "")["in_force"] == "nothing of this ConfigMap"


async def test_policies_that_opa_loaded_itself_are_compiled_with_the_others(
    bench: Bench, opa: FakeOpa
) -> None:
    opa.policies = {"etc/own.rego": "package own"}
    bench.put("p", **{"a.rego": "package a"})
    async with bench.applied_once():
        assert "static/etc/own.rego" in bench.compiler.checked[-1]
        assert opa.policies["etc/own.rego"] == "package own"


async def test_own_policies_that_do_not_compile_here_are_left_out_of_the_question(
    bench: Bench, opa: FakeOpa
) -> None:
    """OPA may run with options that the compiler does not have."""
    opa.policies = {"etc/own.rego": BROKEN}
    bench.put("p", **{"a.rego": "package a"})
    opa.http.fault(puts("/v1/policies"), answer(200, b"{}"), times=9)
    async with bench.applied_once():
        assert bench.status == {"p": OK}
        assert "static/etc/own.rego" not in bench.compiler.checked[-1]


async def test_policy_where_a_data_config_map_lies_waits_for_the_place(bench: Bench) -> None:
    """In a bundle it would make OPA refuse the whole set."""
    bench.places = [("team", "limits")]
    bench.put("p", **{"a.rego": "package team.limits.more"})
    async with bench.applied_once():
        assert bench.modules == {}
        assert "where replicated data lies" in error_of(bench, "p")["message"]
        bench.places = []
        bench.wake()
        await bench.until_idle()
        assert bench.modules == {"p/a.rego": "package team.limits.more"}


async def test_what_cannot_be_analysed_counts_as_read_whole(bench: Bench) -> None:
    """The fake compiler gives no tree."""
    bench.put("p", **{"a.rego": "package a"})
    async with bench.applied_once():
        (reads,) = bench.reads
        assert reads.gave_up is not None
        assert reads.target_paths("things") == ((),)


async def test_policy_that_cannot_be_analysed_is_warned_with_file_and_row_and_no_other(
    bench: Bench,
) -> None:
    """It costs all policies: nobody would look for the reason in the log of the replicator."""
    bench.compiler.trees = True
    bench.compiler.odd = "# odd"
    bench.put("p", **{"a.rego": "package p\n\n# odd\n"})
    bench.put("q", **{"b.rego": "package q"})
    async with bench.applied_once():
        said = {name: json.loads(status) for name, status in bench.statuses}
        (warning,) = said["p"]["warnings"]
        assert (warning["code"], warning["file"]) == ("not_analysed", "policies/p/a.rego")
        assert warning["message"].startswith(
            "policies/p/a.rego:3: what this rule reads cannot be found out ("
        )
        assert said["p"]["status"] == "ok"
        assert said["q"] == {"status": "ok"}


async def test_whoever_decides_is_told_before_opa_gets_another_set_and_after(bench: Bench) -> None:
    """In between, objects that the old policies did not tell apart may be decided differently."""
    bench.put("p", **{"a.rego": "package a"})
    async with bench.applied_once():
        assert bench.steps == ["changing", "changed"]
        bench.wake()
        await bench.until_idle()
        assert bench.steps == ["changing", "changed"]
        bench.put("p", OK, **{"a.rego": "package b"})
        await bench.until_idle()
        assert bench.steps == ["changing", "changed"] * 2


@pytest.mark.parametrize(
    ("name", "package", "expected"),
    [
        ("other", "q # edited", ["renamed"]),
        ("new", "r", ["renamed"]),
        ("decides", "p # edited", ["changing", "changed"]),
        ("new", "p.deeper", ["changing", "changed"]),
        ("new", "kube_sync_budget", ["changing", "changed"]),
        ("other", "p.deeper", ["changing", "changed"]),
    ],
)
async def test_edit_that_no_decision_looks_at_changes_none(
    bench: Bench, name: str, package: str, expected: list[str]
) -> None:
    """`p` is what decides here."""
    bench.compiler.trees = True
    bench.put("decides", **{"a.rego": "package p\n"})
    bench.put("other", **{"b.rego": "package q\n"})
    async with bench.applied_once():
        assert bench.steps == ["changing", "changed"]
        analysed = len(bench.compiler.analysed)
        bench.put(name, **{"b.rego" if name == "other" else "a.rego": f"package {package}\n"})
        await bench.until_idle()
        assert bench.steps[2:] == expected
        assert len(bench.compiler.analysed) - analysed == (expected != ["renamed"])
        assert len(set(bench.digests)) == 2
        before = len(bench.steps)
        bench.delete(name)
        await bench.until_idle()
        assert bench.steps[before:] == expected


async def test_edits_are_compared_with_what_was_decided_by(bench: Bench) -> None:
    """Not with the last edit: several may be on their way, and one be taken back."""
    bench.compiler.trees = True
    bench.put("decides", **{"a.rego": "package p\n"})
    async with bench.applied_once():
        bench.put("other", **{"b.rego": "package q\n"})
        await bench.until_idle()
        bench.put("decides", **{"a.rego": "package p # edited\n"})
        bench.put("other", **{"b.rego": "package r\n"})
        await bench.until_idle()
        assert bench.steps == ["changing", "changed", "renamed", "changing", "changed"]


async def test_what_policies_read_is_found_out_while_opa_fetches_them(
    bench: Bench, opa: FakeOpa
) -> None:
    """Until it is known, no decision is shared: it must not come on top of the fetching."""
    opa.config = {"bundles": {"b": {"resource": RESOURCE}}}
    bench.put("p", **{"a.rego": "package a"})
    async with bench.running():
        await until(lambda: bench.compiler.analysed)
        assert bench.steps == ["changing"]
        assert [*bench.compiler.analysed[-1].values()] == ["package a"]


async def test_staged_policy_is_a_lane_beside_what_is_in_force(bench: Bench, opa: FakeOpa) -> None:
    bench.put("p", **{"a.rego": "package a\nx := data.a.y\n"})
    async with bench.applied_once():
        before, steps, seen = bench.digests[:], bench.steps[:], len(opa.http.requests)
        bench.stages["p-candidate"] = "shadow"
        bench.put("p-candidate", **{"a.rego": "package a\nx := data.a.z\n"})
        await bench.until_idle()
        assert bench.modules == {"p/a.rego": "package a\nx := data.a.y\n"}
        assert bench.lanes == {
            "kube_sync_stage/shadow/policies__p-candidate__a.rego": (
                "package kube_sync_stage.shadow.a\nx := data.kube_sync_stage.shadow.a.z\n"
            ),
            "kube_sync_stage/shadow/batch": "package batch.shadow",
        }
        ok = {"status": "ok", "stage": "shadow", "stands_for": f"{NAMESPACE}/p"}
        status = json.loads(bench.status["p-candidate"] or "")
        assert status.pop("modules")
        assert status == ok
        assert bench.status["p"] == OK
        assert [reads is not None for reads in bench.staged] == [True]
        # What decides is what it was: nobody is told anything of it, and nothing of it is sent.
        assert (bench.digests, bench.steps, bench.counts) == (before, steps, [1])
        writes = filter(policy_writes, opa.http.requests[seen:])
        assert all("kube_sync_stage" in found.path for found in writes)
        seen = len(opa.http.requests)
        bench.wake()
        await bench.until_idle()
        assert opa.http.requests[seen:] == []


async def test_lane_goes_with_what_was_staged_and_is_made_anew_with_what_is_in_force(
    bench: Bench,
) -> None:
    bench.stages["q"] = "shadow"
    bench.put("p", **{"a.rego": "package a"})
    bench.put("q", **{"a.rego": "package b"})
    async with bench.applied_once():
        assert bench.lanes["kube_sync_stage/shadow/policies__p__a.rego"].endswith("shadow.a")
        bench.put("p", OK, **{"a.rego": "package c"})
        await bench.until_idle()
        assert bench.lanes["kube_sync_stage/shadow/policies__p__a.rego"].endswith("shadow.c")
        bench.delete("q")
        await bench.until_idle()
        assert bench.lanes == {}
        # Told that it goes before it does, each time: nobody asks what is being replaced.
        assert [reads is not None for reads in bench.staged] == [True, False, True, False]
        assert bench.modules == {"p/a.rego": "package c"}


async def test_staged_policy_at_fault_touches_nothing_and_says_why(bench: Bench) -> None:
    bench.stages["q"] = "shadow"
    bench.put("p", **{"a.rego": "package a"})
    bench.put("q", **{"a.rego": BROKEN})
    async with bench.applied_once():
        assert (bench.modules, bench.lanes) == ({"p/a.rego": "package a"}, {})
        (cause,) = error_of(bench, "q")["errors"]
        assert cause["location"] == {"file": f"{NAMESPACE}/q/a.rego", "row": 2, "col": 1}
        assert bench.faults[-1] is None
        assert bench.counts == [1]
        assert "policies" not in bench.readiness.reasons


async def test_policy_of_a_stage_that_nobody_knows_is_not_in_force_and_says_so(
    bench: Bench,
) -> None:
    bench.stages["q"] = "shdow"
    bench.put("q", **{"a.rego": "package b"})
    async with bench.applied_once():
        assert (bench.modules, bench.lanes, bench.counts) == ({}, {}, [0])
        error = error_of(bench, "q")
        assert error["code"] == "stage"
        assert error["message"].startswith("nobody knows the stage 'shdow'")
        assert f"{NAMESPACE}/q: not in force as it is" in str(bench.faults[-1])


async def test_policy_that_is_taken_out_of_force_by_its_stage_is_unloaded(bench: Bench) -> None:
    bench.put("p", **{"a.rego": "package a"})
    async with bench.applied_once():
        bench.stages["p"] = "candidate"
        bench.put("p", OK, **{"a.rego": "package a"})
        await bench.until_idle()
        assert (bench.modules, bench.lanes) == ({}, {})
        bench.stages["p"] = "active"
        bench.put("p", OK, **{"a.rego": "package a"})
        await bench.until_idle()
        assert bench.modules == {"p/a.rego": "package a"}


async def test_candidate_is_compiled_and_opa_is_not_given_it(bench: Bench, opa: FakeOpa) -> None:
    bench.put("p", **{"a.rego": "package a\nx := data.a.y\n"})
    async with bench.applied_once():
        before, steps, seen = bench.digests[:], bench.steps[:], len(opa.http.requests)
        bench.stages["p-candidate"] = "candidate"
        bench.put("p-candidate", **{"a.rego": "package a\nx := data.a.z\n"})
        await bench.until_idle()
        status = json.loads(bench.status["p-candidate"] or "")
        assert status.pop("modules")
        assert status == {
            "status": "ok",
            "stage": "candidate",
            "stands_for": f"{NAMESPACE}/p",
            "plan": f"kube-sync plan --staged --candidate {NAMESPACE}/p-candidate",
        }
        own = {f"{NAMESPACE}/p-candidate/a.rego": "package a\nx := data.a.z\n"}
        assert bench.compiler.checked[-1] == own, "in the place of what it stands for"
        assert (bench.digests, bench.steps, bench.staged) == (before, steps, [])
        assert not any(map(policy_writes, opa.http.requests[seen:]))
        compiled = len(bench.compiler.checked)
        bench.wake()
        await bench.until_idle()
        assert len(bench.compiler.checked) == compiled


async def test_candidate_at_fault_touches_nothing_and_says_why(bench: Bench) -> None:
    bench.stages["q"] = "candidate"
    bench.put("p", **{"a.rego": "package a"})
    bench.put("q", **{"a.rego": BROKEN})
    bench.put_object("q", stage="candidate", **{"a.rego": "package kubernetes.things"})
    async with bench.applied_once():
        assert (bench.modules, bench.lanes) == ({"p/a.rego": "package a"}, {})
        (cause,) = error_of(bench, "q")["errors"]
        assert cause["location"] == {"file": f"{NAMESPACE}/q/a.rego", "row": 2, "col": 1}
        outcome = bench.told["q"]
        assert isinstance(outcome, CandidateOutcome)
        assert json.loads(outcome.said)["error"]["code"] == "forbidden"
        assert bench.faults[-1] is None
        assert "policies" not in bench.readiness.reasons


async def test_candidate_that_cannot_be_read_says_so(bench: Bench) -> None:
    bench.put_spec("p", {"modules": "package b", "stage": "candidate"})
    async with bench.applied_once():
        outcome = bench.told["p"]
        assert isinstance(outcome, CandidateOutcome)
        assert "unreadable" in outcome.said


async def test_version_of_a_candidate_is_on_record_while_it_is_compiled(bench: Bench) -> None:
    """A replicator that it ends tries it alone, and then never again."""
    async with bench.applied_once():
        bench.stages["q"] = "candidate"
        bench.put("q", **{"a.rego": "package a"})
        await bench.until_idle()
    name = json.loads(bench.status["q"] or "")["modules"]
    assert name in {tried for state in bench.recorded for tried in state.trying}
    assert bench.recorded[-1].trying == {}


async def test_edit_of_a_candidate_leaves_the_lane_of_the_shadow(bench: Bench) -> None:
    bench.stages |= {"q": "shadow", "r": "candidate"}
    bench.put("q", **{"a.rego": "package b"})
    bench.put("r", **{"a.rego": "package c"})
    async with bench.applied_once():
        bench.put("r", **{"a.rego": "package c # new"})
        await bench.until_idle()
        assert [reads is not None for reads in bench.staged] == [True]
        assert "together_with" not in (bench.status["q"] or "")


async def test_lane_that_opa_does_not_take_is_told_of_and_touches_nothing(
    bench: Bench, opa: FakeOpa
) -> None:
    opa.http.fault(puts("/v1/policies/kube_sync_stage"), answer(401, b"no"), times=99)
    bench.stages["q"] = "shadow"
    bench.put("p", **{"a.rego": "package a"})
    bench.put("q", **{"a.rego": "package b"})
    async with bench.applied_once():
        assert bench.modules == {"p/a.rego": "package a"}
        assert bench.status["p"] == OK
        assert error_of(bench, "q")["code"] == "unauthorized"
        assert bench.staged == []
        assert bench.digests[1:] == []


async def test_what_a_lane_would_change_is_said_on_what_is_staged(bench: Bench) -> None:
    bench.stages["q"] = "shadow"
    bench.put("q", **{"a.rego": "package b"})
    async with bench.applied_once():
        bench.idle.clear()
        bench.loader.count(Counted(3, {"moves": 2}))
        await bench.until_idle()
        status = json.loads(bench.status["q"] or "")
        assert (status["status"], status["objects"], status["moves"]) == ("ok", 3, 2)


class Growing(Whole):
    """Data that holds what is read of `input.a`, and of `input.b` only once it has grown."""

    narrowed = True

    def __init__(self) -> None:
        self.grown = False
        self.settled: list[Need | None] = []

    def hold(self, needs: Iterable[Need | None]) -> bool:
        return self.grown or not any(("b",) in read_of(need) for need in needs)

    def settle(self, need: Need | None) -> None:
        self.settled.append(need)


def read_of(need: Need | None) -> tuple[Path, ...]:
    return () if need is None else need.reads.input.paths


async def test_lane_waits_for_the_data_that_it_reads_and_what_is_in_force_does_not(
    bench: Bench,
) -> None:
    bench.data = data = Growing()
    bench.compiler.trees = True
    bench.put("p", **{"a.rego": reading("input.a", package="p")})
    async with bench.applied_once():
        bench.stages["p-candidate"] = "shadow"
        bench.put("p-candidate", **{"a.rego": reading("input.b", package="p")})
        await bench.until_idle()
        assert (bench.lanes, bench.staged) == ({}, [])
        assert bench.status["p-candidate"] is None
        assert read_of(data.settled[-1]) == (("a",), ("b",))
        bench.put("p", OK, **{"a.rego": reading("input.a", package="p") + "# new"})
        await bench.until_idle()
        assert bench.modules["p/a.rego"].endswith("# new")
        data.grown = True
        bench.wake()
        await bench.until_idle()
        assert len(bench.lanes) == 2
        (reads,) = bench.staged
        assert reads is not None
        assert reads.input.paths == (("b",),)
        # What decides reads what it read: the lane makes no decision depend on more.
        assert {found.input.paths for found in bench.reads} == {(("a",),)}


async def test_placementpolicy_is_loaded_beside_a_configmap_of_its_name(bench: Bench) -> None:
    bench.put("p", **{"a.rego": "package a"})
    bench.put_object("p", **{"a.rego": "package b"})
    async with bench.applied_once():
        assert bench.modules == {"p/a.rego": "package a", "p.PlacementPolicy/a.rego": "package b"}
        assert bench.status == {"p": OK}
        assert bench.told == {"p": PolicyOutcome(held=True)}


class Late(Kept):
    """Something happens while last good versions are saved, which is before anything is told."""

    def __init__(self, happens: Callable[[], None]) -> None:
        super().__init__()
        self._happens = happens

    async def save(self, good: Versions) -> None:
        await super().save(good)
        self._happens()


async def test_placementpolicy_that_comes_while_others_are_loaded_says_nothing_untrue(
    bench: Bench,
) -> None:
    """It said that it is in force before OPA had it."""

    def come() -> None:
        if "q" not in {object_key(policy.key).name for policy in bench.objects}:
            bench.put_object("q", **{"a.rego": BROKEN})

    bench.put_object("p", **{"a.rego": "package a"})
    bench.kept = Late(come)
    bench.loader = bench.new_loader()
    async with bench.applied_once():
        assert [name for told in bench.tellings for name in told] == ["p", "p", "q"]
        outcome = bench.told["q"]
        assert isinstance(outcome, PolicyOutcome)
        assert outcome.causes


async def test_placementpolicies_have_to_be_listed_too(bench: Bench, opa: FakeOpa) -> None:
    bench.objects.listed = False
    bench.put("p", **{"a.rego": "package a"})
    async with bench.running():
        await until(lambda: "not listed" in bench.readiness.reasons.get("policies", ""))
        await bench.ask_for_a_while()
        assert not any(map(policy_writes, opa.http.requests))


@pytest.mark.parametrize("stage", ["candidate", "shadow", "canary", "later"])
async def test_placementpolicy_that_is_not_active_is_not_loaded(bench: Bench, stage: str) -> None:
    bench.put_object("p", stage=stage, **{"a.rego": "package a"})
    async with bench.applied_once():
        assert (bench.modules, bench.counts) == ({}, [0])
        assert bench.told["p"] is not None
        assert ("nobody knows the stage" in (bench.faults[-1] or "")) == (stage == "later")


async def test_staged_policies_of_either_kind_are_one_lane_and_counted_together(
    bench: Bench,
) -> None:
    bench.put("p", **{"a.rego": "package a"})
    bench.put_object("p", **{"b.rego": "package b"})
    bench.stages["p-candidate"] = "shadow"
    bench.put("p-candidate", **{"a.rego": "package a.a"})
    bench.put_object("p-candidate", stage="shadow", **{"b.rego": "package b.b"})
    async with bench.applied_once():
        assert bench.lanes == {
            "kube_sync_stage/shadow/policies__p-candidate__a.rego": (
                "package kube_sync_stage.shadow.a.a"
            ),
            "kube_sync_stage/shadow/policies__p-candidate.PlacementPolicy__b.rego": (
                "package kube_sync_stage.shadow.b.b"
            ),
            "kube_sync_stage/shadow/batch": "package batch.shadow",
        }
        assert bench.told["p"] == PolicyOutcome(held=True)
        bench.idle.clear()
        bench.loader.count(Counted(3, {"moves": 2}))
        await bench.until_idle()
        outcome = bench.told["p-candidate"]
        assert isinstance(outcome, CandidateOutcome)
        said, annotation = (
            json.loads(outcome.said),
            json.loads(bench.status["p-candidate"] or ""),
        )
        assert said.pop("modules") != annotation.pop("modules")
        name = "PlacementPolicy policies/p"
        assert (said.pop("stands_for"), said.pop("together_with")) == (
            name,
            ["policies/p-candidate"],
        )
        assert annotation.pop("stands_for") == "policies/p"
        assert annotation.pop("together_with") == [f"{name}-candidate"]
        assert said == annotation
        assert said == {"status": "ok", "stage": "shadow", "objects": 3, "moves": 2}


async def test_staged_placementpolicy_of_another_shape_is_no_empty_one(bench: Bench) -> None:
    """Nobody knows what it says; in the place of another one it would seem to remove that."""
    bench.put_object("p", **{"a.rego": "package a"})
    bench.put_spec("p-candidate", {"modules": "package b", "stage": "shadow"})
    async with bench.applied_once():
        assert bench.lanes == {}
        outcome = bench.told["p-candidate"]
        assert isinstance(outcome, CandidateOutcome)
        assert "unreadable" in outcome.said


async def test_placementpolicy_that_does_not_compile_keeps_its_last_good_version(
    bench: Bench,
) -> None:
    bench.put_object("p", **{"a.rego": "package a"})
    async with bench.applied_once():
        bench.put_object("p", **{"a.rego": BROKEN})
        await bench.until_idle()
        assert bench.modules == {"p.PlacementPolicy/a.rego": "package a"}
        outcome = bench.told["p"]
        assert isinstance(outcome, PolicyOutcome)
        assert outcome.held
        assert outcome.causes[0]["location"]["file"] == "policies/p.PlacementPolicy/a.rego"
        assert "policy PlacementPolicy policies/p: not in force" in (bench.faults[-1] or "")


async def test_last_good_version_of_what_cannot_be_read_outlives_the_process(bench: Bench) -> None:
    bench.kept.good = {
        policy_key(ObjectKey(NAMESPACE, "p")): {"policies/p.PlacementPolicy/a.rego": "package a"}
    }
    bench.put_spec("p", {"modules": "package a"})
    async with bench.applied_once():
        assert bench.modules == {"p.PlacementPolicy/a.rego": "package a"}
        outcome = bench.told["p"]
        assert isinstance(outcome, PolicyOutcome)
        assert outcome.held
        assert [cause["code"] for cause in outcome.causes] == ["unreadable"]


async def test_placementpolicy_that_is_gone_or_becomes_a_candidate_is_unloaded(
    bench: Bench,
) -> None:
    bench.put_object("p", **{"a.rego": "package a"})
    bench.put_object("q", **{"a.rego": "package b"})
    async with bench.applied_once():
        assert len(bench.modules) == 2
        bench.put_object("q", stage="candidate", **{"a.rego": "package b"})
        await bench.until_idle()
        assert bench.modules == {"p.PlacementPolicy/a.rego": "package a"}
        listed(bench.objects, Listing([], ResourceVersion("9")))
        await bench.until_idle()
        assert bench.modules == {}


async def test_unchanged_placementpolicy_costs_opa_nothing(bench: Bench, opa: FakeOpa) -> None:
    bench.put_object("p", **{"a.rego": "package a"})
    async with bench.applied_once():
        seen = len(opa.http.requests)
        bench.put_object("p", **{"a.rego": "package a"})
        await bench.until_idle()
        assert opa.http.requests[seen:] == []


async def test_version_is_on_record_until_it_was_tried_or_the_replicator_is_stopped(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.put("p", **{"a.rego": "package a\n"})
    async with bench.applied_once():
        (tried, ended) = bench.recorded
        assert list(tried.trying.values()) == [1]
        assert ended == State()
        compiling = asyncio.Event()

        async def stalled(*_: Any) -> Any:
            compiling.set()
            await asyncio.Event().wait()

        monkeypatch.setattr(bench.compiler, "check", stalled)
        bench.put("p", **{"a.rego": "package a\n\nx := 1\n"})
        await compiling.wait()
        assert list(bench.recorded[-1].trying.values()) == [1]
    assert bench.recorded[-1] == State(), "it was stopped, and not killed"


async def test_change_of_another_waits_for_one_trial_at_most_that_is_too_expensive(
    bench: Bench,
) -> None:
    tried: list[list[str]] = []
    compile_, begun, go = bench.compiler.check, asyncio.Event(), asyncio.Event()

    async def check(modules: Any, given: Any = ()) -> Any:
        greedy = [i.rpartition("/")[2] for i, source in modules.items() if "greedy" in source]
        if not greedy:
            return await compile_(modules, given)
        tried.append(sorted(greedy))
        begun.set()
        await go.wait()
        return [{"code": "too_expensive", "message": "too expensive to compile (1 s)"}]

    def loaded(turn: int) -> bool:
        return f"x := {turn}" in bench.modules.get("a/a.rego", "")

    bench.compiler.check = check  # type: ignore[method-assign]
    names = [f"g{n}" for n in range(6)]
    async with bench.applied_once():
        for name in names:
            bench.put(name, **{f"{name}.rego": f"package {name} # greedy\n"})
        for turn in range(2):
            await begun.wait()
            spent = len(tried)
            bench.put("a", **{"a.rego": f"package a\n\nx := {turn}\n"})
            go.set()
            await until(partial(loaded, turn))
            assert len(tried) == spent
            await until(lambda: all("too_expensive" in (bench.status[n] or "") for n in names))
            begun.clear()
            go.clear()
            for name in names:
                bench.put(name, **{f"{name}.rego": f"package {name} # greedy {turn}\n"})
    assert tried[0] == [f"{name}.rego" for name in names]


async def test_nobody_decides_before_it_is_known_what_is_too_expensive(bench: Bench) -> None:
    compile_ = bench.compiler.check

    async def check(modules: Any, given: Any = ()) -> Any:
        bench.wake()  # there is news all the time
        if any("greedy" in source for source in modules.values()):
            return [{"code": "too_expensive", "message": "too expensive to compile (1 s)"}]
        return await compile_(modules, given)

    bench.compiler.check = check  # type: ignore[method-assign]
    for name in "abcd":
        bench.put(name, **{"m.rego": f"package {name}\n"})
    bench.put("e", **{"m.rego": "package greedy\n"})
    async with bench.running():
        await bench.applied.wait()
        assert bench.modules.keys() == {f"{name}/m.rego" for name in "abcd"}


async def test_policy_that_is_too_expensive_is_compiled_once(bench: Bench) -> None:
    checked, compile_ = 0, bench.compiler.check

    async def check(modules: Any, given: Any = ()) -> Any:
        nonlocal checked
        if any("greedy" in source for source in modules.values()):
            checked += 1
            return [{"code": "too_expensive", "message": "too expensive to compile (1 s)"}]
        return await compile_(modules, given)

    bench.compiler.check = check  # type: ignore[method-assign]
    bench.put("a", **{"a.rego": "package a\n"})
    bench.put("greedy", **{"b.rego": "package greedy\n"})
    async with bench.applied_once():
        assert set(bench.modules) == {"a/a.rego"}
        spent = checked
        bench.put("a", **{"a.rego": "package a\n\nx := 1\n"})
        await until(lambda: bench.modules.get("a/a.rego") == "package a\n\nx := 1\n")
    assert checked == spent
    assert "too expensive to compile" in dict(bench.statuses)["greedy"]
