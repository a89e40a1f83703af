from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, cast

from kube_sync.errors import Retriable, SyncError
from kube_sync.kube.collection import Event, Item, ResourceVersion
from kube_sync.objects import ObjectKey
from kube_sync.opa.analysis.result import Document, FieldRead, Reads
from kube_sync.replicator.class_backfill import ClassBackfill
from kube_sync.replicator.mirror import Mirror
from tests.fakes.listing import at_once
from tests.unit.async_tools import Waits, running, until

A, B = (
    Reads(Document((FieldRead((name,), whole=False, asked=()),), used=True), {}, (), {})
    for name in ("a", "b")
)


def item(name: str, version: str = "1", **body: int) -> Item:
    text = json.dumps({"metadata": {"name": name, "resourceVersion": version}, **body})
    return Item(ObjectKey("ns", name), f"uid-{name}", ResourceVersion(version), text.encode())


class Pupil:
    """A loaded Mirror of two objects, and what a LIST says now."""

    def __init__(self) -> None:
        self.items = [item("x", a=1, b=1), item("y", a=1, b=2)]
        self.mirror = Mirror("things", ("kubernetes",), lambda: None)
        at_once(self._load())
        self.lists = 0
        self.failures: list[SyncError] = []
        self.waits = Waits()
        self.lessons = ClassBackfill(few=2, backoff=self.waits.backoff(0.1, 5.0))
        self.learnt = 0

    @property
    def feed(self) -> Pupil:
        return self

    async def _load(self) -> None:
        await self.mirror.page(self.items)
        self.mirror.finish(known=True)
        _, first = await self.mirror.first_load()
        self.mirror.first_written(first)

    async def list_classes(self, mirror: Mirror) -> None:
        self.lists += 1
        if self.failures:
            raise self.failures.pop(0)
        mirror.read_classes(self.items)

    def change(self, reads: Reads | None) -> None:
        self.lessons.change(reads)
        self.lessons.classify(self.mirror, target=True)

    def _told(self) -> None:
        self.learnt += 1

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        async with running(self.lessons.run(lambda: [cast("Any", self)], self._told)):
            yield


async def test_what_was_loaded_before_the_policies_is_classified_by_one_list() -> None:
    pupil = Pupil()
    async with pupil.running():
        pupil.change(A)
        assert pupil.mirror.learning
        await until(lambda: pupil.learnt)
        assert not pupil.mirror.learning
        assert (pupil.mirror.members.known, pupil.mirror.members.classes) == (2, 1)
        assert pupil.mirror.pending == 0, "nothing is written"
        assert pupil.lists == 1


async def test_other_paths_are_learnt_anew_and_the_same_ones_are_not() -> None:
    pupil = Pupil()
    async with pupil.running():
        pupil.change(A)
        await until(lambda: pupil.learnt == 1)
        pupil.change(A)
        assert not pupil.mirror.learning
        pupil.change(B)
        await until(lambda: pupil.learnt == 2)
        assert pupil.mirror.members.classes == 2
        assert pupil.lists == 2


async def test_list_that_fails_is_waited_for_once_and_made_again() -> None:
    """Decisions go on one by one meanwhile."""
    pupil = Pupil()
    pupil.failures = [Retriable("503")]
    async with pupil.running():
        pupil.change(A)
        await until(lambda: pupil.learnt == 1)
        assert not pupil.mirror.learning
        await until(lambda: pupil.mirror.members.known == 2)
        assert pupil.lists == 2
        assert len(pupil.waits.seconds) == 1


async def test_few_objects_are_not_listed_again() -> None:
    pupil = Pupil()
    pupil.lessons = ClassBackfill(few=3)
    async with pupil.running():
        pupil.change(A)
        await asyncio.sleep(0)
        assert not pupil.mirror.learning
        assert pupil.lists == 0


async def test_without_policies_or_for_other_collections_nothing_is_classified() -> None:
    pupil = Pupil()
    pupil.change(None)
    assert not pupil.mirror.members.is_classifying
    pupil.lessons.change(A)
    pupil.lessons.classify(pupil.mirror, target=False)
    assert not pupil.mirror.members.is_classifying


def test_state_that_opa_does_not_hold_is_not_learnt() -> None:
    pupil = Pupil()
    pupil.change(A)
    pupil.mirror.apply(Event("MODIFIED", ResourceVersion("2"), item("x", "2", a=5)))
    pupil.mirror.read_classes([item("x", "1", a=1), item("y", "9", a=1), item("z", a=1)])
    assert pupil.mirror.members.known == 0


def test_class_is_that_of_what_opa_took_last() -> None:
    pupil = Pupil()
    pupil.change(A)
    pupil.mirror.read_classes(pupil.items)
    key = ObjectKey("ns", "x")
    before = pupil.mirror.members.of(key)
    pupil.mirror.apply(Event("MODIFIED", ResourceVersion("2"), item("x", "2", a=5)))
    assert pupil.mirror.members.of(key) == before
    assert pupil.mirror.is_pending(key)
    pupil.mirror.written(pupil.mirror.batch())
    assert pupil.mirror.members.of(key) != before
    assert not pupil.mirror.is_pending(key)
    pupil.mirror.apply(Event("DELETED", ResourceVersion("3"), item("x", "3")))
    pupil.mirror.written(pupil.mirror.batch())
    assert pupil.mirror.members.of(key) is None
    assert pupil.mirror.unknown == 0


async def test_first_list_brings_the_classes_where_it_is_known_what_is_read() -> None:
    pupil = Pupil()
    pupil.mirror = Mirror("things", ("kubernetes",), lambda: None)
    async with pupil.running():
        pupil.change(A)
        await pupil.mirror.page(pupil.items)
        assert pupil.mirror.members.known == 0, "OPA does not hold them yet"
        pupil.mirror.finish(known=True)
        _, first = await pupil.mirror.first_load()
        pupil.mirror.first_written(first)
        found = pupil.mirror.members.of(ObjectKey("ns", "x"))
        assert found is not None
        assert found.uid == "uid-x"
        pupil.change(A)
        await asyncio.sleep(0)
        assert (pupil.mirror.members.known, pupil.mirror.unknown, pupil.lists) == (2, 0, 0)


async def test_first_list_that_breaks_off_leaves_no_classes() -> None:
    pupil = Pupil()
    pupil.mirror = Mirror("things", ("kubernetes",), lambda: None)
    pupil.change(A)
    await pupil.mirror.page(pupil.items)
    pupil.mirror.abandon()
    await pupil.mirror.page(pupil.items[1:])
    pupil.mirror.finish(known=True)
    _, first = await pupil.mirror.first_load()
    pupil.mirror.first_written(first)
    assert pupil.mirror.members.known == 1


async def test_other_policies_during_the_first_list_take_another_one() -> None:
    pupil = Pupil()
    pupil.mirror = Mirror("things", ("kubernetes",), lambda: None)
    async with pupil.running():
        pupil.change(A)
        await pupil.mirror.page(pupil.items)
        pupil.change(B)
        pupil.mirror.finish(known=True)
        _, first = await pupil.mirror.first_load()
        pupil.mirror.first_written(first)
        assert pupil.mirror.unknown == 2
        pupil.change(B)
        await until(lambda: pupil.learnt)
        assert (pupil.mirror.members.classes, pupil.lists) == (2, 1)
