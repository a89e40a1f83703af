from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kube_sync.certificates import write_certificates
from kube_sync.config import Opa
from kube_sync.errors import (
    EpochLost,
    Misconfigured,
    NotFound,
    Refused,
    Retriable,
    SyncError,
    Undecided,
)
from kube_sync.opa import client as client_module
from kube_sync.opa import paths
from kube_sync.opa.client import OpaClient, OpaError, PolicyRejected, opa_client
from kube_sync.runtime.tls import server_context
from tests.fakes.clients import opa_of
from tests.fakes.http import Handler, Recorded, answer, hang, served, stream
from tests.fakes.opa import FakeOpa

_ODD = ("a/b", "c~d", "50%", "%2F", "ü", "~1", "x y", "q?r#s&t=u+v")

# Deeper than Python's stack.
_DEEP = b'{"other":' + b"[" * 3000 + b"]" * 3000 + b"}"


def anything(_recorded: Recorded) -> bool:
    return True


def failing(status: int, **body: Any) -> Handler:
    return answer(status, json.dumps(body).encode(), kind="application/json")


async def test_put_creates_parents_and_get_reads_it_back(opa: FakeOpa, client: OpaClient) -> None:
    await client.put_data(("a", "b"), b'{"c": [1, null]}')
    assert opa.data == {"a": {"b": {"c": [1, None]}}}
    assert json.loads(await client.get_data(("a", "b", "c")) or b"") == [1, None]


async def test_data_that_is_not_there_is_none(client: OpaClient) -> None:
    assert await client.get_data(("a",)) is None


async def test_data_that_is_false_or_null_is_there(opa: FakeOpa, client: OpaClient) -> None:
    """Only an undefined answer is none: `false` is an answer."""
    opa.data = {"no": False, "null": None}
    assert await client.get_data(("no",)) == b"false"
    assert await client.get_data(("null",)) == b"null"


@pytest.mark.parametrize("name", _ODD)
async def test_odd_names_survive_both_ways_of_writing(
    opa: FakeOpa, client: OpaClient, name: str
) -> None:
    await client.put_data(("a", name), b"{}")
    operation = {"op": "add", "path": paths.pointer(("a", name, name)), "value": 1}
    await client.patch_data([json.dumps(operation).encode()])
    assert opa.data == {"a": {name: {name: 1}}}


async def test_patch_of_a_path_that_is_gone_loses_the_epoch_and_writes_nothing(
    opa: FakeOpa, client: OpaClient
) -> None:
    operations = [b'{"op":"add","path":"/a","value":1}', b'{"op":"replace","path":"/b","value":1}']
    with pytest.raises(EpochLost, match="404"):
        await client.patch_data(operations)
    assert opa.data == {}


async def test_patch_is_sent_as_json_patch(opa: FakeOpa, client: OpaClient) -> None:
    await client.patch_data([b'{"op":"add","path":"/a","value":1}'])
    assert opa.http.requests[-1].headers["Content-Type"] == "application/json-patch+json"


async def test_query_returns_the_answer_and_none_when_undefined(
    opa: FakeOpa, client: OpaClient
) -> None:
    await client.put_policy("any", "package kube_sync.batch")
    opa.data = {"kube_sync": {"epoch": {"e": "loaded"}}, "kubernetes": {"things": {}}}
    asked = {"epoch": "e", "collection": "things", "items": []}
    body = json.dumps({"input": asked}).encode()
    assert await client.query("kube_sync/batch/decisions", body) == b"{}"
    assert await client.query("unknown", body) is None


async def test_policies_are_put_listed_and_deleted(opa: FakeOpa, client: OpaClient) -> None:
    await client.put_policy("ns/name/a b.rego", "package a")
    assert opa.http.requests[-1].headers["Content-Type"] == "text/plain"
    (found,) = await client.policies()
    assert (found.id, found.raw, found.package) == ("ns/name/a b.rego", "package a", ("a",))
    await client.delete_policy("ns/name/a b.rego")
    assert await client.policies() == []


@pytest.mark.parametrize(
    ("bundles", "name"),
    [
        ({"b": {"service": "s", "resource": "/v1/bundles/policies"}}, "b"),
        ({"b": {"service": "s", "resource": "proxied/v1/bundles/policies"}}, "b"),
        ({"b": {"service": "s", "resource": "bundle.tar.gz"}, "c": {"service": "s"}}, None),
        ({"v1/bundles/policies": {"service": "s"}}, "v1/bundles/policies"),
        ({}, None),
        (None, None),
    ],
)
async def test_bundle_is_known_by_where_opa_fetches_it(
    opa: FakeOpa, client: OpaClient, bundles: Any, name: str | None
) -> None:
    opa.config = {} if bundles is None else {"bundles": bundles}
    assert await client.bundle_from("v1/bundles/policies") == name


@pytest.mark.parametrize("version", ["1.22.0", None])
async def test_version_is_a_label_of_the_configuration(
    opa: FakeOpa, client: OpaClient, version: str | None
) -> None:
    opa.config = {"labels": {"id": "x", "version": version} if version else {"id": "x"}}
    assert await client.version() == version


