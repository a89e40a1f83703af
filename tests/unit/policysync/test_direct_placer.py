from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncGenerator, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import REGISTRY

from kube_sync.certificates import make_authority
from kube_sync.errors import Conflict, Refused, Retriable
from kube_sync.kube.collection import KubeCollection
from kube_sync.kube.fencedwriter import FencedWriter
from kube_sync.kube.reflector import Reflector
from kube_sync.kube.wholeobjects import NAMESPACES
from kube_sync.objects import GroupVersionResource, ObjectKey
from kube_sync.policysync.copies import MANAGED, MANAGER, PolicyId
from kube_sync.policysync.direct_placer import DirectPlacer, spoke_kinds
from kube_sync.policysync.downstream import Downstream
from kube_sync.policysync.feedback_fields import FIELDS
from kube_sync.policysync.manifestworks import LEAVING
from kube_sync.policysync.placers import CONCURRENT_STEPS, PlacerRoute, Placers
from kube_sync.policysync.plan import Apply
from kube_sync.policysync.spoke import SpokeOptions
from kube_sync.topology.synced_policies import SYNCED
from tests.fakes.apiserver import FakeApiServer, fake_apiserver, lists, patches
from tests.fakes.clients import SECRETS, kube_of
from tests.fakes.copies import AUTH, PLACE, copy, policy
from tests.fakes.http import Recorded, failing, hang, held
from tests.unit.async_tools import running, until

# Named though there is no TLS: to read the machine's own takes 0.03 s of CPU each time.
AUTHORITY = {
    "certificate-authority-data": base64.b64encode(make_authority("nobody").cert_pem).decode()
}
BETA = GroupVersionResource("kuadrant.io", "v1beta1", "authpolicies")


class Fleet:
    """A hub with Secrets, two spokes, and what a placer tells of them."""

    def __init__(self, hub: FakeApiServer, spokes: dict[str, FakeApiServer], folder: Path) -> None:
        self.hub = hub
        self.spokes = spokes
        self.news: list[PolicyId] = []
        self.came: list[str] = []
        self._folder = folder

    @property
    def east(self) -> FakeApiServer:
        return self.spokes["east"]

    def grant(self, cluster: str, **user: Any) -> None:
        """Put the Secret of a spoke on the hub."""
        content = kubeconfig(self.spokes[cluster].http.url, user or {"token": "t"})
        self.put_secret(cluster, content)

    def put_secret(self, cluster: str, content: bytes) -> None:
        data = {"kubeconfig": base64.b64encode(content).decode()}
        self.hub.put(SECRETS, ObjectKey("spokes", cluster), type="Opaque", data=data)

    @asynccontextmanager
    async def placing(self, **options: Any) -> AsyncGenerator[DirectPlacer]:
        placer = DirectPlacer(
            self.news.append,
            self.came.append,
            options=SpokeOptions(MANAGER, **options),
            schemes=("http",),
        )
        placer.follow({AUTH: FIELDS})
        async with kube_of(self.hub, self._folder) as client:
            source = KubeCollection(client, SECRETS, namespace="spokes")
            reflector = Reflector("spokes", source, placer.store, lambda _reason: None)
            async with running(reflector.run(), placer.run()):
                await self.hub.watched(SECRETS)
                yield placer

    @asynccontextmanager
    async def placed(self, **options: Any) -> AsyncGenerator[DirectPlacer]:
        async with self.placing(**options) as placer:
            await until(lambda: placer.ready and len(self.came) == len(self.spokes))
            for spoke in self.spokes.values():
                await spoke.watched(AUTH)
            yield placer

    def writes(self, cluster: str = "east") -> list[str]:
        requests = self.spokes[cluster].http.requests
        return [one.method for one in requests if one.method != "GET"]

    def change(self, *, spec: Any = None, status: Any = None, **metadata: Any) -> None:
        """Change the copy in the east as somebody else does."""
        found = self.east.get(AUTH, PLACE)
        kept = {n: v for n, v in found["metadata"].items() if n != "resourceVersion"}
        content = {"spec": spec or found["spec"], "status": status or {}}
        self.east.put(AUTH, PLACE, metadata={**kept, **metadata}, **content)


