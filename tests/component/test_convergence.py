"""Whatever fails, and in whatever order: when nothing moves any more OPA equals the API server.

Hypothesis writes the story and shortens one that goes wrong. The comparison is written by hand
here and shares no code with the projection.
"""

from __future__ import annotations

import asyncio
import copy
import tempfile
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from kube_sync.config import Settings
from kube_sync.decisions.hub import DecisionHub
from kube_sync.objects import ObjectKey
from kube_sync.observability.readiness import Readiness
from kube_sync.policies.bundle_server import BundleServer
from kube_sync.replicator.replicator import Replicator
from kube_sync.replicator.writer import Writer
from kube_sync.runtime.backoff import Backoff
from tests.fakes.apiserver import FakeApiServer, error_event, fake_apiserver, lists, watches
from tests.fakes.clients import CLUSTERS, CONFIGMAPS, REPLICASETS, kube_of, opa_of
from tests.fakes.compiler import FakeCompiler
from tests.fakes.http import Delayed, answer, lose_answer, stream
from tests.fakes.opa import FakeOpa, fake_opa, patched, puts
from tests.parts import examples

_PATIENCE = 30.0  # seconds; only a broken replicator takes so long
_FASTER = 100  # times, in waits
_NAMES = ("a", "b", "x/y~z", "%2F")
_SPACES = ("default", "other")
_KINDS = {"clusters": CLUSTERS, "replicasets": REPLICASETS}


@dataclass(frozen=True)
class Step:
    """One thing that happens, and whether the replicator gets time before the next one."""

    what: str
    kind: str
    where: ObjectKey
    number: int
    pause: bool


_FAULTS = (
    "compact",
    "cut",
    "torn line",
    "410",
    "410 in the stream",
    "5xx",
    "429",
    "torn list",
    "opa restarted",
    "opa wiped",
    "data wiped",
    "opa away",
    "opa fails",
    "opa's answer lost",
    "late batch",
    "late batch arrives",
)
# Nothing changes after it, so nothing but the replicator's own care finds it.
_LAST = ("data wiped", "late batch arrives", "opa wiped", "cut")
steps = st.lists(
    st.builds(
        Step,
        st.sampled_from((*_FAULTS, *["put", "put", "delete"] * 4)),
        st.sampled_from(tuple(_KINDS)),
        st.builds(ObjectKey, st.sampled_from(_SPACES), st.sampled_from(_NAMES)),
        st.integers(1, 3),
        st.booleans(),
    ),
    min_size=10,
    max_size=30,
)


