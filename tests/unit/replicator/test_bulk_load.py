from __future__ import annotations

import asyncio
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_sync.objects import ObjectKey
from kube_sync.replicator.bulk_load import EVERYWHERE, Abandoned, FirstLoad, Loaded, Scopes
from tests.fakes.listing import document


def found(namespace: str, name: str) -> Loaded:
    return Loaded(ObjectKey(namespace, name), "1", json.dumps({"at": [namespace, name]}).encode())


@given(st.lists(st.tuples(st.sampled_from(["", "n", 'q"/']), st.text('ab"/~', max_size=3))))
async def test_document_and_what_is_late_are_all_that_was_added(
    keys: list[tuple[str, str]],
) -> None:
    # No namespace is called like an object without one, as in any one collection.
    objects = {ObjectKey(ns, name if ns else f"c-{name}"): None for ns, name in keys}
    first, late = FirstLoad(), []
    reading = asyncio.create_task(whole(first))
    for key in objects:
        late += await first.add([found(key.namespace, key.name)])
    first.finish()
    tree = json.loads(await reading)
    for key in first.held:
        inside = tree[key.namespace] if key.namespace else tree
        assert inside[key.name] == {"at": [key.namespace, key.name]}
    assert {*first.held, *(one.key for one in late)} == set(objects)
    assert len(first.held) + len(late) == len(objects)


async def whole(first: FirstLoad) -> bytes:
    return b"".join([chunk async for chunk in first.chunks()])


def test_key_that_is_kept_elsewhere_is_kept_here_too() -> None:
    elsewhere = ObjectKey("n", "a")
    first = FirstLoad(known=lambda _key, uid: (elsewhere, uid))
    first.put([found("n", "a")])
    assert [key is elsewhere for key in first.held] == [True]


def test_empty_list_is_an_empty_object() -> None:
    first = FirstLoad()
    first.finish()
    assert document(first) == b"{}"


async def test_whoever_adds_waits_for_whoever_reads() -> None:
    """Or a whole collection lay in memory while OPA takes its time."""
    first = FirstLoad()
    await first.add([found("n", "a")])
    adding = asyncio.create_task(first.add([found("n", "b")]))
    await asyncio.sleep(0)
    assert not adding.done()
    reader = first.chunks()
    await anext(reader)
    assert await adding == []


async def test_abandoned_document_ends_its_reader_even_before_what_is_left() -> None:
    first = FirstLoad()
    await first.add([found("n", "a")])
    reader = first.chunks()
    await anext(reader)
    first.abandon()
    with pytest.raises(Abandoned):
        await anext(reader)


async def test_reader_that_waits_is_told_of_the_end() -> None:
    first = FirstLoad()
    reader = first.chunks()
    assert await anext(reader) == b"{"
    waiting = asyncio.ensure_future(anext(reader))
    await asyncio.sleep(0)
    first.finish()
    assert await waiting == b"}"


def test_first_lists_of_several_scopes_are_gathered_until_all_are_in() -> None:
    scopes = Scopes(["a", "b"])
    assert [scopes.awaits(one) for one in ("a", "c", EVERYWHERE)] == [True, False, True]
    assert (scopes.gathers("a"), scopes.abandons("a")) == (True, False)
    scopes.listed("a", known=True)
    scopes.listed("b", known=False)
    assert (scopes.awaited, scopes.gathers("a"), scopes.missing) == (set(), False, True)
    scopes.listed(EVERYWHERE, known=True)
    assert not scopes.missing


def test_a_broken_list_of_the_only_scope_loses_the_document() -> None:
    scopes = Scopes([EVERYWHERE])
    assert scopes.abandons(EVERYWHERE)
    scopes.await_instead(["a", "b"])
    assert not scopes.abandons("a")
    scopes.listed("a", known=True)
    scopes.listed("b", known=True)
    scopes.lose(["a", "c"])
    assert (scopes.awaited, scopes.missing) == (set(), True)
