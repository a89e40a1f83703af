from __future__ import annotations

import re
from collections.abc import AsyncGenerator
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_sync.errors import Conflict, NotFound
from kube_sync.kube.client import KubeClient
from kube_sync.kube.events import (
    EVENTS,
    Occurrence,
    Reference,
    Reporter,
    count_event,
    create_event,
    cut,
    event_name,
)
from tests.fakes.apiserver import FakeApiServer, fake_apiserver
from tests.fakes.clients import key, kube_of

FIRST = datetime(2026, 11, 21, 12, 0, 0, 5, UTC)
LAST = datetime(2026, 11, 21, 13, 0, 1, tzinfo=timezone(timedelta(hours=1)))
REPORTER = Reporter("kube-sync.io/admission", "host-1")
ON_OBJECT = Occurrence(
    Reference("apps/v1", "ReplicaSet", "shop", "web", "u1"), None, "PlacementDenied", "Update", "no"
)
ON_NAMESPACE = Occurrence(
    Reference("v1", "Namespace", "", "shop"),
    Reference("apps/v1", "ReplicaSet", "shop", "web"),
    "PlacementDenied",
    "Create",
    "no",
)
# RFC 1123, as the API server checks names of Events.
SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


@pytest.fixture
async def api() -> AsyncGenerator[FakeApiServer]:
    async with fake_apiserver() as api:
        api.define(EVENTS, "Event")
        yield api


@pytest.fixture
async def client(api: FakeApiServer, tmp_path: Path) -> AsyncGenerator[KubeClient]:
    async with kube_of(api, tmp_path) as client:
        yield client


async def test_an_event_lies_beside_its_object(api: FakeApiServer, client: KubeClient) -> None:
    await create_event(client, "web.1", ON_OBJECT, REPORTER, first=FIRST, last=FIRST, count=1)
    found = dict(api.get(EVENTS, key("web.1", "shop")))
    del found["metadata"]
    assert found == {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "eventTime": "2026-11-21T12:00:00.000005Z",
        "reportingController": "kube-sync.io/admission",
        "reportingInstance": "host-1",
        "type": "Warning",
        "reason": "PlacementDenied",
        "action": "Update",
        "note": "no",
        "regarding": {
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "namespace": "shop",
            "name": "web",
            "uid": "u1",
        },
    }


async def test_an_event_about_a_namespace_lies_in_default(
    api: FakeApiServer, client: KubeClient
) -> None:
    await create_event(client, "shop.1", ON_NAMESPACE, REPORTER, first=FIRST, last=LAST, count=2)
    found = api.get(EVENTS, key("shop.1", "default"))
    assert found["regarding"] == {"apiVersion": "v1", "kind": "Namespace", "name": "shop"}
    assert found["related"]["name"] == "web"
    assert found["series"] == {"count": 2, "lastObservedTime": "2026-11-21T12:00:01.000000Z"}
    with pytest.raises(Conflict):
        await create_event(
            client, "shop.1", ON_NAMESPACE, REPORTER, first=FIRST, last=LAST, count=2
        )


async def test_the_same_again_changes_the_series_alone(
    api: FakeApiServer, client: KubeClient
) -> None:
    await create_event(client, "web.1", ON_OBJECT, REPORTER, first=FIRST, last=FIRST, count=1)
    before = dict(api.get(EVENTS, key("web.1", "shop")))
    await count_event(client, "web.1", ON_OBJECT, LAST, 7)
    after = dict(api.get(EVENTS, key("web.1", "shop")))
    assert after.pop("series") == {"count": 7, "lastObservedTime": "2026-11-21T12:00:01.000000Z"}
    assert {**after, "metadata": None} == {**before, "metadata": None}


async def test_an_event_that_has_expired_cannot_be_counted(client: KubeClient) -> None:
    with pytest.raises(NotFound):
        await count_event(client, "web.1", ON_OBJECT, LAST, 7)


def _about(name: str) -> Occurrence:
    return Occurrence(Reference("v1", "X", "shop", name), None, "R", "A", "")


@given(st.one_of(st.text(max_size=300), st.from_regex(r"[-.a-z:]{0,300}", fullmatch=True)))
def test_any_name_makes_a_valid_name(name: str) -> None:
    made = event_name(_about(name), 1_800_000_000_000_000_000)
    assert SUBDOMAIN.fullmatch(made)
    assert len(made) <= 253
    assert made.endswith(".18fae27693b40000")


def test_a_valid_name_is_kept() -> None:
    assert event_name(_about("web-7d4.v1"), 255) == "web-7d4.v1.ff"


@given(st.text(max_size=2000))
def test_a_note_is_cut_between_characters(note: str) -> None:
    found = cut(note)
    assert len(found.encode()) <= 1024
    if len(note.encode()) <= 1024:
        assert found == note
    else:
        assert len(found.encode()) > 1024 - 4
        assert note.startswith(found.removesuffix("…"))
        assert found.endswith("…")
