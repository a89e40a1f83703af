from __future__ import annotations

import asyncio
import gc
import json
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from prometheus_client import REGISTRY

from kube_sync.kube.collection import Event, Item, ResourceVersion
from kube_sync.objects import ObjectKey
from kube_sync.opa.paths import DataPath
from kube_sync.replicator.bulk_load import EVERYWHERE, FirstLoad
from kube_sync.replicator.mirror import Batch, Mirror
from kube_sync.replicator.projector import TOO_DEEP, Projector
from kube_sync.replicator.selection import Part
from tests.fakes.listing import Listing, at_once, document, listed
from tests.fakes.opa import FakeOpa
from tests.parts import examples

ROOT: DataPath = ("kubernetes",)


def item(name: str, version: str = "1", namespace: str = "default", **content: Any) -> Item:
    body = json.dumps({"metadata": {"name": name, "resourceVersion": version}, **content})
    return Item(ObjectKey(namespace, name), f"uid-{name}", ResourceVersion(version), body.encode())


def listing(*items: Item) -> Listing:
    return Listing(list(items), ResourceVersion("9"))


def added(found: Item) -> Event:
    return Event("ADDED", found.version, found)


def deleted(found: Item) -> Event:
    return Event("DELETED", found.version, found)


class Bench:
    """A Mirror, and an OPA with B1 semantics that takes what the Mirror wants written."""

    def __init__(self, *scopes: str) -> None:
        self.news = 0
        self.now = 100.0
        self.opa = FakeOpa()
        self.mirror = Mirror(
            "things", ROOT, self._told, scopes=scopes or (EVERYWHERE,), clock=lambda: self.now
        )

    def _told(self) -> None:
        self.news += 1

    def load(self) -> None:
        at_once(self._load())

    async def _load(self) -> None:
        path, first = await self.mirror.first_load()
        self.opa.put(path, json.loads(document(first)))
        self.mirror.first_written(first)

    def send(self, batch: Batch) -> list[dict[str, Any]]:
        operations = [json.loads(raw) for raw in self.mirror.operations(batch)]
        self.opa.patch(operations)
        return operations

    def flush(self) -> list[dict[str, Any]]:
        operations = self.send(batch := self.mirror.batch())
        self.mirror.written(batch)
        return operations

    @property
    def held(self) -> Any:
        return self.opa.data["kubernetes"]["things"]


def loaded(*items: Item) -> Bench:
    bench = Bench()
    listed(bench.mirror, listing(*items))
    bench.load()
    return bench


class Lag:
    """What the histogram is told of the lag."""

    def __init__(self) -> None:
        self._before = self._sample()

    @staticmethod
    def _sample() -> tuple[float, float]:
        name, labels = "kube_sync_replication_lag_seconds", {"resource": "things"}
        counts = (REGISTRY.get_sample_value(f"{name}_{what}", labels) for what in ("count", "sum"))
        number, seconds = (found or 0.0 for found in counts)
        return number, seconds

    def observed(self) -> tuple[float, float]:
        """Return how many lags were observed since this was asked last, and their sum."""
        before, self._before = self._before, self._sample()
        return self._before[0] - before[0], round(self._before[1] - before[1], 6)


def begun(mirror: Mirror) -> FirstLoad:
    """Return the document that is sent; fails where sending has to wait."""
    found: list[FirstLoad] = []

    async def begin() -> None:
        found.append((await mirror.first_load())[1])

    at_once(begin())
    return found[0]


def arrived(found: Item, at: float) -> Event:
    return Event("MODIFIED", found.version, found, at)


def test_lag_of_an_object_begins_with_the_first_event_that_opa_lacks() -> None:
    bench = loaded(item("a"))
    lag = Lag()
    bench.mirror.apply(arrived(item("a", "2"), 90.0))
    bench.mirror.apply(arrived(item("a", "3"), 99.0))
    bench.mirror.apply(Event("DELETED", ResourceVersion("4"), item("b"), 98.0))
    bench.flush()
    assert lag.observed() == (2, 10.0 + 2.0)
    bench.mirror.apply(arrived(item("a", "5"), 99.5))
    bench.flush()
    assert lag.observed() == (1, 0.5)


