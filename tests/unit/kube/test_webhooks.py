from __future__ import annotations

import copy
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_sync.errors import Conflict
from kube_sync.kube.client import KubeClient
from kube_sync.kube.collection import Event, KubeCollection, ResourceVersion
from kube_sync.kube.reflector import Reflector
from kube_sync.kube.webhooks import (
    CONFIGURATIONS,
    Registered,
    Wish,
    made_right,
    ours,
    replace,
    version,
)
from kube_sync.objects import ObjectKey
from tests.fakes.apiserver import FakeApiServer, fake_apiserver
from tests.fakes.clients import kube_of
from tests.unit.async_tools import running, until

PATH = "/admit/placement"
NAME = "kubernetes.io/metadata.name"
WISH = Wish(PATH, "Fail", "Y2E=", ("kube-system", "policies"), {"ours": "true", "gone": None})
RIGHT = {
    "name": "placement.kube-sync.io",
    "clientConfig": {"url": f"https://localhost:8443{PATH}", "caBundle": "Y2E="},
    "failurePolicy": "Fail",
    "namespaceSelector": {
        "matchExpressions": [
            {"key": NAME, "operator": "NotIn", "values": ["kube-system", "policies"]}
        ]
    },
    "matchConditions": [{"name": "ours", "expression": "true"}],
}


def configuration(*webhooks: Any) -> dict[str, Any]:
    return {"metadata": {"name": "c", "resourceVersion": "1"}, "webhooks": list(webhooks)}


def webhook(url: str = f"https://localhost:8443{PATH}", **more: Any) -> dict[str, Any]:
    return {"name": "placement.kube-sync.io", "clientConfig": {"url": url}, **more}


def only(found: Any) -> Any:
    (one,) = found["webhooks"]
    return one


def test_a_bare_webhook_gets_everything() -> None:
    assert only(made_right(configuration(webhook()), WISH)) == RIGHT


def test_what_is_not_wished_for_stays() -> None:
    wish = Wish(PATH, None, None, (), {})
    before = configuration(webhook(failurePolicy="Ignore", timeoutSeconds=7))
    assert made_right(before, wish) == before


def test_what_an_administrator_selects_stays_and_ours_is_added() -> None:
    theirs = {"key": "team", "operator": "In", "values": ["shop"]}
    selector = {
        "matchLabels": {"placed": "yes"},
        "matchExpressions": [theirs, {"key": NAME, "operator": "NotIn", "values": ["own"]}],
    }
    condition = {"name": "theirs", "expression": "1 == 1"}
    before = webhook(namespaceSelector=selector, matchConditions=[condition], rules=["…"])
    right = only(made_right(configuration(before), WISH))
    assert right["namespaceSelector"] == {
        "matchLabels": {"placed": "yes"},
        "matchExpressions": [
            theirs,
            {"key": NAME, "operator": "NotIn", "values": ["own", "kube-system", "policies"]},
        ],
    }
    assert right["matchConditions"] == [condition, {"name": "ours", "expression": "true"}]
    assert right["rules"] == ["…"]


def test_names_may_be_in_several_expressions() -> None:
    expressions = [
        {"key": NAME, "operator": "NotIn", "values": ["kube-system"]},
        {"key": NAME, "operator": "NotIn", "values": ["policies"]},
    ]
    selector = {"matchExpressions": expressions}
    right = only(made_right(configuration(webhook(namespaceSelector=selector)), WISH))
    assert right["namespaceSelector"] == selector


def test_the_namespace_of_its_own_service_is_left_out() -> None:
    """Or while no webhook answers, none could be started."""
    service = {"namespace": "elsewhere", "name": "admission", "path": PATH}
    right = only(
        made_right(configuration({"name": "w", "clientConfig": {"service": service}}), WISH)
    )
    (expression,) = right["namespaceSelector"]["matchExpressions"]
    assert expression["values"] == ["kube-system", "policies", "elsewhere"]


def test_a_condition_of_ours_that_was_changed_or_is_not_wanted_is_put_right() -> None:
    conditions = [
        {"name": "gone", "expression": "true"},
        {"name": "ours", "expression": "false"},
        {"name": "theirs", "expression": "false"},
    ]
    right = only(made_right(configuration(webhook(matchConditions=conditions)), WISH))
    assert right["matchConditions"] == [
        {"name": "ours", "expression": "true"},
        {"name": "theirs", "expression": "false"},
    ]


def test_no_condition_is_no_difference() -> None:
    wish = Wish(PATH, None, None, (), {"gone": None})
    assert made_right(configuration(webhook()), wish) == configuration(webhook())


@pytest.mark.parametrize(
    "client",
    [
        {"url": "https://localhost/another"},
        {"url": "https://localhost"},
        {"service": {"namespace": "kube-sync", "name": "admission"}},
        {"service": {"namespace": "kube-sync", "name": "admission", "path": "/admit"}},
    ],
)
def test_a_webhook_that_calls_somebody_else_is_never_touched(client: Any) -> None:
    foreign = {"name": "placement.kube-sync.io", "clientConfig": client}
    found = configuration(foreign, webhook())
    assert made_right(found, WISH)["webhooks"][0] == foreign
    assert ours(found, PATH) == [webhook()]


