from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kube_sync.errors import Retriable
from kube_sync.kube.pods import PODS, ContentKey, list_pods
from tests.fakes.apiserver import fake_apiserver
from tests.fakes.clients import key, kube_of
from tests.fakes.http import answer

_LABELS = {"app": "x"}
_PROJECTED = [
    {"serviceAccountToken": {"path": "account"}},
    {"configMap": {"name": "ca", "items": [{"key": "root", "path": "ca.crt"}]}},
    {"secret": {"name": "all"}},
]
_SPEC = {
    "volumes": [
        {"name": "config", "configMap": {"name": "settings"}},
        {"name": "token", "secret": {"secretName": "s", "items": [{"key": "t", "path": "token"}]}},
        {"name": "many", "projected": {"sources": _PROJECTED}},
        {"name": "scratch", "emptyDir": {}},
    ],
    "containers": [
        {
            "name": "main",
            "args": ["replicate", "--wait", "--config=/etc/x/config.yaml"],
            "volumeMounts": [
                {"name": "config", "mountPath": "/etc/x"},
                {"name": "token", "mountPath": "/run/token"},
                {"name": "many", "mountPath": "/run/many"},
                {"name": "scratch", "mountPath": "/run"},
                {"name": "config", "mountPath": "/one.yaml", "subPath": "config.yaml"},
            ],
        }
    ],
}


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("/etc/x/config.yaml", ContentKey("configmaps", "settings", "config.yaml")),
        ("/one.yaml", ContentKey("configmaps", "settings", "config.yaml")),
        ("/run/token/token", ContentKey("secrets", "s", "t")),
        ("/run/token/t", None),  # the key has another name as a file
        ("/run/many/ca.crt", ContentKey("configmaps", "ca", "root")),
        ("/run/many/x", ContentKey("secrets", "all", "x")),
        ("/run/scratch", None),
        ("/elsewhere", None),
    ],
)
async def test_a_file_is_traced_to_the_object_that_it_comes_from(
    tmp_path: Path, path: str, found: ContentKey | None
) -> None:
    (pod,) = await _listed(tmp_path, web={"spec": _SPEC})
    assert pod.content_of(pod.containers[0], path) == found


async def test_an_option_is_found_in_either_form(tmp_path: Path) -> None:
    spaced = {"containers": [{"name": "a", "command": ["x", "--config", "f"], "args": ["--last"]}]}
    first, second = await _listed(tmp_path, a={"spec": _SPEC}, b={"spec": spaced})
    assert first.containers[0].option("--config") == "/etc/x/config.yaml"
    assert second.containers[0].option("--config") == "f"
    assert second.containers[0].option("--last") is None
    assert second.containers[0].option("--none") is None


async def test_pods_that_go_or_have_ended_are_left_out(tmp_path: Path) -> None:
    ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    found = await _listed(
        tmp_path,
        ended={"status": {"phase": "Succeeded"}},
        going={"metadata": {"deletionTimestamp": "2026-11-27T00:00:00Z"}},
        ready={"status": ready},
        starting={"status": {"phase": "Pending", "conditions": []}},
    )
    assert [(pod.key.name, pod.ready) for pod in found] == [("ready", True), ("starting", False)]


async def test_an_answer_that_is_no_list_is_tried_again(tmp_path: Path) -> None:
    async with fake_apiserver() as api, kube_of(api, tmp_path) as client:
        api.http.fault(lambda _: True, answer(200, b"{}"))
        with pytest.raises(Retriable, match="no list of pods"):
            await list_pods(client, None, "app=x")


async def _listed(folder: Path, **pods: dict[str, Any]) -> Any:
    async with fake_apiserver() as api, kube_of(api, folder) as client:
        api.define(PODS, "Pod")
        for name, content in pods.items():
            metadata = {"labels": _LABELS, **content.pop("metadata", {})}
            api.put(PODS, key(name), metadata=metadata, **{"spec": {}, **content})
        return await list_pods(client, None, "app=x")