def test_age_of_what_is_pending_is_that_of_the_oldest_change_of_a_watch() -> None:
    bench = loaded(item("a"))
    listed(bench.mirror, listing(item("a", "2")))  # nobody knows when it changed
    assert bench.mirror.pending_seconds == 0
    bench.mirror.apply(arrived(item("b"), 90.0))
    bench.mirror.apply(arrived(item("c"), 99.0))
    assert bench.mirror.pending_seconds == 10.0
    bench.flush()
    assert bench.mirror.pending_seconds == 0


def test_metric_of_what_is_pending_keeps_no_mirror_alive() -> None:
    """An epoch's Mirrors go with it; the metric stays."""
    mirror = Mirror("pending-things", ROOT, lambda: None)
    mirror.apply(added(item("a")))
    labels = {"resource": "pending-things"}
    assert REGISTRY.get_sample_value("kube_sync_pending_changes", labels) == 1
    del mirror
    gc.collect()
    assert REGISTRY.get_sample_value("kube_sync_pending_changes", labels) == 0
    assert REGISTRY.get_sample_value("kube_sync_pending_seconds", labels) == 0


def test_what_a_list_brought_has_no_lag() -> None:
    """Nobody knows when it changed."""
    bench = loaded(item("a"))
    lag = Lag()
    listed(bench.mirror, listing(item("a", "2"), item("b")))
    bench.flush()
    assert lag.observed() == (0, 0)


def test_first_list_is_held_once_its_document_is_written() -> None:
    bench = Bench()
    listed(bench.mirror, listing(item("a")))
    assert not bench.mirror.loaded
    bench.load()
    assert bench.mirror.loaded
    assert (bench.mirror.pending, bench.mirror.object_count) == (0, 1)
    assert list(bench.mirror.keys()) == [ObjectKey("default", "a")]


def test_first_list_that_breaks_off_is_begun_again() -> None:
    bench = Bench()
    at_once(bench.mirror.page([item("torn"), item("a", namespace="z"), item("late")]))
    torn = begun(bench.mirror)
    bench.mirror.abandon()
    assert torn.abandoned
    listed(bench.mirror, listing(item("a")))
    bench.load()
    assert set(bench.held["default"]) == {"a"}
    assert bench.mirror.pending == 0


def test_object_out_of_order_is_written_after_the_document() -> None:
    """Twice in one document its namespace would lose all that came before."""
    bench = loaded(item("a", namespace="n1"), item("b", namespace="n2"), item("c", namespace="n1"))
    assert set(bench.held["n1"]) == {"a"}
    bench.flush()
    assert set(bench.held["n1"]) == {"a", "c"}


def test_relist_before_the_document_is_written_removes_what_is_gone() -> None:
    bench = Bench()
    listed(bench.mirror, listing(item("a"), item("b")))
    listed(bench.mirror, listing(item("b")))
    bench.load()
    bench.flush()
    assert set(bench.held["default"]) == {"b"}


def test_empty_collection_loads_as_an_empty_object() -> None:
    """Without it a policy that counts the collection would be undefined, not zero."""
    assert loaded().held == {}


def test_document_nests_by_namespace_and_cluster_scoped_objects_by_name() -> None:
    bench = loaded(item("a", namespace="n1"), item("b", namespace="n2"), item("c", namespace=""))
    assert set(bench.held) == {"n1", "n2", "c"}
    assert bench.held["n1"]["a"]["metadata"]["name"] == "a"
    assert bench.held["c"]["metadata"]["name"] == "c"


def test_object_that_goes_while_the_document_is_written_is_removed_afterwards() -> None:
    bench = Bench()
    listed(bench.mirror, listing(item("a"), item("b")))
    bench.mirror.apply(deleted(item("a")))
    bench.load()
    bench.flush()
    assert set(bench.held["default"]) == {"b"}


def test_kind_that_is_missing_is_loaded_empty_and_not_known() -> None:
    bench = Bench()
    listed(bench.mirror, listing(), known=False)
    bench.load()
    assert bench.held == {}
    assert not bench.mirror.known


