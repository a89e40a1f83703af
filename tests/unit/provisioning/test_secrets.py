from __future__ import annotations

import json

import pytest

from kube_sync.errors import Terminal
from kube_sync.kube.meta import ObjectMeta
from kube_sync.objects import ObjectKey
from kube_sync.provisioning.secrets import SINCE, Content, read_secret, written


def test_what_is_written_is_read_again() -> None:
    content = Content({"token": b"\x00\xffbytes"}, "Opaque", 17.0)
    before = ObjectMeta(labels={"a": "0", "theirs": "x"})
    secret = written(ObjectKey("kube-sync", "s"), content, before, {"a": "b"})
    secret["metadata"]["resourceVersion"] = "7"
    found, metadata = read_secret("s", json.dumps(secret).encode())
    assert (found, metadata.resource_version) == (content, "7")
    assert {"a": "b", "theirs": "x"}.items() <= (metadata.labels or {}).items()


def test_a_secret_without_our_mark_is_not_ours() -> None:
    body = b'{"metadata": {"resourceVersion": "3"}, "data": {"token": "YQ=="}}'
    assert read_secret("s", body) == (Content({"token": b"a"}), ObjectMeta(resource_version="3"))


def test_a_mark_that_says_no_time_is_as_old_as_can_be() -> None:
    body = json.dumps({"metadata": {"annotations": {SINCE: "yesterday"}}}).encode()
    assert read_secret("s", body)[0].since == 0.0


@pytest.mark.parametrize(
    "body",
    [b"", b"[]", b'{"data": {}}', b'{"metadata": {}, "data": {"token": "sekret"}}'],
)
def test_what_is_no_secret_is_named_and_not_quoted(body: bytes) -> None:
    with pytest.raises(Terminal, match=r"^Secret s is not to be read as one$") as raised:
        read_secret("s", body)
    assert raised.value.__cause__ is None


def test_no_content_is_printed() -> None:
    assert "sekret" not in repr(Content({"token": b"sekret"}))
