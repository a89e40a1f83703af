from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from kube_sync.kube import availability
from kube_sync.kube.client import KubeClient
from kube_sync.kube.definitions import DEFINITIONS
from kube_sync.objects import GroupVersionResource, ObjectKey
from kube_sync.observability.readiness import Readiness
from kube_sync.runtime.backoff import Backoff
from kube_sync.topology import GroupKind, Locator, PolicyKind
from kube_sync.topology.controller.followed_kinds import FollowedKinds
from kube_sync.topology.controller.kind_selection import BUILTIN, Chooser
from kube_sync.topology.controller.live_topology import LiveTopology
from kube_sync.topology.controller.world import World
from kube_sync.topology.gateway import GATEWAY, GATEWAY_CLASS
from tests.fakes.apiserver import FakeApiServer, fake_apiserver, lists, status, watches
from tests.fakes.clients import key, kube_of
from tests.fakes.definitions import POLICY, definition, install, resource, uninstall
from tests.fakes.http import Handler, answer
from tests.fakes.topologies import API, GROUP, color, gateway, target
from tests.unit.async_tools import running, until

SHADE = GroupKind("example.com", "Shade")
NAMED = PolicyKind(SHADE)
SHADES = resource("Shade", SHADE.group, "v1")
GATEWAYS = resource("Gateway", GROUP, "v1")
OLD_GATEWAYS = resource("Gateway", GROUP, "v1beta1")
LEVEL = "kube-sync.io/takes-effect-at"

SHADE_DEFINITION = definition("Shade", SHADE.group, "v1", labels=POLICY)
GATEWAY_DEFINITION = definition("Gateway", GROUP, "v1", "v1beta1")


class Bench:
    """The kinds of a topology followed on a fake API server, with time in the test's hands."""

    def __init__(self, api: FakeApiServer, client: KubeClient) -> None:
        self.api = api
        self.client = client
        self.now = 0.0
        self.world = World(clock=lambda: self.now)
        self.notes = Readiness()
        self.changes = 0
        self.timers: list[tuple[float, asyncio.TimerHandle]] = []
        self.looks = asyncio.Semaphore(0)  # at discovery, beyond the first
        self.pauses: list[float] = []
        self.kinds: FollowedKinds

    def make(self, *named: PolicyKind) -> FollowedKinds:
        self.kinds = FollowedKinds(
            self.client,
            self.world,
            self.notes,
            self._changed,
            Chooser(API.kinds, named),
            sleep=self._pause,
            backoff=lambda: Backoff(first=0.001, longest=0.002),
        )
        return self.kinds

    @asynccontextmanager
    async def following(self, *named: PolicyKind) -> AsyncGenerator[None]:
        async with running(self.make(*named).run()):
            yield

    def note(self, kind: GroupKind) -> str | None:
        return self.notes.conditions.get(f"topology of {kind}")

    @property
    def definitions_note(self) -> str:
        return self.notes.conditions["topology by definitions"]

    def names(self) -> set[str]:
        return {body["metadata"]["name"] for body in self.world.objects()}

    async def until_known(self) -> None:
        await until(lambda: not (self.kinds.waiting or self.world.waiting))

    def _changed(self) -> None:
        self.changes += 1

    async def _pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        await self.looks.acquire()