def test_bodies_are_projected() -> None:
    managed = {"name": "a", "managedFields": ["x"]}
    assert loaded(item("a", metadata=managed)).held["default"]["a"]["metadata"] == {"name": "a"}


def test_first_object_of_a_namespace_brings_its_parent() -> None:
    bench = loaded()
    bench.mirror.apply(added(item("a")))
    operations = bench.flush()
    assert [o["path"] for o in operations] == [
        "/kubernetes/things/default",
        "/kubernetes/things/default/a",
    ]


def test_last_object_of_a_namespace_takes_its_parent_along() -> None:
    bench = loaded(item("a"), item("b"))
    bench.mirror.apply(deleted(item("a")))
    assert len(bench.flush()) == 1
    bench.mirror.apply(deleted(item("b")))
    assert len(bench.flush()) == 2
    assert bench.held == {}


def test_cluster_scoped_object_has_no_parent() -> None:
    bench = loaded()
    bench.mirror.apply(added(item("a", namespace="")))
    assert len(bench.flush()) == 1
    bench.mirror.apply(deleted(item("a", namespace="")))
    assert len(bench.flush()) == 1
    assert bench.held == {}


def test_change_undone_before_it_was_written_costs_nothing() -> None:
    bench = loaded()
    bench.mirror.apply(added(item("a")))
    bench.mirror.apply(deleted(item("a")))
    assert bench.flush() == []


def test_only_the_newest_body_is_written() -> None:
    bench = loaded(item("a"))
    for version in ("2", "3"):
        bench.mirror.apply(added(item("a", version, spec=version)))
    assert len(bench.flush()) == 1
    assert bench.held["default"]["a"]["spec"] == "3"


def test_relist_writes_only_what_changed_and_removes_what_is_gone() -> None:
    """After an API server's restart a whole fleet is listed again, mostly unchanged."""
    bench = loaded(item("a"), item("b"), item("c"))
    listed(bench.mirror, listing(item("a"), item("b", "2")))
    assert sorted((o["op"], o["path"][-1]) for o in bench.flush()) == [
        ("add", "b"),
        ("remove", "c"),
    ]


def test_relist_takes_a_pending_deletion_back() -> None:
    bench = loaded(item("a"))
    bench.mirror.apply(deleted(item("a", "2")))
    listed(bench.mirror, listing(item("a")))
    bench.flush()
    assert set(bench.held["default"]) == {"a"}


def test_relist_drops_what_was_pending_and_is_gone() -> None:
    bench = loaded()
    bench.mirror.apply(added(item("a")))
    listed(bench.mirror, listing())
    assert bench.flush() == []
    assert bench.mirror.pending == 0


def test_change_while_a_batch_is_in_flight_is_written_next() -> None:
    bench = loaded()
    bench.mirror.apply(added(item("a", "1")))
    bench.send(batch := bench.mirror.batch())
    bench.mirror.apply(added(item("a", "2", spec="new")))
    bench.mirror.written(batch)
    assert bench.mirror.pending == 1
    bench.flush()
    assert bench.held["default"]["a"]["spec"] == "new"


def test_deletion_while_its_addition_is_in_flight_is_written_next() -> None:
    bench = loaded()
    bench.mirror.apply(added(item("a")))
    bench.send(batch := bench.mirror.batch())
    bench.mirror.apply(deleted(item("a")))
    bench.mirror.written(batch)
    bench.flush()
    assert bench.held == {}


def test_same_object_again_while_its_deletion_is_in_flight_is_written_next() -> None:
    bench = loaded(item("a"))
    bench.mirror.apply(deleted(item("a", "2")))
    bench.send(batch := bench.mirror.batch())
    bench.mirror.apply(added(item("a", "3")))
    bench.mirror.written(batch)
    bench.flush()
    assert set(bench.held["default"]) == {"a"}


def test_batch_is_limited_and_oldest_first() -> None:
    bench = loaded()
    for name in "cab":
        bench.mirror.apply(added(item(name)))
    assert [key.name for key in bench.mirror.batch(2)] == ["c", "a"]