def kubeconfig(server: str, user: dict[str, Any]) -> bytes:
    document = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
        "clusters": [{"name": "k", "cluster": {"server": server, **AUTHORITY}}],
        "users": [{"name": "u", "user": user}],
    }
    return yaml.safe_dump(document).encode()


@pytest.fixture
async def fleet(tmp_path: Path) -> AsyncGenerator[Fleet]:
    async with AsyncExitStack() as stack:
        hub = await stack.enter_async_context(fake_apiserver())
        hub.define(SECRETS, "Secret")
        spokes = {n: await stack.enter_async_context(fake_apiserver()) for n in ("east", "west")}
        for spoke in spokes.values():
            spoke.define(AUTH, "AuthPolicy", builtin=False)
            spoke.define(NAMESPACES, "Namespace", namespaced=False)
        fleet = Fleet(hub, spokes, tmp_path)
        for name in spokes:
            fleet.grant(name)
        yield fleet


async def test_a_copy_is_applied_at_its_spoke_and_nowhere_else(fleet: Fleet) -> None:
    async with fleet.placed() as placer:
        await placer.apply(copy())
        found = fleet.east.get(AUTH, PLACE)
        assert found["spec"] == copy().body["spec"]
        assert found["metadata"]["annotations"][SYNCED] == "true"
        assert fleet.east.http.requests[-1].query["fieldManager"] == MANAGER
        assert fleet.east.http.requests[-1].headers["Authorization"] == "Bearer t"
        assert fleet.spokes["west"].objects(AUTH) == {}
        assert list(placer.placed(policy())) == ["east"]
        assert placer.policies() == {policy()}


async def test_however_many_clusters_there_are_metrics_have_no_more_series(fleet: Fleet) -> None:
    async with fleet.placed():
        values = {
            value
            for family in REGISTRY.collect()
            for sample in family.samples
            for value in sample.labels.values()
        }
    assert any(value.endswith(" on spokes") for value in values)
    assert not [value for value in values if any(f" on {name}" in value for name in fleet.spokes)]


async def test_nothing_is_written_twice_also_not_after_a_restart(fleet: Fleet) -> None:
    async with fleet.placed() as placer:
        await placer.apply(copy())
        await placer.apply(copy())
    fleet.came.clear()
    async with fleet.placed() as placer:
        assert placer.placed(policy())["east"].digest == copy().digest
        await placer.apply(copy())
    assert fleet.writes() == ["PATCH"]


async def test_a_copy_that_the_watch_has_not_told_of_yet_is_not_written_again(
    fleet: Fleet,
) -> None:
    async with fleet.placed() as placer:
        await placer.apply(copy())
        placer.follow({})
        placer.follow({AUTH: FIELDS[:1]})  # begins anew, and holds nothing yet
        await placer.apply(copy())
    assert fleet.writes() == ["PATCH"]


async def test_a_native_policy_of_the_same_name_is_left_and_told(fleet: Fleet) -> None:
    """Also one that says the very same."""
    async with fleet.placed() as placer:
        native = fleet.east.put(AUTH, PLACE, spec=copy().body["spec"])
        with pytest.raises(Conflict, match=r"cluster east: .*kuadrant-shop/login is not ours"):
            await placer.apply(copy())
        await placer.remove(copy().key)
        assert fleet.east.get(AUTH, PLACE) == native
        assert fleet.writes() == []


async def test_a_copy_of_another_policy_is_not_taken_over(fleet: Fleet) -> None:
    other = copy(downstream=Downstream("elsewhere-")).body["metadata"]
    marks = {n: other[n] for n in ("labels",)}
    notes = {**other["annotations"], "kube-sync.io/policy": "kuadrant.io/v1/authpolicies:x/login"}
    async with fleet.placed() as placer:
        fleet.east.put(AUTH, PLACE, metadata={**marks, "annotations": notes}, spec={})
        with pytest.raises(Conflict):
            await placer.apply(copy())