async def test_configuration_that_may_not_be_read_says_what_to_allow(
    opa: FakeOpa, client: OpaClient
) -> None:
    opa.http.fault(anything, answer(401))
    with pytest.raises(Refused, match=r"has to allow GET /v1/config to the replicator"):
        await client.bundle_from("v1/bundles/policies")


async def test_deleting_a_policy_that_is_gone_is_no_failure(client: OpaClient) -> None:
    await client.delete_policy("gone")


async def test_module_that_does_not_compile_is_rejected_with_file_and_row(
    opa: FakeOpa, client: OpaClient
) -> None:
    with pytest.raises(PolicyRejected, match=r"^ns/n/a\.rego:2: unexpected identifier") as caught:
        await client.put_policy("ns/n/a.rego", "package a\ndoes not compile\n")
    assert caught.value.error.errors[0]["location"] == {"file": "ns/n/a.rego", "row": 2, "col": 1}
    assert opa.policies == {}


async def test_policy_that_others_need_is_not_deleted(opa: FakeOpa, client: OpaClient) -> None:
    await client.put_policy("lib", "package lib")
    await client.put_policy("user", "package user\n# needs: lib\n")
    with pytest.raises(PolicyRejected, match="user:2: undefined function lib"):
        await client.delete_policy("lib")
    assert set(opa.policies) == {"lib", "user"}


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ({"message": "words"}, "words"),
        ({"message": "words", "errors": []}, "words"),
        ({"message": "words", "errors": ["text"]}, "words"),
        ({"message": "words", "errors": [{}]}, "words"),
        ({"message": "words", "errors": [{"message": "cause"}]}, "cause"),
        ({"message": "words", "errors": [{"message": "c", "location": None}]}, "c"),
        ({"message": "words", "errors": [{"message": "c", "location": {"file": "f"}}]}, "f:?: c"),
        ({"message": "words", "errors": [{"message": "c", "location": {"row": 3}}]}, "c"),
    ],
)
async def test_rejection_says_the_first_cause(
    opa: FakeOpa, client: OpaClient, body: dict[str, Any], text: str
) -> None:
    opa.http.fault(anything, failing(400, **body))
    with pytest.raises(PolicyRejected) as caught:
        await client.put_policy("a", "package a")
    assert str(caught.value) == text


@pytest.mark.parametrize(
    ("handler", "kind", "words"),
    [
        (failing(401, message="who"), Refused, r"401 who \(is opa\.token_file the right one\?\)"),
        (failing(403, message="no"), Refused, "403 no"),
        (answer(400, b"<html>"), PolicyRejected, "<html>"),
        (failing(429, message="slow"), Retriable, "429 slow"),
        (failing(500, code="internal_error", message="down"), Retriable, "500 down"),
        (answer(502, b"bad gateway"), Retriable, "502 bad gateway"),
        (failing(503, message="busy", errors=None), Retriable, "503"),
    ],
)
async def test_status_raises_what_to_do_next(
    opa: FakeOpa, client: OpaClient, handler: Handler, kind: type[SyncError], words: str
) -> None:
    opa.http.fault(anything, handler)
    with pytest.raises(SyncError, match=words) as caught:
        await client.query("a", b"{}")
    assert type(caught.value) is kind


async def test_evaluation_error_is_undecided(opa: FakeOpa, client: OpaClient) -> None:
    """Asking again gives the same: the caller has to single the bad input out."""
    location = {"file": "a.rego", "row": 7}
    errors = [{"code": "eval_conflict_error", "message": "must not", "location": location}]
    fault = failing(500, code="internal_error", message="error(s) occurred", errors=errors)
    opa.http.fault(anything, fault)
    with pytest.raises(Undecided, match=r"^a\.rego:7: must not$"):
        await client.query("a", b"{}")


async def test_explanation_has_the_answer_and_each_step(opa: FakeOpa, client: OpaClient) -> None:
    body = b'{"result": {"a": 1}, "explanation": ["query:1 Enter data.a = _"]}'
    opa.http.fault(anything, answer(200, body, kind="application/json"))
    found = await client.explain("a/b", b'{"input":{}}', 1000, 5.0)
    assert (bytes(found.result), found.explanation) == (b'{"a": 1}', ["query:1 Enter data.a = _"])
    asked = opa.http.requests[-1]
    assert asked.raw_path == "/v1/data/a/b?explain=full&pretty=true"


async def test_explanation_that_is_too_long_or_takes_too_long_is_given_up(
    opa: FakeOpa, client: OpaClient
) -> None:
    opa.http.fault(anything, stream(*[b" " * 10_000] * 10))
    with pytest.raises(Retriable, match="more than"):
        await client.explain("a", b"{}", 1000, 5.0)
    opa.http.fault(anything, hang())
    with pytest.raises(Retriable, match="no answer in time"):
        await client.explain("a", b"{}", 1000, 0.05)