def test_bookmark_is_no_change() -> None:
    bench = loaded()
    news = bench.news
    bench.mirror.apply(Event("BOOKMARK", ResourceVersion("5")))
    assert (bench.mirror.pending, bench.news) == (0, news)


def test_every_change_is_news() -> None:
    bench = Bench()
    listed(bench.mirror, listing())
    bench.mirror.apply(added(item("a")))
    bench.mirror.apply(deleted(item("a")))
    assert bench.news == 3


def test_object_that_cannot_be_decoded_delays_no_other() -> None:
    odd = Item(ObjectKey("default", "odd"), "u", ResourceVersion("1"), b'{"metadata":[]}')
    bare = Item(ObjectKey("default", "bare"), "u", ResourceVersion("1"), b"{}")
    bench = loaded(odd, item("a"), bare)
    assert set(bench.held["default"]) == {"a"}
    bench.mirror.apply(added(odd))
    bench.mirror.apply(added(item("b")))
    bench.flush()
    assert set(bench.held["default"]) == {"a", "b"}


@pytest.mark.parametrize("order", [("n1", "n2"), ("n2", "n1")])
async def test_namespaces_in_either_order_are_loaded_whole_when_all_are_listed(
    order: tuple[str, str],
) -> None:
    bench = Bench("n1", "n2")
    parts = {scope: Part(bench.mirror, scope) for scope in order}
    for name in "ab":  # their pages come in turns
        for scope, part in parts.items():
            at_once(part.page([item(name, namespace=scope)]))
    for part in parts.values():
        # An open PUT that waits for another namespace would run into OPA's time limit.
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await bench.mirror.first_load()
        part.finish(known=True)
    bench.load()
    assert {space: set(found) for space, found in bench.held.items()} == {
        "n1": {"a", "b"},
        "n2": {"a", "b"},
    }
    assert bench.mirror.pending == 0


def test_first_list_of_one_namespace_that_breaks_off_keeps_the_other() -> None:
    bench = Bench("n1", "n2")
    listed(Part(bench.mirror, "n1"), listing(item("a", namespace="n1")))
    bench.mirror.apply(added(item("b", namespace="n1")))
    broken = Part(bench.mirror, "n2")
    at_once(broken.page([item("torn", namespace="n2")]))
    broken.abandon()
    listed(broken, listing(item("a", namespace="n2")))
    bench.load()
    bench.flush()
    assert {space: set(found) for space, found in bench.held.items()} == {
        "n1": {"a", "b"},
        "n2": {"a"},
    }


def test_relist_of_one_namespace_before_another_is_listed_removes_what_is_gone() -> None:
    bench = Bench("n1", "n2")
    one = Part(bench.mirror, "n1")
    listed(one, listing(item("a", namespace="n1"), item("b", namespace="n1")))
    at_once(one.page([item("torn", namespace="n1")]))
    one.abandon()
    listed(one, listing(item("b", namespace="n1")))
    listed(Part(bench.mirror, "n2"), listing(item("a", namespace="n2")))
    bench.load()
    bench.flush()
    assert set(bench.held["n2"]) == {"a"}
    assert "a" not in bench.held["n1"]
    assert "b" in bench.held["n1"]


def test_only_namespace_is_sent_while_it_arrives() -> None:
    bench = Bench("n1")
    part = Part(bench.mirror, "n1")
    at_once(part.page([item("torn", namespace="n1")]))
    torn = begun(bench.mirror)
    assert list(torn.held) == [ObjectKey("n1", "torn")]
    part.abandon()
    assert torn.abandoned
    listed(part, listing(item("a", namespace="n1")))
    bench.load()
    assert set(bench.held["n1"]) == {"a"}


def test_relist_of_one_namespace_leaves_the_others_alone() -> None:
    bench = Bench("n1", "n2")
    for scope in ("n1", "n2"):
        items = (item("a", namespace=scope), item("b", namespace=scope))
        listed(Part(bench.mirror, scope), listing(*items))
    bench.load()
    bench.mirror.apply(added(item("late", namespace="n2")))
    listed(Part(bench.mirror, "n1"), listing(item("a", namespace="n1")))
    bench.flush()
    assert {name: set(found) for name, found in bench.held.items()} == {
        "n1": {"a"},
        "n2": {"a", "b", "late"},
    }


