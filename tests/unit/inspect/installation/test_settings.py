from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest

from kube_sync.config import Settings
from kube_sync.errors import Misconfigured, NotFound, Refused, Retriable
from kube_sync.inspect.installation.finding import find_pods, find_running
from kube_sync.inspect.installation.settings import read_key, read_settings
from kube_sync.kube.pods import ContentKey
from tests.fakes.apiserver import FakeApiServer, fake_apiserver
from tests.fakes.clients import CONFIGMAPS, SECRETS, key, kube_of
from tests.fakes.http import answer, failing
from tests.fakes.installations import HOME, define, put_pod

ENV = [
    {"name": "KUBE_SYNC_REMEDIATE_MODE", "value": "dry-run"},
    {"name": "KUBE_SYNC_OPA_TOKEN_FILE", "valueFrom": {"fieldRef": {"fieldPath": "x"}}},
    {"name": "OTHER", "value": "x"},
]


async def read(api: FakeApiServer, folder: Path, **environment: str) -> Settings:
    async with kube_of(api, folder) as client:
        pods = await find_pods(client, None, {})
        running = await find_running(client, pods, "replicate")
        return await read_settings(client, running, environment)


async def test_file_and_variables_of_the_container_are_read(tmp_path: Path) -> None:
    async with fake_apiserver() as api:
        define(api)
        api.put(CONFIGMAPS, key("more", HOME), data={"PLACEMENT_PATH": "a/b", "x": "y"})
        source = [{"prefix": "KUBE_SYNC_", "configMapRef": {"name": "more"}}, {"secretRef": {}}]
        put_pod(api, "a", "replicate", env=ENV, envFrom=source)
        found = await read(api, tmp_path)
    assert found.decisions.token_file == "/run/decisions/token"
    assert (found.remediate.mode, found.placement.path) == ("dry-run", "a/b")
    assert found.opa.token_file is None


async def test_what_the_callers_machine_has_is_the_callers(tmp_path: Path) -> None:
    async with fake_apiserver() as api:
        define(api)
        put_pod(api, "a", "replicate", env=ENV)
        found = await read(api, tmp_path)
        assert (found.opa.binary, found.kubernetes.kubeconfig) == ("opa", None)
        found = await read(
            api,
            tmp_path,
            KUBE_SYNC_OPA_BINARY="/my/opa",
            KUBE_SYNC_KUBERNETES_KUBECONFIG="mine",
            KUBE_SYNC_KUBERNETES_CONTEXT="c",
            KUBE_SYNC_REMEDIATE_MODE="off",
        )
    assert found.opa.binary == "/my/opa"
    assert (found.kubernetes.kubeconfig, found.kubernetes.context) == ("mine", "c")
    assert found.remediate.mode == "off"


async def test_a_container_without_a_file_has_the_defaults(tmp_path: Path) -> None:
    async with fake_apiserver() as api:
        define(api)
        put_pod(api, "a", "replicate", args=["replicate"])
        assert await read(api, tmp_path) == Settings()


@pytest.mark.parametrize(
    ("fields", "error", "said"),
    [
        ({"volumeMounts": []}, NotFound, "config.yaml is in no ConfigMap; name a copy by --config"),
        ({"envFrom": [{"configMapRef": {"name": "gone"}}]}, NotFound, "404"),
    ],
)
async def test_a_configuration_that_cannot_be_had_is_named(
    tmp_path: Path, fields: dict[str, Any], error: type[Exception], said: str
) -> None:
    async with fake_apiserver() as api:
        define(api)
        put_pod(api, "a", "replicate", **fields)
        with pytest.raises(error, match=said):
            await read(api, tmp_path)


async def test_a_configuration_that_is_wrong_is_named_with_its_object(tmp_path: Path) -> None:
    async with fake_apiserver() as api:
        define(api)
        put_pod(api, "a", "replicate")
        api.put(CONFIGMAPS, key("settings", HOME), data={"config.yaml": "opa: {urll: x}"})
        with pytest.raises(Misconfigured, match=r"opa.urll.*ConfigMap kube-sync/settings, key"):
            await read(api, tmp_path)


async def test_a_key_is_read_as_text_or_its_object_is_named(tmp_path: Path) -> None:
    async with fake_apiserver() as api, kube_of(api, tmp_path) as client:
        define(api)
        put_pod(api, "a", "replicate")
        running = await find_running(client, await find_pods(client, None, {}), "replicate")
        stream = ContentKey("secrets", "stream", "t")
        assert await read_key(client, running, stream) == "s3cret\n"
        with pytest.raises(NotFound, match="Secret kube-sync/stream, key x is not there"):
            await read_key(client, running, ContentKey("secrets", "stream", "x"))
        api.put(SECRETS, key("stream", HOME), data={"t": base64.b64encode(b"\xff").decode()})
        with pytest.raises(Misconfigured, match="is not text"):
            await read_key(client, running, stream)
        api.http.fault(lambda _: True, failing(403, "not you"))
        with pytest.raises(Refused, match="Secret kube-sync/stream: 403 not you"):
            await read_key(client, running, stream)
        api.http.fault(lambda _: True, answer(200, b"[]"))
        with pytest.raises(Retriable, match="what answers is none"):
            await read_key(client, running, stream)
