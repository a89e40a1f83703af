from __future__ import annotations

import json
from pathlib import Path

import pytest

from kube_sync.errors import Refused, Retriable
from kube_sync.kube.access import REVIEWS, allowed, user_name
from tests.fakes.apiserver import fake_apiserver
from tests.fakes.clients import REPLICASETS, kube_of
from tests.fakes.http import answer, failing


async def test_the_verbs_that_we_are_allowed_are_told(tmp_path: Path) -> None:
    async with fake_apiserver() as api, kube_of(api, tmp_path) as client:
        for verdict in (True, False, True):
            body = json.dumps({"status": {"allowed": verdict}}).encode()
            api.http.fault(lambda r: r.path == REVIEWS.path(), answer(201, body))
        found = await allowed(client, REPLICASETS, ("get", "list", "watch"))
        assert found == {"get", "watch"}
        asked = api.http.requests[1].json()["spec"]["resourceAttributes"]
        assert asked == {
            "group": "apps",
            "version": "v1",
            "resource": "replicasets",
            "verb": "list",
        }


async def test_an_answer_that_is_no_review_is_tried_again(tmp_path: Path) -> None:
    async with fake_apiserver() as api, kube_of(api, tmp_path) as client:
        api.http.fault(lambda r: r.method == "POST", answer(201, b"{}"))
        with pytest.raises(Retriable, match="no SelfSubjectAccessReview"):
            await allowed(client, REPLICASETS, ("get",))
        api.http.fault(lambda r: r.method == "POST", failing(403, "no"))
        with pytest.raises(Refused):
            await allowed(client, REPLICASETS, ("get",))


async def test_a_verb_of_a_subresource_is_asked_of_that(tmp_path: Path) -> None:
    async with fake_apiserver() as api, kube_of(api, tmp_path) as client:
        body = json.dumps({"status": {"allowed": True}}).encode()
        api.http.fault(lambda r: r.path == REVIEWS.path(), answer(201, body))
        assert await allowed(client, REPLICASETS, ("patch status",)) == {"patch status"}
        asked = api.http.requests[0].json()["spec"]["resourceAttributes"]
        assert (asked["verb"], asked["subresource"]) == ("patch", "status")


async def test_a_right_in_one_namespace_is_asked_of_that(tmp_path: Path) -> None:
    async with fake_apiserver() as api, kube_of(api, tmp_path) as client:
        body = json.dumps({"status": {"allowed": True}}).encode()
        api.http.fault(lambda r: r.path == REVIEWS.path(), answer(201, body))
        await allowed(client, REPLICASETS, ("get",), "shop")
        assert api.http.requests[0].json()["spec"]["resourceAttributes"]["namespace"] == "shop"


async def test_the_name_of_the_user_is_known(tmp_path: Path) -> None:
    async with fake_apiserver() as api, kube_of(api, tmp_path) as client:
        body = json.dumps({"status": {"userInfo": {"username": "me"}}}).encode()
        api.http.fault(lambda r: r.path.endswith("/selfsubjectreviews"), answer(201, body))
        assert await user_name(client) == "me"
        api.http.fault(lambda r: r.path.endswith("/selfsubjectreviews"), answer(201, b"{}"))
        with pytest.raises(Retriable, match="no SelfSubjectReview"):
            await user_name(client)