def test_a_configuration_without_webhooks_stays() -> None:
    found = {"metadata": {"name": "c"}}
    assert made_right(found, WISH) == found
    assert ours(found, PATH) == []


_NAMES = st.sampled_from(["kube-system", "policies", "a", "b"])
_EXPRESSIONS = st.fixed_dictionaries(
    {
        "key": st.sampled_from([NAME, "team"]),
        "operator": st.sampled_from(["In", "NotIn"]),
        "values": st.lists(_NAMES, unique=True),
    }
)
_CONDITIONS = st.lists(
    st.fixed_dictionaries(
        {
            "name": st.sampled_from(["ours", "gone", "theirs"]),
            "expression": st.sampled_from(["true", "false"]),
        }
    ),
    unique_by=lambda c: c["name"],
)
_CLIENTS = st.one_of(
    st.sampled_from([{"url": f"https://h{PATH}"}, {"url": "https://h/other"}]),
    st.fixed_dictionaries({"service": st.sampled_from([{"path": PATH, "namespace": "a"}, {}])}),
)
_WEBHOOKS = st.fixed_dictionaries(
    {"name": st.text(max_size=3), "clientConfig": _CLIENTS},
    optional={
        "failurePolicy": st.sampled_from(["Fail", "Ignore"]),
        "namespaceSelector": st.fixed_dictionaries(
            {}, optional={"matchExpressions": st.lists(_EXPRESSIONS, max_size=3)}
        ),
        "matchConditions": _CONDITIONS,
    },
)
_WISHES = st.builds(
    Wish,
    st.just(PATH),
    st.sampled_from(["Fail", "Ignore", None]),
    st.sampled_from(["Y2E=", None]),
    st.lists(_NAMES).map(tuple),
    st.fixed_dictionaries(
        {"ours": st.sampled_from(["true", None]), "gone": st.sampled_from(["x", None])}
    ),
)


@given(st.lists(_WEBHOOKS, max_size=3), _WISHES)
def test_twice_is_once_and_foreign_webhooks_and_the_argument_stay(
    webhooks: list[dict[str, Any]], wish: Wish
) -> None:
    before = configuration(*webhooks)
    kept = copy.deepcopy(before)
    once = made_right(before, wish)
    assert before == kept
    assert made_right(once, wish) == once
    called = [id(w) for w in ours(before, PATH)]
    for old, new in zip(before["webhooks"], once["webhooks"], strict=True):
        if id(old) not in called:
            assert new == old
            continue
        assert new.get("failurePolicy") == (wish.failure_policy or old.get("failurePolicy"))
        said = new.get("namespaceSelector", {}).get("matchExpressions", [])
        out = {n for e in said if (e["key"], e["operator"]) == (NAME, "NotIn") for n in e["values"]}
        assert {*wish.namespaces} <= out


@pytest.fixture
async def api() -> AsyncGenerator[FakeApiServer]:
    async with fake_apiserver() as api:
        api.define(CONFIGURATIONS, "MutatingWebhookConfiguration", namespaced=False)
        yield api


@pytest.fixture
async def client(api: FakeApiServer, tmp_path: Path) -> AsyncGenerator[KubeClient]:
    async with kube_of(api, tmp_path) as client:
        yield client


KEY = ObjectKey("", "c")


async def test_the_store_holds_the_one_that_is_there(
    api: FakeApiServer, client: KubeClient
) -> None:
    told: list[object] = []
    store = Registered(lambda: told.append(store.found))
    source = KubeCollection(client, CONFIGURATIONS, field_selector="metadata.name=c")
    api.put(CONFIGURATIONS, ObjectKey("", "another"), webhooks=[])
    async with running(Reflector("c", source, store, lambda _reason: None).run()):
        await api.watched(CONFIGURATIONS)
        assert store.listed
        assert store.found is None
        for webhooks in ([webhook()], []):
            put = api.put(CONFIGURATIONS, KEY, webhooks=webhooks)
            await until(lambda: told and told[-1] == put)  # noqa: B023 - awaited here
        api.bookmark(CONFIGURATIONS)
        api.delete(CONFIGURATIONS, KEY)
        await until(lambda: told[-1] is None)


def test_a_bookmark_is_no_news() -> None:
    told: list[None] = []
    Registered(lambda: told.append(None)).apply(Event("BOOKMARK", ResourceVersion("7")))
    assert told == []


async def test_a_list_that_broke_off_is_forgotten(api: FakeApiServer, client: KubeClient) -> None:
    api.put(CONFIGURATIONS, KEY, webhooks=[])
    store = Registered(lambda: None)
    async for page in KubeCollection(client, CONFIGURATIONS).list():
        await store.page(page.items)
    store.abandon()
    store.finish(known=True)
    assert store.found is None


async def test_it_is_written_at_the_version_that_was_read(
    api: FakeApiServer, client: KubeClient
) -> None:
    read = api.put(CONFIGURATIONS, KEY, webhooks=[])
    written = await replace(client, {**read, "webhooks": [webhook()]})
    found = api.get(CONFIGURATIONS, KEY)
    assert written == version(found) != version(read)
    assert found["webhooks"] == [webhook()]
    with pytest.raises(Conflict):
        await replace(client, read)
