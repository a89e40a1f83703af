from __future__ import annotations

import msgspec

from kube_sync.decisions.decision import Decision
from kube_sync.decisions.evaluator import Outcome
from kube_sync.decisions.hub import DecisionHub
from kube_sync.decisions.records import (
    BookmarkRecord,
    DecisionFreshness,
    DecisionRecord,
    Record,
    Stale,
    StatusRecord,
    Target,
    Unreadable,
    decode,
    encode,
    report_unreadable,
    stale_records,
)
from kube_sync.decisions.subscription import Subscription
from kube_sync.objects import GroupVersionResource, ObjectKey

SENDING = StatusRecord(("the decisions are being sent",), "me")
RELEASED = StatusRecord((), "me")
LATE = Stale("clusters", 3.0, "503")
CLUSTERS = GroupVersionResource("multicluster.x-k8s.io", "v1alpha1", "clusterprofiles")


class _OlderStale(msgspec.Struct, frozen=True):
    """As it was before it named objects."""

    source: str
    seconds: float
    reason: str


class _OlderStatus(msgspec.Struct, frozen=True, tag="status", tag_field="type"):
    held: tuple[str, ...]
    instance: str
    notes: tuple[str, ...] = ()
    stale: tuple[_OlderStale, ...] = ()
    v: int = 1


class World:
    def __init__(self) -> None:
        self.now = 0.0
        self.changes = 0
        self.freshness = DecisionFreshness(lambda: self.now, on_change=self._changed)

    def _changed(self) -> None:
        self.changes += 1

    def told(self) -> list[Stale]:
        return list(stale_records(self.freshness, self.freshness.sources))


async def _read(subscription: Subscription, limit: int = 100) -> list[Record]:
    return await subscription.read(limit, 0.0)


def _decide(hub: DecisionHub, *names: str) -> None:
    for name in names:
        target = Target("apps", "v1", "replicasets", name, "ns")
        hub.publish(
            target.gvr, target.key, Outcome("u", Decision({"place": str(hub.seq)})), "data", "p1"
        )


async def test_a_reader_is_told_at_once_what_is_late_and_for_how_long() -> None:
    now = [10.0]
    hub = DecisionHub("me", clock=lambda: now[0])
    with hub.subscribe() as subscription:
        await _read(subscription)
        hub.freshness.report("clusters", "503")
        now[0] = 13.0
        _decide(hub, "a")
        status, record, _ = await _read(subscription)
        assert isinstance(record, DecisionRecord)
        assert status == StatusRecord((), "me", (), (LATE,))
        assert await _read(subscription) == [BookmarkRecord(1, "me")]


async def test_a_new_reader_is_told_first_what_is_late() -> None:
    hub = DecisionHub("me", clock=lambda: 0.0)
    _decide(hub, "a")
    hub.freshness.report("clusters", "503")
    late = (Stale("clusters", 0.0, "503"),)
    with hub.subscribe() as subscription:
        first, _, release, _ = await _read(subscription)
    assert first == StatusRecord(SENDING.held, "me", (), late)
    assert release == StatusRecord((), "me", (), late)


async def test_that_all_is_current_is_told_after_the_decisions_that_were_made_till_then() -> None:
    hub = DecisionHub("me", clock=lambda: 0.0)
    with hub.subscribe() as subscription:
        await _read(subscription)
        hub.freshness.report("clusters", "503")
        await _read(subscription)
        _decide(hub, "a", "b")
        hub.freshness.report("clusters", None)
        assert [type(record) for record in await _read(subscription, 1)] == [DecisionRecord]
        assert (await _read(subscription, 1))[1:] == [RELEASED, BookmarkRecord(2, "me")]


async def test_a_note_in_between_ends_nothing_early() -> None:
    hub = DecisionHub("me", clock=lambda: 0.0)
    with hub.subscribe() as subscription:
        await _read(subscription)
        hub.freshness.report("clusters", "503")
        await _read(subscription)
        _decide(hub, "a", "b")
        hub.freshness.report("clusters", None)
        hub.note("policies", "wrong")
        status = (await _read(subscription, 1))[0]
    assert status == StatusRecord((), "me", ("wrong",), (Stale("clusters", 0.0, "503"),))


