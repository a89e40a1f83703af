from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import REGISTRY
from structlog.testing import capture_logs

from kube_sync.admission import registration
from kube_sync.admission.policygate import PolicyGate
from kube_sync.admission.registration import Registration, policy_exists
from kube_sync.admission.server import PATH
from kube_sync.certificates import make_authority
from kube_sync.config import Admission, Settings
from kube_sync.config.webhook import Registration as RegistrationSettings
from kube_sync.errors import Misconfigured
from kube_sync.kube.client import KubeClient
from kube_sync.kube.collection import Event, Item, KubeCollection, ResourceVersion
from kube_sync.kube.policymaps import PolicyMaps
from kube_sync.kube.reflector import Reflector
from kube_sync.kube.webhooks import CONFIGURATIONS
from kube_sync.objects import ObjectKey
from tests.fakes.apiserver import FakeApiServer, fake_apiserver
from tests.fakes.clients import kube_of
from tests.fakes.http import answer, hang, lose_answer
from tests.unit.async_tools import Waits, running, until

KEY = ObjectKey("", "kube-sync-placement")
FIRST, SECOND = (make_authority(name).cert_pem for name in ("first", "second"))


class Lease:
    held = True


class World:
    """One registration, turned by the test, and the API server that it is kept at."""

    def __init__(
        self,
        api: FakeApiServer,
        client: KubeClient,
        ca_file: Path,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self.api = api
        self.client = client
        self.ca_file = ca_file
        self.exists: bool | None = True
        self.seconds = 1000.0
        self.notes: list[str] = []
        self.lease = Lease()
        self.news = asyncio.Event()
        ca_file.write_bytes(FIRST)
        named = RegistrationSettings(KEY.name, str(ca_file))
        self.registration = Registration(
            client,
            Settings(admission=Admission(registration=named)),
            self.lease,
            lambda: self.exists,
            self.notes.append,
            self.news,
            backoff=Waits().backoff(0.1, 10.0),
            clock=clock or (lambda: self.seconds),
        )
        self._before = _writes()

    def put(self, **webhook: Any) -> None:
        """Register the webhook, or change its registration."""
        bare = {"name": "placement.kube-sync.io", "clientConfig": {"url": f"https://h{PATH}"}}
        self.api.put(CONFIGURATIONS, KEY, webhooks=[bare | webhook])

    async def see(self) -> None:
        """Let the store hold what there is."""
        source = KubeCollection(self.client, CONFIGURATIONS)
        async for page in source.list():
            await self.registration.store.page(page.items)
        self.registration.store.finish(known=True)

    async def turn(self) -> float:
        """See what there is, and act on it."""
        await self.see()
        return await self.registration.reconcile()

    @property
    def webhook(self) -> Any:
        (one,) = self.api.get(CONFIGURATIONS, KEY)["webhooks"]
        return one

    @property
    def policy(self) -> Any:
        return self.webhook.get("failurePolicy")

    @property
    def puts(self) -> int:
        return sum(request.method == "PUT" for request in self.api.http.requests)

    @property
    def writes(self) -> dict[str, float]:
        """Writes since the beginning, by outcome."""
        now = {name: n - self._before.get(name, 0) for name, n in _writes().items()}
        return {name: n for name, n in now.items() if n}


def _writes() -> dict[str, float]:
    samples = (s for m in REGISTRY.collect() for s in m.samples)
    name = "kube_sync_admission_registration_writes_total"
    return {s.labels["outcome"]: s.value for s in samples if s.name == name}


@pytest.fixture
async def world(tmp_path: Path) -> AsyncGenerator[World]:
    async with fake_apiserver() as api, kube_of(api, tmp_path) as client:
        api.define(CONFIGURATIONS, "MutatingWebhookConfiguration", namespaced=False)
        world = World(api, client, tmp_path / "ca.crt")
        world.put()
        yield world


async def test_it_is_made_right_once(world: World) -> None:
    await world.turn()
    assert world.policy == "Fail"
    assert base64.b64decode(world.webhook["clientConfig"]["caBundle"]) == FIRST
    (expression,) = world.webhook["namespaceSelector"]["matchExpressions"]
    assert expression["values"] == [
        "kube-system",
        "kube-sync",
        "kube-federation-scheduling-policy",
    ]
    assert [condition["name"] for condition in world.webhook["matchConditions"]] == [
        "kube-sync.io/not-leases-events",
        "kube-sync.io/not-being-deleted",
        "kube-sync.io/not-same-metadata",
    ]
    for _ in range(3):
        world.seconds += 100
        assert await world.turn() == 3.0
    assert world.puts == 1
    assert world.writes == {"written": 1}
    assert world.notes[-1] == "ok"


async def test_nothing_is_missing_before_anybody_has_looked(world: World) -> None:
    with capture_logs() as logs:
        await world.registration.reconcile()
    assert world.notes == ["not listed yet"]
    assert logs == []


async def test_it_opens_only_when_there_is_known_to_be_no_policy(world: World) -> None:
    world.put(failurePolicy="Fail")
    world.exists = None
    await world.turn()
    assert world.policy == "Fail"
    world.seconds += 1
    world.exists = False
    await world.turn()
    assert world.policy == "Ignore"


async def test_what_is_not_known_changes_nothing_at_first_and_then_closes(world: World) -> None:
    """A start would close it for a moment each time, and one that fails would leave it closed."""
    world.put(failurePolicy="Ignore")
    world.exists = None
    for _ in range(2):
        await world.turn()
        assert world.policy == "Ignore"
        world.seconds += 9.9 if world.seconds < 1001 else 0.2
    await world.turn()
    assert world.policy == "Fail"


async def test_not_knowing_begins_anew_each_time(world: World) -> None:
    world.put(failurePolicy="Ignore")
    for exists in (None, False, None):
        world.exists = exists
        await world.turn()
        world.seconds += 9
    assert world.policy == "Ignore"


async def test_closing_waits_for_no_backoff_and_opening_does(world: World) -> None:
    await world.turn()
    world.exists = False
    assert await world.turn() == pytest.approx(0.1)
    assert world.policy == "Fail"
    world.seconds += 0.1
    await world.turn()
    assert world.policy == "Ignore"
    world.exists = True
    await world.turn()
    assert world.policy == "Fail"


async def test_who_changes_it_again_and_again_meets_a_growing_wait(world: World) -> None:
    await world.turn()
    waits = []
    for _ in range(9):
        world.put(failurePolicy="Ignore")
        left = await world.turn()
        world.seconds += 0.01
        total = 0.0
        while world.policy != "Fail":
            world.seconds += left
            total += left
            left = await world.turn()
        waits.append(total)
    assert waits[0] == pytest.approx(0.1)
    assert waits == sorted(waits)
    assert waits[-1] > 9
    world.seconds += 61  # peace
    world.put(failurePolicy="Ignore")
    await world.turn()
    world.put(failurePolicy="Ignore")
    assert await world.turn() == pytest.approx(0.1)


async def test_what_was_written_is_not_written_again_before_it_is_seen(world: World) -> None:
    await world.see()
    for _ in range(3):
        await world.registration.reconcile()
        world.seconds += 100
    assert world.puts == 1


async def test_a_write_that_changes_nothing_is_no_reason_to_wait_for_news(world: World) -> None:
    """None would come, and it could never be closed."""
    held = world.api.get(CONFIGURATIONS, KEY)
    body = b'{"metadata":{"resourceVersion":"%s"}}' % held["metadata"]["resourceVersion"].encode()
    world.api.http.fault(lambda r: r.method == "PUT", answer(200, body))
    await world.turn()
    world.seconds += 1
    await world.turn()
    assert world.policy == "Fail"


async def test_a_change_that_came_first_is_looked_at_before_writing_again(world: World) -> None:
    await world.see()
    world.put(timeoutSeconds=7)
    await world.registration.reconcile()
    assert world.writes == {"conflict": 1}
    world.seconds += 100
    await world.registration.reconcile()
    assert world.puts == 1
    await world.turn()
    assert (world.policy, world.webhook["timeoutSeconds"]) == ("Fail", 7)


async def test_a_write_whose_answer_is_lost_does_no_harm(world: World) -> None:
    world.api.http.fault(lambda r: r.method == "PUT", lose_answer())
    await world.turn()
    puts = world.puts
    world.seconds += 1
    await world.turn()
    assert world.policy == "Fail"
    assert world.puts == puts
    assert world.notes[-1] == "ok"


async def test_a_write_that_fails_is_told_and_tried_again_later(world: World) -> None:
    world.api.http.fault(lambda r: r.method == "PUT", answer(503, retry_after="2"))
    assert await world.turn() == pytest.approx(2.0)
    assert world.notes[-1].startswith("cannot be written: 503")
    world.seconds += 1.9
    await world.turn()
    assert world.puts == 1
    world.seconds += 0.2
    await world.turn()
    assert world.policy == "Fail"
    assert world.notes[-1] == "ok"


async def test_a_write_that_hangs_is_left_after_a_while(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registration, "_WRITE_SECONDS", 0.01)
    world.api.http.fault(lambda r: r.method == "PUT", hang())
    await world.turn()
    assert world.notes[-1] == "cannot be written: no answer in time"


async def test_rights_that_are_missing_are_named(world: World) -> None:
    world.api.http.fault(lambda r: r.method == "PUT", answer(403, b"cannot update"))
    await world.turn()
    needed = "get, list, watch and update on mutatingwebhookconfigurations"
    assert world.notes[-1].startswith("cannot be written: 403 cannot update (needed: " + needed)
    world.registration.seen("403 cannot list")
    await world.turn()
    assert world.notes[-1].startswith("403 cannot list (needed: " + needed)
    world.registration.seen("connection refused")
    await world.turn()
    assert world.notes[-1] == "connection refused"


async def test_only_the_holder_of_the_lease_writes(world: World) -> None:
    world.lease.held = False
    await world.turn()
    assert world.puts == 0
    assert world.notes[-1] == "ok"
    world.lease.held = True
    await world.turn()
    assert world.policy == "Fail"


async def test_two_that_write_end_right_and_do_not_fight(world: World) -> None:
    """Where there can be no Lease, every replica writes."""
    other = World(world.api, world.client, world.ca_file)
    for exists in (True, False, True):
        for one in (world, other):
            one.seconds += 100
            one.exists = exists
            await one.see()
        for one in (world, other):
            await one.registration.reconcile()
        for one in (world, other) * 3:
            one.seconds += 100
            await one.turn()
        assert world.policy == ("Fail" if exists else "Ignore")
    assert world.writes == {"written": 3, "conflict": 3}


async def test_a_configuration_that_is_missing_is_told_with_what_to_do(world: World) -> None:
    world.api.delete(CONFIGURATIONS, KEY)
    assert await world.turn() == 3.0
    expected = "there is no mutatingwebhookconfigurations.v1.admissionregistration.k8s.io"
    assert world.notes[-1] == f"{expected} {KEY.name}: install manifests/webhook"
    world.put()
    await world.turn()
    assert world.policy == "Fail"


async def test_a_configuration_without_a_webhook_of_ours_is_told_and_left_alone(
    world: World,
) -> None:
    world.put(clientConfig={"url": "https://h/another"})
    await world.turn()
    assert world.notes[-1].endswith(f"calls {PATH}")
    assert world.puts == 0


async def test_certificates_that_are_replaced_are_told(world: World) -> None:
    await world.turn()
    world.ca_file.write_bytes(SECOND)
    world.seconds += 3
    await world.turn()
    assert base64.b64decode(world.webhook["clientConfig"]["caBundle"]) == SECOND


async def test_a_file_that_is_wrong_leaves_the_last_good_certificates(world: World) -> None:
    await world.turn()
    world.ca_file.write_bytes(b"half")
    world.put(failurePolicy="Ignore")
    world.seconds += 3
    await world.turn()
    assert base64.b64decode(world.webhook["clientConfig"]["caBundle"]) == FIRST
    assert world.notes[-1].startswith("the last good certificates are kept, since admission.")


async def test_a_file_that_is_wrong_from_the_start_is_a_mistake(world: World) -> None:
    named = RegistrationSettings(KEY.name, str(world.ca_file) + ".missing")
    settings = Settings(admission=Admission(registration=named))
    with pytest.raises(Misconfigured, match="ca_file"):
        Registration(
            world.client, settings, Lease(), lambda: None, world.notes.append, asyncio.Event()
        )


@pytest.mark.parametrize(
    ("policies", "closed"), [(("Fail",), 1), (("Ignore",), 0), (("Fail", "Ignore"), 0), ((), 0)]
)
async def test_what_is_in_force_is_a_metric(
    world: World, policies: tuple[str, ...], closed: int
) -> None:
    client = {"url": f"https://h{PATH}"}
    webhooks = [{"name": p, "clientConfig": client, "failurePolicy": p} for p in policies]
    world.api.put(CONFIGURATIONS, KEY, webhooks=webhooks)
    await world.turn()
    assert REGISTRY.get_sample_value("kube_sync_admission_registration_closed") == closed


async def test_trouble_is_logged_once_and_so_is_its_end(world: World) -> None:
    with capture_logs() as logs:
        world.registration.seen("away")
        for _ in range(3):
            await world.turn()
        world.registration.seen(None)
        for _ in range(3):
            await world.turn()
    told = [line["event"] for line in logs if line["event"] != "registration_written"]
    assert told == ["registration_not_kept", "registration_kept"]


async def test_changes_are_acted_on_as_they_come(world: World) -> None:
    """The whole of it: watch, news and time, none of them in the hands of the test."""
    source = KubeCollection(world.client, CONFIGURATIONS)
    world = World(world.api, world.client, world.ca_file, time.monotonic)
    kept = world.registration
    reflector = Reflector("c", source, kept.store, kept.seen)
    async with running(reflector.run(), kept.run()):
        await until(lambda: world.policy == "Fail")
        await world.api.watched(CONFIGURATIONS)
        world.put(failurePolicy="Ignore")
        await until(lambda: world.policy == "Fail")
        world.exists = False
        world.news.set()
        await until(lambda: world.policy == "Ignore")
        world.exists = True
        world.news.set()
        await until(lambda: world.policy == "Fail")


async def test_time_alone_is_a_reason_to_look(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.turn()
    monkeypatch.setattr(registration, "_LOOK_SECONDS", 0.01)
    world.ca_file.write_bytes(SECOND)
    world.seconds += 100
    async with running(world.registration.run()):
        await world.see()
        await until(lambda: world.puts == 2)


async def test_trouble_with_the_watch_is_told_at_once(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registration, "_LOOK_SECONDS", 1000.0)
    async with running(world.registration.run()):
        await until(lambda: world.notes)
        world.registration.seen("away")
        await until(lambda: world.notes[-1] == "away")


def test_policies_are_known_to_exist_or_known_not_to_or_neither() -> None:
    maps = PolicyMaps("p", lambda: None)
    gate = PolicyGate([maps], static=False)
    assert policy_exists(gate, [maps], static=False) is None
    assert policy_exists(PolicyGate([maps], static=True), [maps], static=True) is True
    maps.finish(known=True)
    assert policy_exists(gate, [maps], static=False) is False
    body = b'{"metadata": {"name": "a"}, "data": {"x.rego": "package x"}}'
    one = Item(ObjectKey("p", "a"), "uid", ResourceVersion("1"), body)
    maps.apply(Event("ADDED", one.version, one))
    assert policy_exists(gate, [maps], static=False) is True