class Story:
    """Two servers that fail, and what the steps do to them."""

    def __init__(self, api: FakeApiServer, opa: FakeOpa) -> None:
        self.api = api
        self.opa = opa
        self.late: list[Delayed] = []
        for gvr, kind in ((CLUSTERS, "ClusterProfile"), (REPLICASETS, "ReplicaSet")):
            api.define(gvr, kind, builtin=gvr is REPLICASETS)
            for name in _NAMES:
                api.put(gvr, ObjectKey("default", name), spec={"n": 0})
        api.define(CONFIGMAPS, "ConfigMap")
        api.page_size = 3

    async def do(self, step: Step) -> None:  # noqa: C901, PLR0912 - one case a step
        api, opa, gvr = self.api, self.opa, _KINDS[step.kind]
        match step.what:
            case "put":
                api.put(gvr, step.where, spec={"n": step.number})
            case "delete" if step.where in api.objects(gvr):
                api.delete(gvr, step.where)
            case "compact":
                api.compact()
            case "cut":
                api.http.cut()
            case "torn line":
                api.http.fault(watches(gvr), stream(b'{"type":"MODIFIED","obj', cut=True))
                api.http.cut()
            case "410":
                api.http.fault(watches(gvr), answer(410, b'{"code":410}'))
                api.http.cut()
            case "410 in the stream":
                api.http.fault(watches(gvr), stream(error_event(410)))
                api.http.cut()
            case "5xx" | "429":
                code = 429 if step.what == "429" else 500 + step.number
                api.http.fault(watches(gvr), answer(code, retry_after="1"), times=step.number)
                api.http.fault(lists(gvr), answer(code), times=step.number)
                api.http.cut()
            case "torn list":
                api.http.fault(lists(gvr), stream(b'{"items":[', cut=True))
            case "opa restarted":
                opa.restart()
            case "opa wiped":
                opa.wipe()
            case "data wiped":
                opa.data.pop("kubernetes", None)
            case "opa away":
                await opa.http.stop()
                await opa.http.start()
            case "opa fails":
                opa.http.fault(patched, answer(503), times=step.number)
                opa.http.fault(puts("/v1/data/kubernetes"), answer(500))
            case "opa's answer lost":
                opa.http.fault(patched, lose_answer(), times=step.number)
            case "late batch":
                self.late.append(late := Delayed())
                opa.http.fault(patched, late.handle)
            case "late batch arrives":
                await self.late_arrive()
        await self._let_pass(2 if step.pause else 0)

    async def late_arrive(self) -> None:
        """Let come in what its sender gave up."""
        for late in self.late:
            if late.asked:
                await late.arrive()
        self.late = [late for late in self.late if not late.asked]

    async def calm(self) -> None:
        """End everything that is still to go wrong."""
        self.api.http.faults.clear()
        self.opa.http.faults.clear()
        await self.late_arrive()

    def equal(self) -> bool:
        epoch = self.opa.data.get("kube_sync", {}).get("epoch", {})
        return self.opa.data.get("kubernetes") == self._wanted() and [*epoch.values()] == ["loaded"]

    def _wanted(self) -> dict[str, Any]:
        wanted: dict[str, Any] = {}
        for name, gvr in _KINDS.items():
            tree = wanted.setdefault(name, {})
            for key, found in self.api.objects(gvr).items():
                tree.setdefault(key.namespace, {})[key.name] = copy.deepcopy(found)
        return wanted

    async def _let_pass(self, requests: int) -> None:
        """Wait for so many requests to OPA: there is a heartbeat, whatever else happens."""
        for _ in range(requests):
            await self.opa.http.until_next(lambda _request: True)


@pytest.fixture
def brisk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let waits and heartbeats take a hundredth of their time; nothing else is changed."""

    async def sleep(seconds: float) -> None:
        await asyncio.sleep(seconds / _FASTER)

    for made, name, value in ((Backoff, "sleep", sleep), (Writer, "heartbeat", 1 / _FASTER)):
        defaults = made.__init__.__kwdefaults__
        assert defaults is not None
        monkeypatch.setitem(defaults, name, value)


async def _tell(story: list[Step], last: Step, folder: Path, *, loaded: bool) -> None:
    async with AsyncExitStack() as stack:
        api = await stack.enter_async_context(fake_apiserver())
        opa = await stack.enter_async_context(fake_opa())
        told = Story(api, opa)
        kube = await stack.enter_async_context(kube_of(api, folder))
        client = await stack.enter_async_context(opa_of(opa))
        replicator = Replicator(
            Settings(),
            kube,
            client,
            DecisionHub("test"),
            Readiness(),
            FakeCompiler(),
            shelf=BundleServer(),
        )
        task = asyncio.create_task(replicator.run())
        try:
            async with asyncio.timeout(_PATIENCE):
                if loaded:  # or the first load is in the middle of it
                    await opa.http.until(told.equal)
                for step in story:
                    await told.do(step)
                await told.calm()
                await opa.http.until(lambda: told.equal() or task.done())
                await told.do(last)
                await told.calm()
                await opa.http.until(lambda: told.equal() or task.done())
        finally:
            if task.done():
                task.result()
            task.cancel()
            await asyncio.wait([task])


@pytest.mark.usefixtures("brisk")
@given(story=steps, last=st.sampled_from(_LAST), loaded=st.booleans())
@settings(
    max_examples=examples(30),
    derandomize=True,  # a run of CI says the same twice
    database=None,
    phases=[Phase.explicit, Phase.generate, Phase.shrink],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_any_story_ends_in_an_equal_opa(
    story: list[Step],
    last: str,
    loaded: bool,  # noqa: FBT001 - a case of the test
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        end = Step(last, "clusters", ObjectKey("default", "a"), 1, pause=False)
        asyncio.run(_tell(story, end, Path(folder), loaded=loaded))
