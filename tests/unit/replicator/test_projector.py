"""What is kept of objects, and which of them cannot be read."""

from __future__ import annotations

import json

import pytest

from kube_sync.kube.collection import Item, ResourceVersion
from kube_sync.objects import ObjectKey
from kube_sync.policies.required_fields import Form
from kube_sync.replicator.projector import TOO_DEEP, Projector

KEY = ObjectKey("ns", "a")
OWN = Form((("x",),), namespaced=True)


def item(body: bytes | None = None, key: ObjectKey = KEY, *, whole: bool = True) -> Item:
    text = {"metadata": {"name": key.name, "resourceVersion": "1"}, "x": 1, "y": 2}
    return Item(key, "u", ResourceVersion("1"), body or json.dumps(text).encode(), whole=whole)


def kept(projector: Projector, found: Item) -> set[str]:
    loaded = projector.read(found)
    assert loaded is not None
    return {*json.loads(loaded.body)}


def test_without_a_projection_nothing_is_shaped_before_a_form_is_known() -> None:
    projector = Projector("things", None)
    assert not projector.shaped.is_set()
    projector.narrow(OWN)
    assert projector.shaped.is_set()
    assert "y" not in kept(projector, item())


def test_what_lies_elsewhere_is_kept_whole() -> None:
    projector = Projector("things", None)
    projector.narrow(OWN)
    cluster = ObjectKey("", "a")
    assert "y" in kept(projector, item(key=cluster))
    assert [projector.states_version(key) for key in (KEY, cluster)] == [False, True]


@pytest.mark.parametrize(
    ("found", "why"), [(item(whole=False), TOO_DEEP), (item(b"["), "it cannot be read: ")]
)
def test_what_cannot_be_read_is_told_of_until_it_can(found: Item, why: str) -> None:
    projector = Projector("things")
    assert projector.read(found) is None
    ((uid, reason),) = projector.unreadable.values()
    assert (uid, reason.startswith(why)) == ("u", True)
    assert (projector.take_readability_changes(), projector.take_readability_changes()) == (
        {KEY},
        set(),
    )
    kept(projector, item())
    assert (projector.unreadable, projector.take_readability_changes()) == ({}, {KEY})


def test_what_was_readable_all_along_is_no_news() -> None:
    projector = Projector("things")
    projector.readable([KEY])
    assert projector.take_readability_changes() == set()
