from __future__ import annotations

import base64
import json
from typing import Any

import pytest
import yaml

from kube_sync.certificates import make_authority
from kube_sync.errors import Misconfigured
from kube_sync.kube.collection import Event, Item, ResourceVersion
from kube_sync.kube.inline import InlineCredentials
from kube_sync.objects import ObjectKey
from kube_sync.policysync.spoke_secrets import SpokeSecrets

VERSION = ResourceVersion("1")


def secret(name: str, **content: Any) -> Item:
    body = {"metadata": {"name": name, "namespace": "spokes"}, **content}
    return Item(ObjectKey("spokes", name), "u", VERSION, json.dumps(body).encode())


def kubeconfig(authority: bytes | None = None) -> str:
    pem = base64.b64encode(authority or make_authority("spoke").cert_pem).decode()
    cluster = {"server": "https://east:6443", "certificate-authority-data": pem}
    document = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
        "clusters": [{"name": "k", "cluster": cluster}],
        "users": [{"name": "u", "user": {"token": "t"}}],
    }
    return base64.b64encode(yaml.safe_dump(document).encode()).decode()


@pytest.fixture
def changes() -> list[str]:
    return []


@pytest.fixture
def secrets(changes: list[str]) -> SpokeSecrets:
    return SpokeSecrets(lambda: changes.append("changed"))


async def test_a_secret_is_a_spoke_by_its_name(secrets: SpokeSecrets, changes: list[str]) -> None:
    assert not secrets.listed
    await secrets.page([secret("east", type="Opaque", data={"kubeconfig": kubeconfig()})])
    assert secrets.spokes == {}
    secrets.finish(known=True)
    found = secrets.spokes["east"]
    assert isinstance(found, InlineCredentials)
    assert found.server == "https://east:6443"
    assert secrets.listed
    assert changes == ["changed"]


@pytest.mark.parametrize(
    "content",
    [
        {"type": "kubernetes.io/tls", "data": {"kubeconfig": "YQ=="}},
        {"data": {"other": "YQ=="}},
        {"data": None},
        {"data": {"kubeconfig": 7}},
        {"data": {"kubeconfig": "?"}},
        {},
    ],
)
def test_a_secret_of_another_shape_is_told_without_its_content(
    secrets: SpokeSecrets, content: dict[str, Any]
) -> None:
    secrets.apply(Event("ADDED", VERSION, secret("east", **content)))
    found = secrets.spokes["east"]
    assert isinstance(found, Misconfigured)
    assert str(found) == "Secret spokes/east is not of type Opaque with the key kubeconfig"
    assert found.__suppress_context__ or found.__context__ is None


@pytest.mark.parametrize("content", [b"[", b"7"])
def test_a_secret_that_is_no_object_is_told(secrets: SpokeSecrets, content: bytes) -> None:
    found = Item(ObjectKey("spokes", "east"), "u", VERSION, content)
    secrets.apply(Event("ADDED", VERSION, found))
    assert isinstance(secrets.spokes["east"], Misconfigured)


def test_an_authority_that_cannot_be_read_is_told_before_it_is_needed(
    secrets: SpokeSecrets,
) -> None:
    data = {"kubeconfig": kubeconfig(b"no PEM")}
    secrets.apply(Event("ADDED", VERSION, secret("east", data=data)))
    assert isinstance(secrets.spokes["east"], Misconfigured)


async def test_spokes_go_with_their_secrets_and_not_with_a_list_that_fails(
    secrets: SpokeSecrets, changes: list[str]
) -> None:
    one = secret("east", data={"kubeconfig": kubeconfig()})
    secrets.apply(Event("ADDED", VERSION, one))
    secrets.apply(Event("BOOKMARK", VERSION))
    secrets.finish(known=False)
    assert not secrets.listed
    await secrets.page([])
    secrets.abandon()
    assert list(secrets.spokes) == ["east"]
    assert changes == ["changed"]
    secrets.apply(Event("DELETED", VERSION, one))
    assert secrets.spokes == {}
