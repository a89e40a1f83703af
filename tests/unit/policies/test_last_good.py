from __future__ import annotations

import base64
import json
import random
from typing import Any

import pytest
from structlog.testing import capture_logs

from kube_sync.errors import Conflict, NotFound, Refused, Retriable, SyncError
from kube_sync.objects import ObjectKey
from kube_sync.policies.last_good import LastGood

GOOD = {
    ObjectKey("ns", "p"): {"ns/p/a.rego": "package a"},
    ObjectKey("ns", "q"): {"ns/q/b.rego": "package b", "ns/q/c.rego": "package c"},
}
PATH = "/api/v1/namespaces/kube-sync/configmaps"


class Api:
    """An API server that holds one ConfigMap, or refuses."""

    def __init__(self) -> None:
        self.held: bytes | None = None
        self.failure: SyncError | None = None
        self.raced = False
        self.missing = '404 configmaps "kube-sync-last-good" not found'
        self.methods: list[str] = []

    async def request(
        self,
        method: str,
        path: str,
        *,
        body: bytes | None = None,
        content_type: str = "application/json",
    ) -> bytes:
        self.methods.append(method)
        if self.failure is not None:
            raise self.failure
        assert path == (PATH if method == "POST" else f"{PATH}/kube-sync-last-good")
        if method == "POST" and self.raced:
            self.held, self.raced = b"{}", False
            msg = "409"
            raise Conflict(msg)
        if method != "POST" and self.held is None:
            raise NotFound(self.missing)
        if method == "PATCH":
            assert content_type == "application/merge-patch+json"
            body = json.dumps(
                merged(json.loads(self.held or b"{}"), json.loads(body or b"{}"))
            ).encode()
        self.held = body or self.held
        return self.held or b""


def merged(held: Any, patch: Any) -> Any:
    """Return what a merge patch makes of a document (RFC 7386)."""
    if not isinstance(patch, dict) or not isinstance(held, dict):
        return patch
    found = held | {name: merged(held.get(name, {}), value) for name, value in patch.items()}
    return {name: value for name, value in found.items() if value is not None}


class Leader:
    """A replica that acts, or does not."""

    def __init__(self, *, held: bool = True) -> None:
        self.held = held


@pytest.fixture
def api() -> Api:
    return Api()


async def test_what_was_saved_is_loaded_by_the_next_process(api: Api) -> None:
    await LastGood(api, "kube-sync", Leader()).save(GOOD)
    assert await LastGood(api, "kube-sync", Leader()).load() == GOOD
    manifest = json.loads(api.held or b"")
    assert manifest["metadata"] == {"name": "kube-sync-last-good", "namespace": "kube-sync"}


async def test_nothing_on_record_is_nothing_good(api: Api) -> None:
    assert await LastGood(api, "kube-sync", Leader()).load() == {}


async def test_record_that_says_the_same_is_not_written_again(api: Api) -> None:
    record = LastGood(api, "kube-sync", Leader())
    await record.save(GOOD)
    assert api.methods == ["PATCH", "POST"]
    await record.save(dict(reversed(GOOD.items())))
    assert api.methods == ["PATCH", "POST"]
    await record.save({})
    assert api.methods == ["PATCH", "POST", "PATCH"]


async def test_another_replica_that_was_first_is_no_failure(api: Api) -> None:
    api.raced = True
    with capture_logs() as logs:
        await LastGood(api, "kube-sync", Leader()).save(GOOD)
    assert logs == []
    assert api.methods == ["PATCH", "POST", "PATCH"]
    assert await LastGood(api, "kube-sync", Leader()).load() == GOOD


async def test_404_that_does_not_name_the_record_is_not_believed(api: Api) -> None:
    """Taken for nothing on record, the next save would forget what every policy last held."""
    api.missing = "404 404 page not found"
    with pytest.raises(Retriable, match="not believed"):
        await LastGood(api, "kube-sync", Leader()).load()


async def test_record_that_could_not_be_read_is_not_replaced(api: Api) -> None:
    """An API server that starts refuses what it allows a moment later."""
    await LastGood(api, "kube-sync", Leader()).save(GOOD)
    record = LastGood(api, "kube-sync", Leader())
    api.failure = Refused("403 RBAC: not ready")
    assert await record.load() == {}
    await record.save({})
    api.failure = None
    new = {ObjectKey("ns", "q"): {"ns/q/b.rego": "package newer"}}
    await record.save(new)
    assert await LastGood(api, "kube-sync", Leader()).load() == {**GOOD, **new}
    newer = {ObjectKey("ns", "r"): {"ns/r/b.rego": "package r"}}
    await record.save(newer)
    assert await LastGood(api, "kube-sync", Leader()).load() == {**GOOD, **newer}


async def test_saving_leaves_what_other_replicators_say_in_the_same_configmap(api: Api) -> None:
    api.held = json.dumps({"data": {"quarantine.other": "{}"}}).encode()
    await LastGood(api, "kube-sync", Leader()).save(GOOD)
    assert json.loads(api.held)["data"] == {"quarantine.other": "{}"}


async def test_without_rights_nothing_is_kept_and_that_is_said_once(api: Api) -> None:
    api.failure = Refused("403 configmaps is forbidden")
    record = LastGood(api, "kube-sync", Leader())
    with capture_logs() as logs:
        assert await record.load() == {}
        await record.save(GOOD)
        await record.save(GOOD)
    (said,) = logs
    assert said["event"] == "last_good_policies_not_kept"
    assert "403" in said["error"]
    api.failure = None
    await record.save(GOOD)
    assert await LastGood(api, "kube-sync", Leader()).load() == GOOD


async def test_api_server_that_is_away_is_asked_again_before_anything_is_forgotten(
    api: Api,
) -> None:
    """Taken for nothing on record, the first faulty edit would take its policy away."""
    api.failure = Retriable("503")
    with pytest.raises(Retriable):
        await LastGood(api, "kube-sync", Leader()).load()


async def test_record_that_is_too_big_is_kept_without_the_largest_policy(api: Api) -> None:
    """Or one author could keep the versions of all others off the record."""
    noise = random.Random(1).randbytes(1_200_000).hex()  # noqa: S311 - not a secret
    record = LastGood(api, "kube-sync", Leader())
    with capture_logs() as logs:
        for _ in range(2):
            await record.save({**GOOD, ObjectKey("ns", "noise"): {"ns/noise/a.rego": noise}})
    assert [log["error"] for log in logs] == [
        "all together are more than a ConfigMap takes; without ns/noise"
    ]
    assert await LastGood(api, "kube-sync", Leader()).load() == GOOD


@pytest.mark.parametrize(
    "body",
    [
        b"no JSON",
        json.dumps({"binaryData": {"modules.json.gz": "no base64!"}}).encode(),
        json.dumps({"binaryData": {"modules.json.gz": base64.b64encode(b"x").decode()}}).encode(),
    ],
)
async def test_record_that_cannot_be_read_is_told_and_ignored(api: Api, body: bytes) -> None:
    api.held = body
    with capture_logs() as logs:
        assert await LastGood(api, "kube-sync", Leader()).load() == {}
    assert logs[0]["event"] == "last_good_policies_unreadable"


async def test_record_without_its_key_is_empty(api: Api) -> None:
    api.held = b"{}"
    assert await LastGood(api, "kube-sync", Leader()).load() == {}


async def test_replica_that_does_not_act_reads_the_record_only(api: Api) -> None:
    other = LastGood(api, "kube-sync", Leader(held=False))
    await other.save(GOOD)
    assert api.methods == []
    await LastGood(api, "kube-sync", Leader()).save(GOOD)
    assert await other.load() == GOOD