def test_kind_missing_in_one_namespace_is_not_known_until_all_know_it_again() -> None:
    """A kind that came back, half listed, looks like half a fleet."""
    bench = Bench("n1", "n2")
    for scope in ("n1", "n2"):
        listed(Part(bench.mirror, scope), listing(), known=False)
    listed(Part(bench.mirror, "n1"), listing())
    assert not bench.mirror.known
    listed(Part(bench.mirror, "n2"), listing())
    assert bench.mirror.known


def test_list_of_everything_stands_for_every_namespace() -> None:
    """A kind that turned out to lie in no namespace."""
    bench = Bench("n1", "n2")
    listed(Part(bench.mirror, "n1"), listing(), known=False)
    listed(Part(bench.mirror, EVERYWHERE), listing(item("a", namespace="")))
    assert bench.mirror.known
    bench.load()
    bench.flush()
    assert set(bench.held) == {"a"}


_NAMESPACES = st.sampled_from(["n1", "n2", "n/3~%", ""])
_NAMES = st.sampled_from(["a", "b", "c", "d/e~1%2F"])


class MirrorMachine(RuleBasedStateMachine):
    """Any interleaving of events, lists, and writes in flight, against OPA's own semantics.

    The model is the API server's objects; what the Mirror wants written must always be accepted,
    and when nothing is pending OPA must hold exactly the model.
    """

    def __init__(self) -> None:
        super().__init__()
        self.bench = Bench()
        self.objects: dict[ObjectKey, Item] = {}
        self.version = 1
        self.in_flight: Batch | None = None

    @initialize(names=st.lists(st.tuples(_NAMESPACES, _NAMES), max_size=6))
    def first_list(self, names: list[tuple[str, str]]) -> None:
        for namespace, name in names:
            self._change(namespace, name)
        listed(self.bench.mirror, self._listing())
        self.bench.load()

    @rule(namespace=_NAMESPACES, name=_NAMES)
    def change(self, namespace: str, name: str) -> None:
        self.bench.mirror.apply(added(self._change(namespace, name)))

    @rule(namespace=_NAMESPACES, name=_NAMES)
    def delete(self, namespace: str, name: str) -> None:
        # Of what is not there as well: an event may come twice.
        self.objects.pop(ObjectKey(namespace, name), None)
        self.version += 1
        self.bench.mirror.apply(deleted(item(name, str(self.version), namespace)))

    @rule(
        gone=st.sets(st.tuples(_NAMESPACES, _NAMES)), come=st.sets(st.tuples(_NAMESPACES, _NAMES))
    )
    def relist(self, gone: set[tuple[str, str]], come: set[tuple[str, str]]) -> None:
        """A 410: what happened in the gap is seen only here."""
        for namespace, name in gone:
            self.objects.pop(ObjectKey(namespace, name), None)
        for namespace, name in come:
            self._change(namespace, name)
        listed(self.bench.mirror, self._listing())

    @precondition(lambda self: self.in_flight is None)
    @rule(limit=st.integers(1, 5))
    def begin_write(self, limit: int) -> None:
        batch = self.bench.mirror.batch(limit)
        self.bench.send(batch)
        self.in_flight = batch

    @precondition(lambda self: self.in_flight is not None)
    @rule()
    def end_write(self) -> None:
        assert self.in_flight is not None
        self.bench.mirror.written(self.in_flight)
        self.in_flight = None

    @invariant()
    def counts_fit(self) -> None:
        assert self.bench.mirror.object_count == len(list(self.bench.mirror.keys()))

    def teardown(self) -> None:
        if self.in_flight is not None:
            self.end_write()
        while batch := self.bench.mirror.batch(3):
            self.bench.send(batch)
            self.bench.mirror.written(batch)
        if "kubernetes" in self.bench.opa.data:
            assert self.bench.held == self._model()
            assert set(self.bench.mirror.keys()) == set(self.objects)

    def _change(self, namespace: str, name: str) -> Item:
        self.version += 1
        found = item(name, str(self.version), namespace)
        self.objects[found.key] = found
        return found

    def _listing(self) -> Listing:
        return Listing(list(self.objects.values()), ResourceVersion(str(self.version)))

    def _model(self) -> dict[str, Any]:
        model: dict[str, Any] = {}
        for key, found in self.objects.items():
            inside = model.setdefault(key.namespace, {}) if key.namespace else model
            inside[key.name] = json.loads(found.body)
        return model