async def test_what_somebody_made_of_a_copy_is_not_ours(fleet: Fleet) -> None:
    """With all its labels, but applied by another: to remove it would be to lose it."""
    async with fleet.placed() as placer:
        body = copy().body
        marks = {n: body["metadata"][n] for n in ("labels", "annotations")}
        managed = [{"manager": "kubectl", "operation": "Apply"}]
        place = ObjectKey("tests", "login")
        metadata = {**marks, "managedFields": managed}
        fleet.east.put(AUTH, place, metadata=metadata, spec=body["spec"])
        await placer.apply(copy())
        await placer.remove(copy().key)
        assert list(fleet.east.objects(AUTH)) == [place]


async def test_a_copy_that_a_backup_brought_back_is_ours_again(fleet: Fleet) -> None:
    async with fleet.placed() as placer:
        metadata = {n: copy().body["metadata"][n] for n in ("labels", "annotations")}
        fleet.east.put(AUTH, PLACE, metadata=metadata, spec=copy().body["spec"])
        changed = copy(rules=["a"])
        await placer.apply(changed)
        assert placer.placed(policy())["east"].digest == changed.digest


async def test_a_missing_namespace_is_made_and_carries_our_label(fleet: Fleet) -> None:
    async with fleet.placed() as placer:
        missing = failing(404, 'namespaces "kuadrant-shop" not found')
        fleet.east.http.fault(patches(AUTH), missing)
        await placer.apply(copy())
        made = fleet.east.get(NAMESPACES, ObjectKey("", "kuadrant-shop"))
        assert made["metadata"]["labels"] == {MANAGED: "true"}
        assert PLACE in fleet.east.objects(AUTH)


async def test_a_namespace_that_somebody_else_made_meanwhile_is_fine(fleet: Fleet) -> None:
    async with fleet.placed() as placer:
        fleet.east.put(NAMESPACES, ObjectKey("", "kuadrant-shop"))
        missing = failing(404, 'namespaces "kuadrant-shop" not found')
        fleet.east.http.fault(patches(AUTH), missing)
        await placer.apply(copy())
        assert PLACE in fleet.east.objects(AUTH)


async def test_a_kind_that_a_spoke_lacks_is_told_and_tried_again(fleet: Fleet) -> None:
    fleet.east.undefine(AUTH)
    async with fleet.placing() as placer:
        await until(lambda: placer.ready and "east" in placer.errors)
        assert "does not know this resource" in placer.errors["east"]
        with pytest.raises(Retriable, match="cluster east"):
            await placer.apply(copy())
        await placer.apply(copy("west"))


async def test_copies_stay_known_while_their_kind_is_said_to_be_unknown(fleet: Fleet) -> None:
    async with fleet.placed() as placer:
        await placer.apply(copy())
        fleet.east.http.fault(lists(AUTH), failing(404, "the server could not find it"))
        fleet.east.compact()
        fleet.east.http.cut()
        await until(lambda: "east" in placer.errors)
        assert list(placer.placed(policy())) == ["east"]
        await until(lambda: "east" not in placer.errors)
        assert fleet.news == []


async def test_what_a_spoke_says_of_its_copy_is_told(fleet: Fleet) -> None:
    async with fleet.placed() as placer:
        await placer.apply(copy())
        said = {"type": "Enforced", "status": "False", "reason": "Overridden", "message": "by x"}
        fleet.change(status={"conditions": [said]})
        await until(lambda: fleet.news)
        feedback = placer.placed(policy())["east"].feedback
        assert feedback is not None
        assert feedback.values["enforcedStatus"] == "False"
        assert feedback.values["enforcedReason"] == "Overridden"
        assert feedback.values["digest"] == copy().digest
        assert fleet.news == [policy()]


async def test_a_status_of_a_strange_shape_is_trouble_of_that_copy_alone(fleet: Fleet) -> None:
    async with fleet.placed() as placer:
        await placer.apply(copy())
        fleet.change(status={"observedGeneration": {"a": 1}, "conditions": "x"})
        await until(lambda: fleet.news)
        feedback = placer.placed(policy())["east"].feedback
        assert feedback is not None
        assert "observedGeneration" in feedback.problem


