"""`kubectl kube-sync` in this process, against a fake API server with an installation."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
import yaml

from kube_sync.config import CONFIG_ENV, fields
from kube_sync.decisions.decision import Decision
from kube_sync.decisions.records import DecisionRecord, Target
from tests.commandline import Finished, kube_sync
from tests.fakes.apiserver import FakeApiServer, fake_apiserver
from tests.fakes.clients import CONFIGMAPS, key
from tests.fakes.decisionstream import FakeDecisionStream
from tests.fakes.http import answer, failing, served
from tests.fakes.installations import (
    CONFIG,
    HOME,
    closed_port,
    define,
    forwarding,
    forwards,
    put_pod,
)

PLAIN = CONFIG.replace("https://replicator.kube-sync", "http://127.0.0.1")


@pytest.fixture
async def api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[FakeApiServer]:
    for variable in (CONFIG_ENV, *(field.variable for field in fields())):
        monkeypatch.delenv(variable, raising=False)
    async with fake_apiserver() as api:
        kubeconfig = api.kubeconfig(tmp_path / "kubeconfig")
        monkeypatch.setenv("KUBE_SYNC_KUBERNETES_KUBECONFIG", kubeconfig)
        define(api)
        api.put(CONFIGMAPS, key("settings", HOME), data={"config.yaml": PLAIN})
        put_pod(api, "sync-0", "replicate", "remediate")
        yield api


async def plugin(*arguments: str) -> Finished:
    return await asyncio.to_thread(kube_sync, *arguments, plugin=True)


@pytest.mark.parametrize(
    "command", ["replicate", "remediate", "admit", "policy-sync", "topology --live"]
)
async def test_a_service_is_not_started_with_the_configuration_of_an_installation(
    api: FakeApiServer, command: str
) -> None:
    finished = await plugin(*command.split())
    assert (finished.returncode, finished.stdout) == (64, "")
    assert "name its file by --config" in finished.stderr
    named = await asyncio.to_thread(kube_sync, *command.split(), "--installation", HOME)
    assert named.returncode == 64
    assert api.http.requests == []


@pytest.mark.usefixtures("api")
async def test_configuration_is_that_of_the_installation() -> None:
    found = yaml.safe_load((await plugin("config")).stdout)
    assert found["decisions"]["token_file"] == "/run/decisions/token"
    assert found["opa"]["binary"] == "opa"


@pytest.mark.usefixtures("api")
async def test_a_file_that_is_named_is_used_instead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "own.yaml"
    file.write_text("placement: {path: own}", encoding="utf-8")
    named = await plugin("config", "--config", str(file))
    monkeypatch.setenv(CONFIG_ENV, str(file))
    by_variable = await plugin("config")
    found = [yaml.safe_load(one.stdout)["placement"]["path"] for one in (named, by_variable)]
    assert found == ["own", "own"]


async def test_kube_sync_asks_the_cluster_only_where_an_installation_is_named(
    api: FakeApiServer,
) -> None:
    alone = await asyncio.to_thread(kube_sync, "config")
    assert yaml.safe_load(alone.stdout)["decisions"]["token_file"] is None
    assert api.http.requests == []
    named = await asyncio.to_thread(kube_sync, "config", "--installation", HOME)
    assert yaml.safe_load(named.stdout)["decisions"]["token_file"] == "/run/decisions/token"
    both = await asyncio.to_thread(kube_sync, "config", "--installation", HOME, "--config", "x")
    assert both.returncode == 64
    assert "--installation: not together with --config" in both.stderr


async def test_decisions_come_through_the_api_server(api: FakeApiServer) -> None:
    stream = FakeDecisionStream()
    target = Target("apps", "v1", "replicasets", "web", "shop")
    stream.say(DecisionRecord(target, "uid", Decision(annotations={"a": "b"}), 1, "load", "ab12"))
    async with served(stream, stream.http):
        port = int(stream.http.url.rpartition(":")[2])
        api.http.fault(forwards("sync-0"), forwarding(port))
        finished = await plugin("decisions", "rs", "web", "-n", "shop", "-o", "name")
        assert (finished.returncode, finished.stdout) == (0, "replicasets.apps/web\n")
        assert stream.http.requests[0].headers["Authorization"] == "Bearer s3cret"


async def test_a_port_that_nobody_listens_on_is_the_reason(api: FakeApiServer) -> None:
    api.http.fault(forwards("sync-0"), closed_port(), times=9)
    finished = await plugin("decisions")
    assert finished.returncode == 1
    assert "port 9400 of pod kube-sync/sync-0: connection refused" in finished.stderr
    assert "not ready" not in finished.stderr
    waiting = {"phase": "Pending"}
    put_pod(api, "sync-0", "replicate", "remediate", status=waiting)
    finished = await plugin("decisions")
    assert "is not ready: `kubectl describe pod -n kube-sync sync-0`" in finished.stderr


async def test_a_remediator_is_asked_at_its_own_port(api: FakeApiServer) -> None:
    api.http.fault(forwards("sync-0"), closed_port(), times=9)
    finished = await plugin("remediate", "status")
    assert "port 9404 of pod kube-sync/sync-0: connection refused" in finished.stderr


async def test_a_url_that_is_named_is_asked_with_the_token_of_the_pod(api: FakeApiServer) -> None:
    stream = FakeDecisionStream()
    async with served(stream, stream.http):
        await plugin("decisions", "--url", stream.http.url)
        assert stream.http.requests[0].headers["Authorization"] == "Bearer s3cret"
    assert not [one for one in api.http.requests if "portforward" in one.path]


@pytest.mark.parametrize("command", [["history"], ["verify"], ["replay"]])
async def test_a_ledger_in_the_pod_is_asked_for_there(
    api: FakeApiServer, command: list[str]
) -> None:
    env = [{"name": "KUBE_SYNC_LEDGER_PATH", "value": "/var/lib/kube-sync/ledger.db"}]
    put_pod(api, "sync-0", "replicate", env=env)
    finished = await plugin(*command)
    assert finished.returncode == 64
    assert (
        "kubectl exec -n kube-sync deploy/kube-sync -c replicator -- kube-sync" in finished.stderr
    )


@pytest.mark.parametrize(
    "command", [["topology", "-f", "x"], ["test", "."], ["plan", "--from", "x", "-f", "y"]]
)
async def test_a_command_about_files_asks_no_cluster(
    api: FakeApiServer, command: list[str]
) -> None:
    await plugin(*command)
    assert api.http.requests == []


async def test_an_installation_that_may_not_be_seen_is_named(api: FakeApiServer) -> None:
    api.http.fault(lambda _: True, failing(403, "no pods for you"), times=2)
    finished = await plugin("decisions")
    assert (finished.returncode, finished.stdout) == (1, "")
    error, rights = finished.stderr.splitlines()
    assert "403 no pods for you" in error
    assert "docs/kubectl.md" in rights


async def test_versions_of_what_does_not_answer_leave_the_others(api: FakeApiServer) -> None:
    api.http.fault(lambda one: one.path == "/version", answer(200, b'{"gitVersion": "v1.36.0"}'))
    api.http.fault(forwards("sync-0"), failing(403, "no"), times=9)
    finished = await plugin("version", "-o", "json")
    found = json.loads(finished.stdout)
    assert (finished.returncode, found["kubernetes"]) == (0, {"version": "v1.36.0"})
    assert "pod kube-sync/sync-0: 403" in found["server"]["error"]


async def test_versions_of_the_client_ask_nobody(api: FakeApiServer) -> None:
    finished = await plugin("version", "--client", "-o", "yaml")
    assert list(yaml.safe_load(finished.stdout)) == ["client"]
    assert api.http.requests == []
    assert (await plugin("version", "--client")).stdout.startswith("Client Version: ")


def test_help_names_the_plugin() -> None:
    assert "usage: kubectl kube-sync why" in kube_sync("why", "--help", plugin=True).stdout
    assert "usage: kube-sync why" in kube_sync("why", "--help").stdout