class Later:
    """The loop's `call_later` for the waits of seconds that no test can wait for."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        loop = asyncio.get_running_loop()
        real = loop.call_later
        self.pending: list[tuple[float, Callable[[], None], asyncio.TimerHandle]] = []

        def call_later(
            seconds: float, function: Callable[..., None], *arguments: Any, **more: Any
        ) -> asyncio.TimerHandle:
            if "_give_up" not in repr(function) and "_left" not in repr(function):
                return real(seconds, function, *arguments, **more)
            handle = asyncio.TimerHandle(0.0, function, arguments, loop)
            self.pending.append((seconds, lambda: function(*arguments), handle))
            return handle

        monkeypatch.setattr(loop, "call_later", call_later)

    @property
    def seconds(self) -> list[float]:
        return [seconds for seconds, _, handle in self.pending if not handle.cancelled()]

    def pass_time(self) -> None:
        due, self.pending = self.pending, []
        for _, function, handle in due:
            if not handle.cancelled():
                function()


@pytest.fixture
async def api() -> AsyncGenerator[FakeApiServer]:
    async with fake_apiserver() as api:
        api.define(DEFINITIONS, "CustomResourceDefinition", namespaced=False)
        for gvr, kind, namespaced in (
            (BUILTIN[GroupKind("", "Namespace")], "Namespace", False),
            (BUILTIN[GroupKind("", "Service")], "Service", True),
        ):
            api.define(gvr, kind, namespaced=namespaced)
        yield api


@pytest.fixture
async def bench(api: FakeApiServer, tmp_path: Path) -> AsyncGenerator[Bench]:
    async with kube_of(api, tmp_path) as client:
        yield Bench(api, client)


@pytest.fixture
async def later(monkeypatch: pytest.MonkeyPatch) -> Later:
    return Later(monkeypatch)


def denied(api: FakeApiServer, *gvrs: GroupVersionResource) -> None:
    """Refuse to list these for as long as the test lasts."""
    for gvr in gvrs:
        message = f'{gvr.resource} is forbidden: User "us" cannot list them'
        api.http.fault(lists(gvr), refusal(message), times=10**9)


def content(body: dict[str, Any]) -> dict[str, Any]:
    return {"spec": body["spec"]}


def refusal(message: str) -> Handler:
    async def handle(_request: Any, _proceed: Any) -> Any:
        return status(403, "Forbidden", message)

    return handle


def allowed(api: FakeApiServer) -> None:
    for fault in api.http.faults:
        fault.times = 0


async def test_a_kind_is_followed_in_the_version_to_prefer(bench: Bench) -> None:
    install(bench.api, GATEWAY_DEFINITION)
    bench.api.put(GATEWAYS, key("new"))
    bench.api.put(OLD_GATEWAYS, key("old"))
    async with bench.following():
        await bench.until_known()
        assert bench.names() == {"new"}
        assert bench.note(GATEWAY) == "ok"
        assert bench.kinds.choices[GATEWAY].gvr == GATEWAYS
    assert not any(r.path == OLD_GATEWAYS.path() for r in bench.api.http.requests)


async def test_what_is_not_defined_is_not_waited_for_and_never_asked_for(bench: Bench) -> None:
    bench.make()
    assert GATEWAY in bench.world.waiting
    assert bench.kinds.waiting == ("CustomResourceDefinitions",)
    async with running(bench.kinds.run()):
        await bench.until_known()
        assert bench.note(GATEWAY) == "not there: the API server does not serve it"
    assert not any(GROUP in r.path for r in bench.api.http.requests)


async def test_nothing_is_known_before_definitions_are(bench: Bench) -> None:
    failing = bench.api.http.fault(lists(DEFINITIONS), answer(500, b"broken"), times=10**9)
    async with bench.following():
        await until(lambda: GroupKind("", "Service") not in bench.world.waiting)
        await until(lambda: "broken" in bench.notes.conditions.get("topology by definitions", ""))
        assert bench.kinds.waiting
        assert GATEWAY in bench.world.waiting
        failing.times = 0
        await bench.until_known()
        assert bench.definitions_note == "ok"


async def test_a_kind_of_policies_that_is_installed_is_followed(bench: Bench) -> None:
    async with bench.following():
        await bench.until_known()
        assert not bench.kinds.policies
        install(bench.api, SHADE_DEFINITION)
        await until(lambda: bench.kinds.policies)
        await bench.api.watched(SHADES)
        bench.api.put(SHADES, key("p"))
        await until(lambda: bench.names() == {"p"})
        assert [kind.id for kind in bench.kinds.policies] == [SHADE]
        assert (bench.changes, bench.note(SHADE)) == (1, "ok")


async def test_a_live_topology_has_the_kinds_that_are_followed(bench: Bench) -> None:
    install(bench.api, GATEWAY_DEFINITION)
    bench.api.put(GATEWAYS, key("gw"), **content(gateway("gw")))
    async with bench.following():
        live = LiveTopology(bench.world, bench.kinds, API.kinds, API.links)
        await until(lambda: not live.waiting)
        await live.advance()
        install(bench.api, SHADE_DEFINITION)
        bench.api.put(SHADES, key("p"), **content(color("p", target(name="gw"))))
        await until(lambda: bench.names() == {"gw", "p"})
        await live.advance()
        target_ = Locator(f"gateway.{GROUP}:default/gw")
        assert live.topology.all.parents(target_) == ("shade.example.com:default/p",)


async def test_a_definition_is_waited_for_until_it_is_established(bench: Bench) -> None:
    async with bench.following():
        await bench.until_known()
        install(bench.api, SHADE_DEFINITION, established=False)
        bench.api.bookmark(DEFINITIONS)
        install(bench.api, GATEWAY_DEFINITION)
        await until(lambda: GATEWAY in bench.kinds.choices)
        assert SHADE not in bench.kinds.choices
        install(bench.api, SHADE_DEFINITION)
        await until(lambda: bench.note(SHADE) == "ok")


def _followed() -> int:
    coroutines = (task.get_coro() for task in asyncio.all_tasks())
    return sum(getattr(one, "__qualname__", "") == "Reflector.run" for one in coroutines)


async def test_a_kind_that_goes_keeps_its_objects_for_a_while(bench: Bench, later: Later) -> None:
    # They are deleted one by one before the definition goes; here they are not.
    install(bench.api, SHADE_DEFINITION)
    bench.api.put(SHADES, key("p"))
    async with bench.following():
        await until(lambda: bench.names() == {"p"})
        bench.api.undefine(SHADES)
        bench.api.delete(DEFINITIONS, ObjectKey("", "shades.example.com"))
        await until(lambda: later.seconds == [30.0])
        assert bench.names() == {"p"}
        assert [kind.id for kind in bench.kinds.policies] == [SHADE]
        before, followed = bench.changes, _followed()
        later.pass_time()
        assert (bench.names(), bench.kinds.policies) == (set(), ())
        assert (bench.changes, bench.note(SHADE)) == (before + 1, None)
        assert SHADE not in bench.kinds.choices
        assert SHADE not in bench.world.waiting
        await until(lambda: _followed() == followed - 1)


async def test_a_kind_of_the_gateway_api_that_goes_is_told_of(bench: Bench, later: Later) -> None:
    install(bench.api, GATEWAY_DEFINITION)
    async with bench.following():
        await bench.until_known()
        uninstall(bench.api, GATEWAY_DEFINITION)
        await until(lambda: later.seconds)
        later.pass_time()
        assert bench.note(GATEWAY) == "not there: the API server does not serve it"
        install(bench.api, GATEWAY_DEFINITION)
        await until(lambda: bench.note(GATEWAY) == "ok")


async def test_a_definition_that_comes_back_in_time_is_followed_at_once(
    bench: Bench, later: Later
) -> None:
    install(bench.api, SHADE_DEFINITION)
    async with bench.following():
        await until(lambda: bench.note(SHADE) == "ok")
        uninstall(bench.api, SHADE_DEFINITION)
        await until(lambda: later.seconds == [30.0])
        other = definition("Shade", SHADE.group, "v2", labels=POLICY, namespaced=False)
        install(bench.api, other)
        new = resource("Shade", SHADE.group, "v2")
        bench.api.put(new, ObjectKey("", "p"))
        await until(lambda: bench.names() == {"p"})
        assert (later.seconds, bench.changes) == ([], 1)
        choice = bench.kinds.choices[SHADE]
        assert (choice.gvr, choice.kind.namespaced) == (new, False)


async def test_another_definition_is_another_kind_without_the_objects_of_the_first(
    bench: Bench, later: Later
) -> None:
    install(bench.api, SHADE_DEFINITION)
    bench.api.put(SHADES, key("p"))
    async with bench.following():
        await until(lambda: bench.names() == {"p"})
        bench.world.take()
        bench.api.delete(DEFINITIONS, ObjectKey("", "shades.example.com"))
        await until(lambda: later.seconds)
        denied(bench.api, SHADES)
        install(bench.api, SHADE_DEFINITION)
        await until(lambda: SHADE in bench.world.waiting)
        assert bench.names() == set()
        assert [event.type for event in bench.world.take()] == ["delete"]


async def test_a_label_that_comes_back_in_time_changes_nothing(bench: Bench, later: Later) -> None:
    install(bench.api, SHADE_DEFINITION)
    async with bench.following():
        await until(lambda: bench.note(SHADE) == "ok")
        without = deepcopy(SHADE_DEFINITION)
        without["metadata"]["labels"] = {}
        install(bench.api, without)
        await until(lambda: bench.note(SHADE) == "its CustomResourceDefinition is gone")
        install(bench.api, SHADE_DEFINITION)
        await until(lambda: bench.note(SHADE) == "ok")
        assert (later.seconds, bench.changes) == ([], 1)
    assert sum(map(lists(SHADES), bench.api.http.requests)) == 1


async def test_another_version_begins_anew_and_loses_nothing(bench: Bench) -> None:
    install(bench.api, definition("Gateway", GROUP, "v1beta1"))
    bench.api.put(OLD_GATEWAYS, key("gw"))
    async with bench.following():
        await until(lambda: bench.names() == {"gw"})
        bench.world.take()
        bench.api.define(GATEWAYS, "Gateway", builtin=False)
        bench.api.put(GATEWAYS, key("gw"))
        install(bench.api, definition("Gateway", GROUP, "v1beta1", "v1"))
        await bench.api.watched(GATEWAYS)
        (event,) = bench.world.take()
        assert event.new is not None
        assert event.new["apiVersion"] == f"{GROUP}/v1"
    assert bench.names() == {"gw"}


async def test_a_kind_that_may_not_be_listed_is_told_and_hinders_no_other(
    bench: Bench, later: Later
) -> None:
    install(bench.api, SHADE_DEFINITION)
    install(bench.api, GATEWAY_DEFINITION)
    bench.api.put(GATEWAYS, key("gw"))
    denied(bench.api, SHADES)
    async with bench.following():
        await until(lambda: bench.names() == {"gw"} and later.seconds == [10.0])
        assert bench.world.waiting == {SHADE}
        with capture_logs() as logs:
            later.pass_time()
        assert [log["gvk"] for log in logs] == ["Shade.example.com"]
        assert bench.world.waiting == frozenset()
        assert "shades is forbidden" in bench.kinds.unseen[SHADE]
        note = bench.note(SHADE)
        assert note is not None
        assert "shades is forbidden" in note
        assert note.endswith("it counts as a kind without objects")
        assert bench.note(GATEWAY) == "ok"


async def test_another_version_of_what_was_never_seen_was_never_seen(
    bench: Bench, later: Later
) -> None:
    install(bench.api, definition("Gateway", GROUP, "v1beta1"))
    denied(bench.api, OLD_GATEWAYS)
    denied(bench.api, GATEWAYS)
    async with bench.following():
        await until(lambda: later.seconds)
        later.pass_time()
        assert list(bench.kinds.unseen) == [GATEWAY]
        install(bench.api, definition("Gateway", GROUP, "v1beta1", "v1"))
        await until(lambda: bench.kinds.choices[GATEWAY].gvr == GATEWAYS)
        assert list(bench.kinds.unseen) == [GATEWAY]


async def test_a_kind_that_may_be_listed_at_last_is_seen(bench: Bench, later: Later) -> None:
    install(bench.api, SHADE_DEFINITION)
    bench.api.put(SHADES, key("p"))
    denied(bench.api, SHADES)
    async with bench.following():
        await until(lambda: later.seconds)
        later.pass_time()
        allowed(bench.api)
        await until(lambda: bench.names() == {"p"})
        await until(lambda: bench.note(SHADE) == "ok")
        assert (bench.kinds.unseen, later.seconds) == ({}, [])


async def test_a_failure_in_between_makes_the_patience_begin_anew(
    bench: Bench, later: Later
) -> None:
    install(bench.api, SHADE_DEFINITION)
    denied(bench.api, SHADES)
    async with bench.following():
        await until(lambda: later.seconds == [10.0])
        bench.api.http.faults.insert(0, failing := bench.api.http.fault(lists(SHADES), answer(500)))
        await failing.met.wait()
        await until(lambda: later.seconds == [10.0] and len(later.pending) == 2)
        assert bench.world.waiting == {SHADE}


async def test_what_was_listed_outlives_a_refusal(bench: Bench, later: Later) -> None:
    install(bench.api, SHADE_DEFINITION)
    bench.api.put(SHADES, key("p"))
    async with bench.following():
        await until(lambda: bench.names() == {"p"})
        await bench.api.watched(SHADES)
        denied(bench.api, SHADES)
        refused = bench.api.http.fault(watches(SHADES), refusal("no more"), times=10**9)
        bench.api.http.cut()
        await refused.met.wait()
        await until(lambda: "no more" in (bench.note(SHADE) or ""))
        assert (later.seconds, bench.kinds.unseen) == ([], {})
        assert bench.names() == {"p"}


async def test_a_404_of_what_is_defined_is_not_believed(bench: Bench, later: Later) -> None:
    # An API server says it of custom resources for a moment after its start.
    install(bench.api, SHADE_DEFINITION)
    bench.api.put(SHADES, key("p"))
    missing = bench.api.http.fault(lists(SHADES), answer(404), times=3)
    async with bench.following():
        await until(lambda: missing.times == 0)
        assert later.seconds == [10.0]
        assert bench.world.waiting == {SHADE}
        await until(lambda: bench.names() == {"p"})
        assert later.seconds == []
        await bench.api.watched(SHADES)
        gone = bench.api.http.fault(
            lambda r: lists(SHADES)(r) or watches(SHADES)(r), answer(404), times=10**9
        )
        bench.api.http.cut()
        await gone.met.wait()
        await until(lambda: "not believed" in (bench.note(SHADE) or ""))
        assert bench.world.due is None
        assert bench.names() == {"p"}


async def test_a_declaration_that_means_nothing_is_told_and_not_followed(bench: Bench) -> None:
    wrong = definition("Shade", SHADE.group, "v1", labels=POLICY, annotations={LEVEL: "Wall"})
    install(bench.api, wrong)
    async with bench.following():
        await bench.until_known()
        assert bench.note(SHADE) == f"metadata.annotations: {LEVEL}: Wall is no targetable kind"
        assert SHADE not in bench.kinds.choices
        bench.api.delete(DEFINITIONS, ObjectKey("", "shades.example.com"))
        await until(lambda: bench.note(SHADE) is None)
        install(bench.api, SHADE_DEFINITION)
        await until(lambda: bench.note(SHADE) == "ok")


async def test_a_declaration_that_becomes_wrong_leaves_what_was(bench: Bench) -> None:
    install(bench.api, SHADE_DEFINITION)
    async with bench.following():
        await until(lambda: bench.note(SHADE) == "ok")
        wrong = deepcopy(SHADE_DEFINITION)
        wrong["metadata"]["annotations"] = {LEVEL: "Wall"}
        install(bench.api, wrong)
        await until(lambda: (bench.note(SHADE) or "").endswith("no targetable kind"))
        wrong["metadata"]["annotations"] = {LEVEL: "Gateway"}
        install(bench.api, wrong)
        await until(lambda: bench.note(SHADE) == "ok")
        assert bench.changes == 2
        assert bench.kinds.policies[0].level == {GATEWAY}


async def test_what_is_named_is_followed_without_a_label(bench: Bench) -> None:
    install(bench.api, definition("Shade", SHADE.group, "v1"))
    async with bench.following(NAMED):
        await bench.until_known()
        assert bench.kinds.policies == (NAMED,)


async def test_without_definitions_kinds_are_found_by_discovery(bench: Bench) -> None:
    install(bench.api, GATEWAY_DEFINITION)
    install(bench.api, SHADE_DEFINITION)
    bench.api.put(GATEWAYS, key("gw"))
    denied(bench.api, DEFINITIONS)
    async with bench.following(NAMED):
        await until(lambda: bench.names() == {"gw"} and bench.pauses)
        assert bench.kinds.choices[GATEWAY].gvr == GATEWAYS
        assert bench.kinds.policies == (NAMED,)
        assert "customresourcedefinitions is forbidden" in bench.definitions_note
        assert bench.definitions_note.endswith("those that are named: Shade.example.com")


async def test_a_404_of_what_discovery_serves_is_not_believed_at_once(
    bench: Bench, later: Later
) -> None:
    denied(bench.api, DEFINITIONS)
    install(bench.api, GATEWAY_DEFINITION)
    missing = bench.api.http.fault(lists(GATEWAYS), answer(404), times=10**9)
    async with bench.following():
        await missing.met.wait()
        await until(lambda: "not believed" in (bench.note(GATEWAY) or ""))
        assert GATEWAY in bench.world.waiting
        later.pass_time()
        assert GATEWAY not in bench.world.waiting


async def test_patience_with_a_version_ends_with_it(bench: Bench, later: Later) -> None:
    install(bench.api, SHADE_DEFINITION)
    new = resource("Shade", SHADE.group, "v2")
    denied(bench.api, SHADES, new)
    async with bench.following():
        await until(lambda: later.seconds == [10.0])
        install(bench.api, definition("Shade", SHADE.group, "v1", "v2", labels=POLICY))
        await until(lambda: len(later.pending) == 2)
        assert later.seconds == [10.0]


async def test_discovery_has_to_lack_a_kind_twice(bench: Bench) -> None:
    # It is made every few seconds, and lacks custom resources just after a start.
    denied(bench.api, DEFINITIONS)
    async with bench.following():
        await until(lambda: bench.pauses)
        assert GATEWAY in bench.world.waiting
        assert bench.pauses == [10.0]
        assert "named: none is" in bench.definitions_note
        bench.looks.release()
        await bench.until_known()
        await until(lambda: bench.pauses == [10.0, 30.0])
        assert bench.note(GATEWAY_CLASS) == "not there: the API server does not serve it"
        install(bench.api, GATEWAY_DEFINITION)
        bench.looks.release()
        await until(lambda: bench.note(GATEWAY) == "ok")


async def test_what_discovery_lacks_later_is_followed_on(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(availability, "SURE_SECONDS", 0.0)
    denied(bench.api, DEFINITIONS)
    bench.api.http.fault(
        lambda r: r.path.startswith(DEFINITIONS.path() + "/"), refusal("no"), times=10**9
    )
    install(bench.api, GATEWAY_DEFINITION)
    bench.api.put(GATEWAYS, key("gw"))
    async with bench.following():
        await until(lambda: bench.names() == {"gw"} and bench.pauses)
        bench.world.take()
        bench.api.undefine(GATEWAYS)
        bench.api.undefine(OLD_GATEWAYS)
        bench.looks.release()
        bench.looks.release()
        await until(lambda: len(bench.pauses) == 3 and bench.world.due is not None)
        assert bench.names() == {"gw"}
        assert bench.kinds.choices[GATEWAY].gvr == GATEWAYS
        bench.now += 30.0
        assert [event.type for event in bench.world.take()] == ["delete"]


async def test_discovery_that_fails_is_no_absence(bench: Bench) -> None:
    denied(bench.api, DEFINITIONS)
    group = bench.api.http.fault(
        lambda r: r.path == f"/apis/{GROUP}", answer(503, b"not now"), times=2
    )
    async with bench.following():
        await until(lambda: bench.pauses == [10.0])
        assert bench.note(GATEWAY) == "looked for: 503 not now"
        bench.looks.release()
        await until(lambda: len(bench.pauses) == 2)
        assert (group.times, GATEWAY in bench.world.waiting) == (0, True)
        install(bench.api, GATEWAY_DEFINITION)
        bench.looks.release()
        await until(lambda: bench.note(GATEWAY) == "ok")


async def test_definitions_that_may_be_read_at_last_are_the_truth(bench: Bench) -> None:
    install(bench.api, SHADE_DEFINITION)
    denied(bench.api, DEFINITIONS)
    async with bench.following():
        await until(lambda: bench.pauses)
        allowed(bench.api)
        await bench.until_known()
        assert [kind.id for kind in bench.kinds.policies] == [SHADE]
        await until(lambda: bench.definitions_note == "ok")
        seen = len(bench.api.http.requests)
        bench.looks.release()
        await until(lambda: bench.note(SHADE) == "ok")
        asked = [r.path for r in bench.api.http.requests[seen:]]
        assert f"/apis/{GROUP}" not in asked


async def test_an_answer_of_discovery_that_comes_too_late_counts_for_nothing(bench: Bench) -> None:
    install(bench.api, definition("Gateway", GROUP, "v1beta1"))
    denied(bench.api, DEFINITIONS)
    gate = asyncio.Event()

    async def late(_request: Any, proceed: Any) -> Any:
        response = await proceed()
        await gate.wait()
        return response

    asked = bench.api.http.fault(lambda r: r.path == f"/apis/{GROUP}/v1beta1", late)
    async with bench.following():
        await asked.met.wait()
        allowed(bench.api)
        await bench.until_known()
        install(bench.api, GATEWAY_DEFINITION)
        await until(lambda: bench.kinds.choices[GATEWAY].gvr == GATEWAYS)
        gate.set()
        await until(lambda: bench.pauses)
        assert bench.kinds.choices[GATEWAY].gvr == GATEWAYS


async def test_definitions_that_may_not_be_read_any_more_stand_as_they_were(bench: Bench) -> None:
    install(bench.api, SHADE_DEFINITION)
    async with bench.following():
        await bench.until_known()
        await bench.api.watched(DEFINITIONS)
        denied(bench.api, DEFINITIONS)
        bench.api.http.fault(watches(DEFINITIONS), refusal("no more"), times=10**9)
        bench.api.http.cut()
        stands = "no more; what was known of them stands"
        await until(lambda: bench.definitions_note.endswith(stands))
        assert [kind.id for kind in bench.kinds.policies] == [SHADE]
        assert bench.kinds.waiting == ()
        assert bench.pauses == []


async def test_the_end_leaves_no_timer(bench: Bench, later: Later) -> None:
    install(bench.api, SHADE_DEFINITION)
    install(bench.api, GATEWAY_DEFINITION)
    denied(bench.api, SHADES)
    async with bench.following():
        await until(lambda: later.seconds == [10.0])
        uninstall(bench.api, GATEWAY_DEFINITION)
        await until(lambda: sorted(later.seconds) == [10.0, 30.0])
    assert later.seconds == []