async def test_a_spec_that_somebody_changed_is_put_right(fleet: Fleet) -> None:
    async with fleet.placed() as placer:
        await placer.apply(copy())
        fleet.change(spec={"rules": ["of somebody"]}, generation=2)
        await until(lambda: fleet.news)
        assert placer.placed(policy())["east"].digest == ""
        await placer.apply(copy())
        assert placer.placed(policy())["east"].digest == copy().digest
        assert fleet.east.get(AUTH, PLACE)["spec"]["targetRef"]["name"] == "web"
        fleet.change(status={"observedGeneration": 3})
        await until(lambda: len(fleet.news) > 1)
        assert placer.placed(policy())["east"].digest == copy().digest


async def test_a_copy_that_was_made_to_look_native_is_put_right(fleet: Fleet) -> None:
    async with fleet.placed() as placer:
        await placer.apply(copy())
        notes = dict(fleet.east.get(AUTH, PLACE)["metadata"]["annotations"])
        del notes[SYNCED]
        fleet.change(annotations=notes)
        await until(lambda: fleet.news)
        await placer.apply(copy())
        assert fleet.east.get(AUTH, PLACE)["metadata"]["annotations"][SYNCED] == "true"


async def test_a_copy_that_lost_its_label_is_news_and_found_by_its_name(fleet: Fleet) -> None:
    async with fleet.placed() as placer:
        await placer.apply(copy())
        fleet.change(labels={})
        await until(lambda: fleet.news)
        assert placer.placed(policy()) == {}
        await placer.apply(copy())
        assert list(placer.placed(policy())) == ["east"]
        assert fleet.east.get(AUTH, PLACE)["metadata"]["labels"][MANAGED] == "true"


async def test_a_copy_leaves_and_comes_back(fleet: Fleet) -> None:
    async with fleet.placed() as placer:
        await placer.apply(copy())
        await placer.mark_for_removal(copy().key, 99.5)
        assert fleet.east.get(AUTH, PLACE)["metadata"]["annotations"][LEAVING] == "100"
        assert placer.placed(policy())["east"].remove_after == 100.0
        await placer.apply(copy())
        assert placer.placed(policy())["east"].remove_after is None
        assert fleet.writes() == ["PATCH"] * 3


async def test_to_mark_a_copy_that_is_gone_is_fine(fleet: Fleet) -> None:
    async with fleet.placed() as placer:
        await placer.apply(copy())
        fleet.east.http.fault(patches(AUTH), failing(404, "gone"))
        await placer.mark_for_removal(copy().key, 100)
        assert placer.placed(policy())["east"].remove_after is None


async def test_a_removed_copy_is_deleted_by_its_uid(fleet: Fleet) -> None:
    async with fleet.placed() as placer:
        await placer.apply(copy())
        uid = fleet.east.get(AUTH, PLACE)["metadata"]["uid"]
        await placer.remove(copy().key)
        assert fleet.east.http.requests[-1].json()["preconditions"] == {"uid": uid}
        assert fleet.east.objects(AUTH) == {}
        await placer.remove(copy().key)
        assert fleet.writes() == ["PATCH", "DELETE"]


async def test_a_copy_on_its_way_out_is_waited_for(fleet: Fleet) -> None:
    async with fleet.placed() as placer:
        await placer.apply(copy())
        fleet.change(finalizers=["kuadrant.io/cleanup"])
        await placer.remove(copy().key)
        with pytest.raises(Retriable, match="is being deleted"):
            await placer.apply(copy())
        fleet.east.delete(AUTH, PLACE)
        await until(lambda: fleet.news)
        await placer.apply(copy())
        assert PLACE in fleet.east.objects(AUTH)


async def test_another_namespace_for_copies_moves_them(fleet: Fleet) -> None:
    moved = copy(downstream=Downstream("sync-"))
    async with fleet.placed() as placer:
        await placer.apply(copy())
        await placer.apply(moved)
        assert list(fleet.east.objects(AUTH)) == [ObjectKey("sync-shop", "login")]


async def test_a_copy_of_another_version_is_kept_and_found(fleet: Fleet) -> None:
    """The hub's list named another version of the kind before."""
    fleet.east.define(BETA, "AuthPolicy", builtin=False)
    async with fleet.placed() as placer:
        placer.follow({BETA: FIELDS})
        await until(lambda: fleet.came.count("east") == 2)
        old = copy(gvr=BETA)
        await placer.apply(old)
        assert list(placer.placed(old.key.policy)) == ["east"]
        assert placer.placed(policy()) == {}
        await placer.remove(old.key)
        assert fleet.east.objects(BETA) == {}