async def test_a_source_that_begins_ends_no_other_early() -> None:
    hub = DecisionHub("me", clock=lambda: 0.0)
    with hub.subscribe() as subscription:
        await _read(subscription)
        hub.freshness.report("clusters", "503")
        await _read(subscription)
        _decide(hub, "a", "b")
        hub.freshness.report("clusters", None)
        hub.freshness.report("nodes", "refused")
        first, second = await _read(subscription, 1), await _read(subscription, 1)
    nodes = Stale("nodes", 0.0, "refused")
    assert first[0] == StatusRecord((), "me", (), (Stale("clusters", 0.0, "503"), nodes))
    assert [type(record) for record in first[1:]] == [DecisionRecord]
    assert second[1:] == [StatusRecord((), "me", (), (nodes,)), BookmarkRecord(2, "me")]


async def test_where_there_is_nothing_to_read_one_status_tells_of_an_end_and_a_beginning() -> None:
    hub = DecisionHub("me", clock=lambda: 0.0)
    with hub.subscribe() as subscription:
        await _read(subscription)
        hub.freshness.report("clusters", "503")
        await _read(subscription)
        hub.freshness.report("clusters", None)
        hub.freshness.report("nodes", "refused")
        nodes = Stale("nodes", 0.0, "refused")
        assert await _read(subscription) == [StatusRecord((), "me", (), (nodes,))]


async def test_a_source_that_was_current_meanwhile_is_late_all_along_until_that_is_read() -> None:
    """Or a reader would take its oldest data for new before it has what was decided since."""
    now = [0.0]
    hub = DecisionHub("me", clock=lambda: now[0])
    with hub.subscribe() as subscription:
        await _read(subscription)
        hub.freshness.report("clusters", "503")
        await _read(subscription)
        _decide(hub, "a", "b")
        now[0] = 5.0
        hub.freshness.report("clusters", None)
        hub.freshness.report("clusters", "refused")
        first, second = await _read(subscription, 1), await _read(subscription, 1)
    assert first[0] == StatusRecord((), "me", (), (Stale("clusters", 5.0, "refused"),))
    assert [type(record) for record in first[1:]] == [DecisionRecord]
    anew = StatusRecord((), "me", (), (Stale("clusters", 0.0, "refused"),))
    assert second[1:] == [anew, BookmarkRecord(2, "me")]


def test_a_status_of_before_and_one_of_later_are_read() -> None:
    """Readers and writers of one version are not replaced in the same moment."""
    before = b'{"type":"status","held":[],"instance":"me","notes":[],"v":1}\n'
    assert decode(before) == RELEASED
    later = encode(StatusRecord((), "me", (), (LATE,)))
    assert decode(later.replace(b'"reason"', b'"new":1,"reason"')) == decode(later)


def test_objects_that_cannot_be_read_are_named_and_an_older_reader_or_writer_lacks_them() -> None:
    deep = Unreadable(Target("", "v1", "nodes", "n1"), "u", "deep")
    record = StatusRecord((), "me", (), (Stale("nodes", 3.0, "deep", (deep,)),))
    assert decode(encode(record)) == record
    older = msgspec.json.decode(encode(record), type=_OlderStatus).stale
    assert older == (_OlderStale("nodes", 3.0, "deep"),)
    said = msgspec.json.encode(_OlderStatus((), "me", (), older))
    assert decode(said) == StatusRecord((), "me", (), (Stale("nodes", 3.0, "deep"),))
    assert b"unreadable" not in encode(StatusRecord((), "me", (), (LATE,)))


def test_of_many_objects_that_cannot_be_read_the_first_are_named_and_all_are_counted() -> None:
    world = World()
    found = {ObjectKey("fleet", f"c{n:03}"): (f"u{n}", "deep") for n in range(250)}
    report_unreadable(world.freshness, "clusters", CLUSTERS, found)
    (late,) = world.told()
    assert late.reason == "fleet/c000: deep; 249 more"
    assert [one.object.name for one in late.unreadable] == [f"c{n:03}" for n in range(100)]
    report_unreadable(world.freshness, "clusters", CLUSTERS, dict(reversed(found.items())))
    assert world.changes == 1
    del found[ObjectKey("fleet", "c050")]
    report_unreadable(world.freshness, "clusters", CLUSTERS, found)
    assert world.told()[0].unreadable[-1].object.name == "c100"
    report_unreadable(world.freshness, "clusters", CLUSTERS, {})
    assert (world.told(), world.changes) == ([], 3)


def test_objects_of_no_api_server_are_told_without_their_names() -> None:
    world = World()
    report_unreadable(world.freshness, "topology", None, {ObjectKey("", "t"): ("", "deep")})
    assert world.told() == [Stale("topology that cannot be read", 0.0, "t: deep")]