@pytest.mark.parametrize(("header", "seconds"), [("3", 3.0), (None, None), ("soon", None)])
async def test_retry_after_is_passed_on_in_seconds(
    opa: FakeOpa, client: OpaClient, header: str | None, seconds: float | None
) -> None:
    opa.http.fault(anything, answer(503, retry_after=header))
    with pytest.raises(Retriable) as caught:
        await client.put_data(("a",), b"{}")
    assert caught.value.retry_after == seconds


@pytest.mark.parametrize("body", [b"<html>login</html>", b"[]", b"", _DEEP])
async def test_answer_of_something_else_than_opa_is_retriable(
    opa: FakeOpa, client: OpaClient, body: bytes
) -> None:
    """A proxy's page with status 200 must not end the process."""
    opa.http.fault(anything, answer(200, body), times=2)
    with pytest.raises(Retriable, match="what answers is not OPA"):
        await client.query("a", b"{}")
    with pytest.raises(Retriable, match="what answers is not OPA"):
        await client.policies()


async def test_refused_connection_is_retriable_and_names_opa(
    opa: FakeOpa, client: OpaClient
) -> None:
    await opa.http.stop()
    with pytest.raises(Retriable, match=f"OPA {client.url}: .*[Cc]onnect"):
        await client.policies()


async def test_connection_cut_in_mid_answer_is_retriable(opa: FakeOpa, client: OpaClient) -> None:
    opa.http.fault(anything, stream(b'{"result":', cut=True))
    with pytest.raises(Retriable, match=f"OPA {client.url}: "):
        await client.query("a", b"{}")


async def test_query_without_an_answer_is_retriable(
    opa: FakeOpa, client: OpaClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "_QUERY_SECONDS", 0.05)
    opa.http.fault(anything, hang())
    with pytest.raises(Retriable, match="no answer in time"):
        await client.query("a", b"{}")


async def test_token_is_sent_and_its_rotation_picked_up(opa: FakeOpa, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("first", encoding="utf-8")
    async with opa_of(opa, str(token)) as client:
        await client.policies()
        assert opa.http.requests[-1].headers["Authorization"] == "Bearer first"
        (tmp_path / "new").write_text("second", encoding="utf-8")
        (tmp_path / "new").rename(token)
        await client.policies()
        assert opa.http.requests[-1].headers["Authorization"] == "Bearer second"


async def test_missing_token_file_is_misconfigured(opa: FakeOpa) -> None:
    async with opa_of(opa, "/nope/token") as client:
        with pytest.raises(Misconfigured, match="/nope/token"):
            await client.policies()
    assert opa.http.requests == []


async def test_only_the_configured_authority_is_trusted(tmp_path: Path) -> None:
    write_certificates(tmp_path, ["127.0.0.1"])
    write_certificates(tmp_path / "other", ["127.0.0.1"])
    opa = FakeOpa()
    opa.http.tls = server_context(str(tmp_path / "tls.crt"), str(tmp_path / "tls.key"))
    async with served(opa, opa.http):
        trusting = Opa(url=opa.http.url + "/", ca_file=str(tmp_path / "ca.crt"))
        async with opa_client(trusting) as client:
            assert await client.policies() == []
        async with opa_client(Opa(url=opa.http.url, ca_file=str(tmp_path / "other/ca.crt"))) as c:
            with pytest.raises(Retriable, match="its certificate is not accepted"):
                await c.policies()


async def test_ensured_data_leaves_what_is_there(opa: FakeOpa, client: OpaClient) -> None:
    opa.data = {"shop": {"theirs": 1, "limits": 2}}
    await client.ensure_data(("shop", "limits"))
    await client.ensure_data(("shop", "new"))
    await client.ensure_data(("other", "new"))
    assert opa.data == {"shop": {"theirs": 1, "limits": 2, "new": {}}, "other": {"new": {}}}


async def test_ensured_data_below_what_is_no_object_is_not_found(
    opa: FakeOpa, client: OpaClient
) -> None:
    opa.data = {"shop": 1}
    with pytest.raises(NotFound):
        await client.ensure_data(("shop", "limits"))


async def test_not_modified_is_an_answer_to_nothing_else(opa: FakeOpa, client: OpaClient) -> None:
    opa.http.fault(anything, answer(304))
    with pytest.raises(Retriable):
        await client.put_data(("a",), b"{}")


def test_of_two_values_of_a_rule_places_are_told_and_no_value() -> None:
    said = (
        'rule data.p.x produced conflicting values:\n  "at /a:1\\n at /b:2" at /p/m.rego:3\n'
        '  {"a": "s3cr3t"} at /p/m.rego:5'
    )
    cause = {"code": "eval_conflict_error", "message": said, "location": {"file": "m", "row": 5}}
    error = OpaError("internal_error", "error(s) occurred", [cause, "odd"])
    assert str(error) == (
        "m:5: rule data.p.x produced conflicting values:\n  at /p/m.rego:3\n  at /p/m.rego:5"
    )
    assert error.errors[1] == "odd"
    body = msgspec.json.encode({"code": "internal_error", "errors": [cause]})
    assert "s3cr3t" not in str(msgspec.json.decode(body, type=OpaError))