async def test_an_object_that_was_made_anew_is_left_for_the_watch(fleet: Fleet) -> None:
    async with fleet.placed() as placer:
        await placer.apply(copy())
        fleet.east.http.fault(patches(AUTH), failing(409, "uid mismatch: x"))
        with pytest.raises(Retriable):
            await placer.apply(copy(rules=["a"]))


async def test_a_refusal_of_one_spoke_is_told_and_hinders_no_other(fleet: Fleet) -> None:
    async with fleet.placed() as placer:
        fleet.east.http.fault(patches(AUTH), failing(403, "no"))
        with pytest.raises(Refused):
            await placer.apply(copy())
        await placer.apply(copy("west"))
        assert list(placer.placed(policy())) == ["west"]


async def test_a_spoke_that_hangs_is_given_up_and_hinders_no_other(fleet: Fleet) -> None:
    async with fleet.placed(timeout=1.0) as placer:
        fleet.east.http.fault(patches(AUTH), hang())
        with pytest.raises(Retriable, match="cluster east: no answer in"):
            await placer.apply(copy())
        await placer.apply(copy("west"))


async def test_many_policies_for_a_spoke_that_hangs_delay_no_other_spoke(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More than there are turns: those of the other one are not taken by who waits."""
    names = [f"p{number}" for number in range(CONCURRENT_STEPS + 4)]
    fleet.east.http.fault(patches(AUTH), hang(), times=100)
    async with fleet.placed(timeout=60.0) as placer:
        placers = Placers(FencedWriter(lambda: 10.0))
        placers.add(PlacerRoute(placer, per_cluster=True))
        east = [placers.run(Apply(copy("east", name))) for name in names]
        async with running(*map(_quietly, east)):
            await until(lambda: len(fleet.writes("east")) >= 4)
            started = asyncio.get_running_loop().time()
            for name in names:
                await placers.run(Apply(copy("west", name)))
            assert asyncio.get_running_loop().time() - started < 5.0
            assert len(fleet.spokes["west"].objects(AUTH)) == len(names)
            monkeypatch.setattr("kube_sync.policysync.placers._SLOW", 0.01)
            with pytest.raises(Retriable, match="what was asked of it before takes more"):
                await placers.run(Apply(copy("east", "late")))


async def _quietly(step: Coroutine[Any, Any, None]) -> None:
    with suppress(Retriable):
        await step


async def test_no_more_than_a_few_steps_at_once_are_under_way_to_a_spoke(fleet: Fleet) -> None:
    gate = asyncio.Event()
    fault = fleet.east.http.fault(patches(AUTH), held(gate), times=9)
    async with fleet.placed(concurrency=2) as placer, asyncio.TaskGroup() as group:
        for n in range(9):
            group.create_task(placer.apply(copy(name=f"p{n}")))
        await until(lambda: len(fleet.writes()) == 2)
        await placer.apply(copy("west"))  # time for the others to come, if they could
        assert len(fleet.writes()) == 2
        gate.set()
    assert len(fleet.writes()) == 9
    assert fault is not None


async def test_a_spoke_that_is_away_is_told_and_asked_again(fleet: Fleet) -> None:
    server = fleet.east.http
    server.fault(lists(AUTH), failing(503, "starting"), times=2)
    async with fleet.placing() as placer:
        await until(lambda: "503" in placer.errors.get("east", ""))
        await until(lambda: placer.ready)
        assert "503 starting" in placer.errors["east"]
        with pytest.raises(Retriable, match="cluster east: 503"):
            await placer.apply(copy())
        assert fleet.writes() == []
        await until(lambda: "east" in fleet.came)
        await placer.apply(copy())
        assert placer.errors == {}


async def test_a_cluster_without_a_secret_is_told(fleet: Fleet) -> None:
    async with fleet.placed() as placer:
        with pytest.raises(Retriable, match="cluster north: there is no Secret"):
            await placer.apply(copy("north"))


async def test_a_secret_that_cannot_be_used_is_told_for_its_cluster_alone(fleet: Fleet) -> None:
    server = fleet.east.http.url
    fleet.put_secret("east", kubeconfig(server, {"exec": {"command": "sh"}}))
    async with fleet.placing() as placer:
        await until(lambda: placer.ready and fleet.came)
        assert placer.errors == {
            "east": "kubeconfig: users[].user.exec is refused: it runs a program"
        }
        with pytest.raises(Retriable, match="exec"):
            await placer.apply(copy())
        await placer.apply(copy("west"))


def comes_anew(request: Recorded) -> bool:
    return request.headers.get("Authorization") == "Bearer new"


async def test_a_new_token_is_used_at_once_and_nothing_is_forgotten(fleet: Fleet) -> None:
    async with fleet.placed() as placer:
        await placer.apply(copy())
        fleet.east.token = "new"
        fleet.grant("east", token="new")
        await fleet.east.http.until_next(comes_anew)
        assert list(placer.placed(policy())) == ["east"]
        await fleet.east.watched(AUTH)
        await placer.apply(copy(rules=["a"]))
        assert fleet.east.get(AUTH, PLACE)["spec"]["rules"] == ["a"]


async def test_a_step_under_way_ends_with_the_token_that_it_began_with(fleet: Fleet) -> None:
    gate = asyncio.Event()
    async with fleet.placed() as placer, asyncio.TaskGroup() as group:
        fleet.east.http.fault(patches(AUTH), held(gate))
        step = group.create_task(placer.apply(copy()))
        await until(fleet.writes)
        fleet.grant("east", token="new")
        fleet.put_secret("west", b"{")
        await until(lambda: "west" in placer.errors)  # and so it has read the one before
        for _ in range(20):
            await asyncio.sleep(0)
        gate.set()
        await step
        assert PLACE in fleet.east.objects(AUTH)


async def test_a_secret_that_breaks_keeps_what_is_known_and_stops_what_is_done(
    fleet: Fleet,
) -> None:
    async with fleet.placed() as placer:
        await placer.apply(copy())
        fleet.put_secret("east", b"{")
        await until(lambda: "east" in placer.errors)
        assert list(placer.placed(policy())) == ["east"]
        await until(lambda: fleet.east.watchers(AUTH) == 0)
        with pytest.raises(Retriable, match="is no kubeconfig"):
            await placer.apply(copy(rules=["a"]))
        fleet.grant("east")
        await until(lambda: fleet.came.count("east") > 1 or not placer.errors)


async def test_a_spoke_whose_secret_is_gone_is_gone_and_comes_back_whole(fleet: Fleet) -> None:
    async with fleet.placed() as placer:
        await placer.apply(copy())
        fleet.hub.delete(SECRETS, ObjectKey("spokes", "east"))
        await until(lambda: fleet.news)
        assert placer.placed(policy()) == {}
        assert PLACE in fleet.east.objects(AUTH)
        fleet.news.clear()
        fleet.grant("east")
        await until(lambda: fleet.news)
        assert list(placer.placed(policy())) == ["east"]


async def test_nothing_is_ready_before_every_spoke_was_asked(fleet: Fleet) -> None:
    gate = asyncio.Event()
    fleet.east.http.fault(lists(AUTH), held(gate))
    async with fleet.placing() as placer:
        await until(lambda: fleet.came == ["west"])
        assert not placer.ready
        gate.set()
        await until(lambda: placer.ready)


async def test_a_copy_of_another_policy_that_is_held_is_not_taken_over(fleet: Fleet) -> None:
    """Two namespaces of a hub may lead to one of a spoke, by whatever spelling."""
    other = copy()
    key = other.key._replace(policy=other.key.policy._replace(namespace="hop"))
    async with fleet.placed() as placer:
        await placer.apply(other)
        with pytest.raises(Conflict, match="is not ours"):
            await placer.apply(replace(other, key=key, digest="another"))
        assert fleet.writes() == ["PATCH"]


async def test_a_copy_that_was_edited_while_nobody_looked_is_put_right(fleet: Fleet) -> None:
    async with fleet.placed() as placer:
        await placer.apply(copy(rules=["a"]))
    fleet.change(spec={**copy().body["spec"], "rules": ["b"]}, generation=2)
    fleet.came.clear()
    async with fleet.placed() as placer:
        assert placer.placed(policy())["east"].digest == ""
        await placer.apply(copy(rules=["a"]))
        assert placer.placed(policy())["east"].digest == copy(rules=["a"]).digest
    assert fleet.east.get(AUTH, PLACE)["spec"]["rules"] == ["a"]
    assert fleet.writes() == ["PATCH", "PATCH"]


async def test_what_has_only_more_than_was_wanted_is_not_written_after_a_restart(
    fleet: Fleet,
) -> None:
    """Defaults are put to it, and ours is what we said."""
    wanted = copy(rules=[{"a": 1.0}])
    async with fleet.placed() as placer:
        await placer.apply(wanted)
    target = {**wanted.body["spec"]["targetRef"], "weight": 1}
    fleet.change(spec={"targetRef": target, "rules": [{"a": 1, "b": 2}]}, generation=2)
    fleet.came.clear()
    async with fleet.placed() as placer:
        await placer.apply(wanted)
        assert placer.placed(policy())["east"].digest == wanted.digest
    assert fleet.writes() == ["PATCH"]


async def test_whoever_changes_a_copy_again_and_again_is_left_alone_for_a_while(
    fleet: Fleet,
) -> None:
    now = 0.0
    async with fleet.placed(clock=lambda: now) as placer:
        await placer.apply(copy())

        async def edit(generation: int) -> None:
            fleet.change(spec={"rules": [generation]}, generation=generation)
            await until(lambda: placer.placed(policy())["east"].digest == "")

        for generation in (10, 20, 30):
            await edit(generation)
            await placer.apply(copy())
        await edit(40)
        with pytest.raises(Retriable, match="east: somebody else changes") as found:
            await placer.apply(copy())
        assert found.value.retry_after == 600
        assert fleet.writes() == ["PATCH"] * 4
        now = 600.0
        await placer.apply(copy())
        assert fleet.writes() == ["PATCH"] * 5


async def test_a_spoke_that_comes_later_and_does_not_answer_holds_nobody_up(fleet: Fleet) -> None:
    async with fleet.placed() as placer:
        fleet.east.http.fault(lists(AUTH), hang(), times=9)
        content = kubeconfig(fleet.east.http.url, {"token": "t"})
        fleet.put_secret("north", content)
        await until(lambda: "north" in placer.clusters)
        assert placer.ready
        assert "not everything is listed" in placer.errors["north"]


async def test_a_spoke_that_does_not_answer_at_the_start_is_waited_for_a_while(
    fleet: Fleet, tmp_path: Path
) -> None:
    now = 0.0
    placer = DirectPlacer(fleet.news.append, clock=lambda: now, schemes=("http",))
    placer.follow({AUTH: FIELDS})
    assert not placer.ready
    async with kube_of(fleet.hub, tmp_path) as client:
        source = KubeCollection(client, SECRETS, namespace="spokes")
        reflector = Reflector("spokes", source, placer.store, lambda _reason: None)
        async with running(reflector.run()):  # and nobody speaks to a spoke
            await fleet.hub.watched(SECRETS)
            assert not placer.ready
            now = 29.0
            assert not placer.ready
            now = 30.0
            assert placer.ready


async def test_what_is_known_of_a_kind_stays_while_other_fields_of_it_are_read(
    fleet: Fleet,
) -> None:
    async with fleet.placed() as placer:
        await placer.apply(copy())
        placer.follow({AUTH: FIELDS[:1]})
        assert placer.placed(policy())["east"].digest == copy().digest
        assert placer.ready


async def test_a_copy_of_a_kind_that_left_the_list_is_found_after_a_restart(fleet: Fleet) -> None:
    async with fleet.placed() as placer:
        await placer.apply(copy())
    fleet.came.clear()
    async with fleet.placed() as placer:
        placer.follow({})
        placer.follow(spoke_kinds({}, {}, placer.policies(), [AUTH]))
        await until(lambda: placer.policies() == {policy()})
        await placer.remove(copy().key)
    assert fleet.east.objects(AUTH) == {}