TestMirrorConverges = MirrorMachine.TestCase
TestMirrorConverges.settings = settings(max_examples=examples(60), stateful_step_count=25)


def bare(name: str, version: str = "1") -> Item:
    return item(name, version, namespace="")


def test_kind_that_is_listed_with_the_other_scope_replaces_what_has_its_names() -> None:
    """An object may have the name of a namespace that goes, and the other way round."""
    bench = Bench()
    listed(bench.mirror, listing(bare("n1"), bare("n2")))
    bench.load()
    listed(bench.mirror, listing(item("x", namespace="n1"), item("y", namespace="n2")))
    bench.flush()
    assert {space: set(found) for space, found in bench.held.items()} == {"n1": {"x"}, "n2": {"y"}}
    listed(bench.mirror, listing(bare("n1", "2"), bare("n2", "2")))
    bench.flush()
    assert {name: found["metadata"]["name"] for name, found in bench.held.items()} == {
        "n1": "n1",
        "n2": "n2",
    }


@pytest.mark.parametrize("scopes", [("n1",), ("n1", "n2")])
def test_rescoped_collection_is_empty_and_unknown_until_all_were_listed(
    scopes: tuple[str, ...],
) -> None:
    bench = Bench(*scopes)
    listed(bench.mirror, listing(bare("n1"), bare("old")))
    bench.load()
    bench.mirror.rescope(scopes)
    bench.flush()
    assert bench.held == {}
    for scope in scopes:
        assert not bench.mirror.known
        listed(Part(bench.mirror, scope), listing(item("x", namespace=scope)))
    assert bench.mirror.known
    bench.flush()
    assert bench.held.keys() == set(scopes)


def test_collection_rescoped_before_its_load_is_loaded_as_it_is_then() -> None:
    bench = Bench("n1", "n2")
    listed(Part(bench.mirror, "n1"), listing(item("x", namespace="n1")))
    bench.mirror.rescope([EVERYWHERE])
    listed(bench.mirror, listing(bare("a")))
    bench.load()
    bench.flush()
    assert set(bench.held) == {"a"}
    assert bench.mirror.known


def test_collection_rescoped_in_the_middle_of_a_page_begins_its_document_again() -> None:
    bench = Bench("n1", "n2")
    at_once(bench.mirror.page([bare("old")]))
    bench.mirror.rescope(["n1", "n2"])
    for scope in ("n1", "n2"):
        listed(Part(bench.mirror, scope), listing(item("x", namespace=scope)))
    bench.load()
    bench.flush()
    assert set(bench.held) == {"n1", "n2"}


def test_objects_that_do_not_fit_make_a_collection_unknown_and_stay_out() -> None:
    bench = Bench()
    part = Part(bench.mirror, EVERYWHERE, lambda found: not found.key.namespace)
    listed(part, listing(bare("a"), item("x", namespace="n1")))
    bench.load()
    assert set(bench.held) == {"a"}
    assert not bench.mirror.known
    part.apply(added(item("y", namespace="n1")))
    assert bench.mirror.pending == 0
    at_once(part.page([item("x", namespace="n1")]))
    part.abandon()
    listed(part, listing(bare("a")))
    assert bench.mirror.known


def too_deep(name: str, version: str) -> Item:
    body = json.dumps({"metadata": {"name": name}}).encode()
    where = ObjectKey("default", name)
    return Item(where, f"uid-{name}", ResourceVersion(version), body, whole=False)


