"""A Mirror that keeps only some fields writes only what changes in these."""

from __future__ import annotations

from typing import Any

from prometheus_client import REGISTRY

from kube_sync.objects import ObjectKey
from kube_sync.policies.required_fields import Form
from tests.fakes.listing import listed
from tests.unit.replicator.test_mirror import ROOT, Bench, added, deleted, item, listing

NAMED = {"metadata": {"name": "a"}}
A = ObjectKey("default", "a")


def narrowed(*paths: tuple[str, ...], namespaced: bool = True) -> Bench:
    bench = Bench()
    bench.mirror.narrow(Form(paths, namespaced=namespaced))
    listed(bench.mirror, listing(item("a", x=1, y=1)))
    bench.load()
    return bench


def unchanged() -> float:
    return (
        REGISTRY.get_sample_value("kube_sync_unchanged_events_total", {"resource": "things"}) or 0
    )


def test_only_the_form_is_kept_and_no_version() -> None:
    bench = narrowed(("x",))
    assert bench.held == {"default": {"a": {**NAMED, "x": 1}}}
    assert bench.mirror.holds(A) == ""
    assert bench.mirror.holds(ObjectKey("default", "b")) is None


async def test_kind_that_was_missing_before_the_form_was_known_is_kept_in_that_form() -> None:
    bench = Bench()
    bench.mirror.finish(known=False)
    _, first = await bench.mirror.first_load()
    bench.mirror.narrow(Form((("x",),), namespaced=True))
    bench.mirror.first_written(first)
    bench.opa.put((*ROOT, "things"), {})
    await bench.mirror.page([item("a", x=1, y=1)])
    bench.mirror.finish(known=True)
    bench.flush()
    bench.mirror.apply(added(item("a", "2", x=1, y=2)))
    assert not bench.mirror.pending
    assert bench.held == {"default": {"a": {**NAMED, "x": 1}}}


def test_event_that_changes_nothing_that_is_kept_is_not_written() -> None:
    bench, before = narrowed(("x",)), unchanged()
    bench.mirror.apply(added(item("a", "2", x=1, y=2)))
    assert not bench.mirror.pending
    assert unchanged() == before + 1
    bench.mirror.apply(added(item("a", "3", x=2, y=2)))
    assert bench.flush()
    bench.mirror.apply(added(item("a", "4", x=2, y=3)))
    assert not bench.mirror.pending
    assert bench.held["default"]["a"]["x"] == 2


def test_change_that_is_undone_before_it_was_written_is_written_once() -> None:
    """What is on its way may arrive: only what OPA is known to hold is left out."""
    bench = narrowed(("x",))
    bench.mirror.apply(added(item("a", "2", x=2)))
    under_way = bench.mirror.batch()
    bench.mirror.apply(added(item("a", "3", x=1)))
    bench.send(under_way)
    bench.mirror.written(under_way)
    assert bench.mirror.pending == 1
    bench.flush()
    assert bench.held["default"]["a"]["x"] == 1


def test_object_that_went_and_came_back_the_same_is_written_again() -> None:
    bench = narrowed(("x",))
    bench.mirror.apply(deleted(item("a", "2")))
    bench.flush()
    bench.mirror.apply(added(item("a", "3", x=1)))
    bench.flush()
    assert bench.held == {"default": {"a": {**NAMED, "x": 1}}}


def test_relist_with_other_versions_of_the_same_writes_nothing() -> None:
    bench = narrowed(("x",))
    listed(bench.mirror, listing(item("a", "7", x=1, y=9)))
    assert not bench.mirror.pending


def test_version_that_is_read_is_kept_and_written_each_time() -> None:
    bench = narrowed(("metadata", "resourceVersion"))
    assert bench.mirror.holds(A) == "1"
    bench.mirror.apply(added(item("a", "2", x=1)))
    assert bench.flush()
    assert bench.mirror.holds(A) == "2"


def test_object_that_lies_where_it_was_not_expected_is_kept_whole() -> None:
    """The paths begin at its place: in another one they lead elsewhere."""
    bench = narrowed(("x",), namespaced=False)
    whole: Any = {"metadata": {"name": "a", "resourceVersion": "1"}, "x": 1, "y": 1}
    assert bench.held == {"default": {"a": whole}}
    assert bench.mirror.holds(A) == "1"  # as the audit finds it
