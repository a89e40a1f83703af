from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path

import msgspec
import pytest
from aiohttp import web
from structlog.testing import capture_logs

from kube_sync.config import Policies, Settings, Source
from kube_sync.kube.access import REVIEWS
from kube_sync.kube.wholeobjects import NAMESPACES
from kube_sync.objects import ObjectKey
from kube_sync.processes.prerequisites import Missing, log_defaults, log_missing, missing
from tests.fakes.apiserver import FakeApiServer, fake_apiserver
from tests.fakes.clients import CLUSTERS, REPLICASETS, kube_of
from tests.fakes.http import Handler, Proceed, answer, failing

HOME, POLICIES = "kube-sync", "policies"
SETTINGS = Settings(policies=Policies(namespaces=(POLICIES,)))


def reviewing(denied: Collection[tuple[str, str]]) -> Handler:
    """Allow everything but these verbs of resources."""

    async def handle(request: web.Request, _proceed: Proceed) -> web.StreamResponse:
        asked = (await request.json())["spec"]["resourceAttributes"]
        allowed = (asked["verb"], asked["resource"]) not in denied
        return web.json_response({"status": {"allowed": allowed}})

    return handle


async def found(
    folder: Path,
    *,
    namespaces: Collection[str] = (HOME, POLICIES),
    kinds: bool = True,
    denied: Collection[tuple[str, str]] = (),
    settings: Settings = SETTINGS,
) -> list[Missing]:
    async with fake_apiserver() as api, kube_of(api, folder) as client:
        api.define(NAMESPACES, "Namespace", namespaced=False)
        for name in namespaces:
            api.put(NAMESPACES, ObjectKey("", name))
        if kinds:
            api.define(CLUSTERS, "ClusterProfile")
        api.define(REPLICASETS, "ReplicaSet")
        api.http.fault(lambda one: one.path == REVIEWS.path(), reviewing(denied), times=99)
        _answer_who(api)
        return [one async for one in missing(client, settings)]


def _answer_who(api: FakeApiServer) -> None:
    body = json.dumps({"status": {"userInfo": {"username": "me & co"}}}).encode()
    api.http.fault(lambda one: one.path.endswith("/selfsubjectreviews"), answer(201, body))


async def test_nothing_is_missing_where_everything_is_there(tmp_path: Path) -> None:
    assert await found(tmp_path) == []


async def test_each_namespace_that_is_missing_has_the_command_that_makes_it(
    tmp_path: Path,
) -> None:
    home, policies = await found(tmp_path, namespaces=())
    assert home.mend == "kubectl create namespace kube-sync"
    assert policies.mend == "kubectl create namespace policies"


async def test_a_namespace_that_may_not_be_seen_is_made_unless_it_is_there(
    tmp_path: Path,
) -> None:
    async with fake_apiserver() as api, kube_of(api, tmp_path) as client:
        api.http.fault(lambda _: True, failing(403, "no"), times=2)
        api.define(REPLICASETS, "ReplicaSet")
        api.define(CLUSTERS, "ClusterProfile")
        api.http.fault(lambda one: one.path == REVIEWS.path(), reviewing(()), times=99)
        _answer_who(api)
        found = [one.mend async for one in missing(client, SETTINGS)]
    home = "kubectl get namespace kube-sync || kubectl create namespace kube-sync"
    assert found == [home, home.replace("kube-sync", "policies")]


async def test_the_kind_of_clusters_that_is_missing_is_named_with_its_definition(
    tmp_path: Path,
) -> None:
    (kind,) = await found(tmp_path, kinds=False)
    assert kind.what == "kind clusterprofiles.v1alpha1.multicluster.x-k8s.io"
    assert kind.mend.startswith("kubectl apply -f https://")


@pytest.mark.parametrize(
    ("denied", "what", "mend"),
    [
        (
            ("patch", "replicasets"),
            "right to patch replicasets.apps",
            (
                "kubectl create clusterrole kube-sync-run-replicasets-patch --verb=patch"
                " --resource=replicasets.apps && kubectl create clusterrolebinding"
                " kube-sync-run-replicasets-patch --clusterrole=kube-sync-run-replicasets-patch"
                " --user='me & co'"
            ),
        ),
        (
            ("update", "leases"),
            "right to update leases.coordination.k8s.io in kube-sync",
            (
                "kubectl create role kube-sync-run-leases-update --namespace=kube-sync"
                " --verb=update --resource=leases.coordination.k8s.io && kubectl create rolebinding"
                " kube-sync-run-leases-update --namespace=kube-sync"
                " --role=kube-sync-run-leases-update"
                " --user='me & co'"
            ),
        ),
    ],
)
async def test_a_right_that_is_missing_has_the_commands_that_give_it(
    tmp_path: Path, denied: tuple[str, str], what: str, mend: str
) -> None:
    (right,) = await found(tmp_path, denied=[denied])
    assert (right.what, right.mend) == (what, mend)


async def test_what_does_not_work_without_a_right_is_said(tmp_path: Path) -> None:
    denied = [("list", "clusterprofiles"), ("patch", "replicasets"), ("watch", "configmaps")]
    assert [one.without for one in await found(tmp_path, denied=denied)] == [
        "clusters are not replicated",
        "decisions on replicasets are not written",
        "policies have no effect, or no status",
    ]


async def test_rights_in_namespaces_of_labelled_policies_are_looked_at(tmp_path: Path) -> None:
    labelled = {"namespaces": ["*"]}
    settings = msgspec.convert({"policies": {"namespaces": [], "labelled": labelled}}, Settings)
    denied = [("list", "configmaps"), ("create", "configmaps"), ("patch", "events")]
    assert [one.what for one in await found(tmp_path, denied=denied, settings=settings)] == [
        "right to create configmaps in kube-sync",
        "right to list configmaps",
        "right to patch events.events.k8s.io",
    ]


async def test_an_api_server_that_does_not_answer_is_one_line(tmp_path: Path) -> None:
    async with fake_apiserver() as api, kube_of(api, tmp_path) as client:
        api.http.fault(lambda _: True, failing(500, "broken"), times=99)
        with capture_logs() as logs:
            await log_missing(client, SETTINGS)
    assert [log["event"] for log in logs] == ["prerequisites_not_checked"]


async def test_what_is_missing_is_logged(tmp_path: Path) -> None:
    async with fake_apiserver() as api, kube_of(api, tmp_path) as client:
        api.define(NAMESPACES, "Namespace", namespaced=False)
        api.define(REPLICASETS, "ReplicaSet")
        api.define(CLUSTERS, "ClusterProfile")
        api.http.fault(lambda one: one.path == REVIEWS.path(), reviewing(()), times=99)
        _answer_who(api)
        with capture_logs() as logs:
            await log_missing(client, SETTINGS)
    assert [(log["what"], log["log_level"]) for log in logs] == [
        ("namespace kube-sync", "warning"),
        ("namespace policies", "warning"),
    ]


def test_defaults_that_nobody_has_set_are_logged() -> None:
    source = Source(None, {"KUBE_SYNC_REMEDIATE_MODE": "off"})
    with capture_logs() as logs:
        log_defaults(source.load(b"opa: {url: 'http://opa'}"), source, b"opa: {url: 'http://opa'}")
    shown = {log["setting"]: log["value"] for log in logs}
    assert shown["policies.namespaces"] == ["kube-federation-scheduling-policy"]
    assert "clusterprofiles.v1alpha1.multicluster.x-k8s.io" in shown["replicate.resources"]
    assert {"opa.url", "remediate.mode"} & shown.keys() == set()