def unread(bench: Bench) -> dict[str, tuple[str, str]]:
    return {key.name: why for key, why in bench.mirror.unreadable.items()}


def test_object_that_cannot_be_read_any_more_stays_in_opa_as_it_was_read_last() -> None:
    """What policies count must not change; nothing may be decided of it all the same."""
    bench = loaded(item("a", "1", x=1), item("b"))
    bench.mirror.classify(lambda body: body)
    bench.mirror.read_classes([item("a", "1", x=1)])
    bench.mirror.apply(added(too_deep("a", "2")))
    assert unread(bench) == {"a": ("uid-a", TOO_DEEP)}
    assert bench.mirror.take_readability_changes() == {ObjectKey("default", "a")}
    assert bench.mirror.take_readability_changes() == set()
    assert bench.mirror.members.of(ObjectKey("default", "a")) is None
    assert bench.flush() == []
    assert bench.held["default"]["a"]["x"] == 1


def test_object_that_can_be_read_again_is_written_and_not_unreadable() -> None:
    bench = loaded(item("a", "1", x=1))
    bench.mirror.apply(added(too_deep("a", "2")))
    bench.mirror.take_readability_changes()
    bench.mirror.apply(added(item("a", "3", x=3)))
    assert unread(bench) == {}
    assert bench.mirror.take_readability_changes() == {ObjectKey("default", "a")}
    bench.flush()
    assert bench.held["default"]["a"]["x"] == 3


def test_unreadable_object_that_is_deleted_goes() -> None:
    bench = loaded(item("a"), item("b"))
    bench.mirror.apply(added(too_deep("a", "2")))
    bench.mirror.apply(deleted(too_deep("a", "3")))
    bench.flush()
    assert unread(bench) == {}
    assert bench.held["default"].keys() == {"b"}


def test_relist_keeps_what_it_cannot_read_and_forgets_what_is_gone() -> None:
    bench = loaded(item("a"), item("b"), item("c"))
    bench.mirror.apply(added(too_deep("b", "2")))
    listed(bench.mirror, listing(too_deep("a", "3"), item("c")))
    bench.flush()
    assert unread(bench).keys() == {"a"}
    assert bench.held["default"].keys() == {"a", "c"}


def test_object_that_could_never_be_read_is_not_in_opa_and_unreadable() -> None:
    bench = loaded(too_deep("a", "1"), item("b"))
    assert unread(bench).keys() == {"a"}
    assert bench.held["default"].keys() == {"b"}


def test_first_list_that_breaks_off_forgets_what_it_could_not_read() -> None:
    bench = Bench()
    at_once(bench.mirror.page([too_deep("a", "1")]))
    bench.mirror.abandon()
    assert unread(bench) == {}


def test_state_that_was_read_before_is_of_no_class_once_it_is_past() -> None:
    bench = loaded(item("a", "1", x=1))
    bench.mirror.classify(lambda body: body)
    bench.mirror.apply(added(item("a", "2", x=2)))
    bench.mirror.apply(added(too_deep("a", "3")))
    bench.flush()
    assert bench.mirror.members.of(ObjectKey("default", "a")) is None


def test_object_that_the_projection_cannot_read_is_unreadable_too() -> None:
    bench = loaded(item("a"))
    torn = Item(ObjectKey("default", "a"), "uid-a", ResourceVersion("2"), b"[")
    bench.mirror.apply(added(torn))
    (uid, why) = unread(bench)["a"]
    assert uid == "uid-a"
    assert why.startswith("it cannot be read: ")


def test_what_is_not_proven_does_not_go_into_opa() -> None:
    def proven(found: Item) -> bytes:
        return found.body.replace(b"forged", b"removed")

    mirror = Mirror("things", ROOT, lambda: None, projector=Projector("things", proven=proven))
    listed(mirror, listing(item("a", note="forged")))
    mirror.apply(added(item("b", "2", note="forged")))
    sent = (document(begun(mirror)), b"".join(mirror.operations(mirror.batch())))
    assert [(b"forged" in one, b"removed" in one) for one in sent] == [(False, True)] * 2
