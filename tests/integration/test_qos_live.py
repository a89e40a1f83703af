"""The annotation beside what the API server itself says of the same pods (`status.qosClass`)."""

from __future__ import annotations

import http.client
import json
import ssl
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from typing import Any
from urllib.parse import urlsplit

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fakes.rego import RegoOpa, rego_opa
from tests.metadata.pods import pod
from tests.parts import examples
from tools.servers.running import Launcher
from tools.servers.stack import RunningStack

QOS = "scheduler.alpha.kubernetes.io/qos"
CLASSES = ("Guaranteed", "Burstable", "BestEffort")
_OF_EACH = 200


@pytest.fixture(scope="module")
def opa(launcher: Launcher, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RegoOpa]:
    with rego_opa(launcher, tmp_path_factory.mktemp("opa")) as opa:
        yield opa


class Pods:
    """The pods of a namespace, over one connection."""

    def __init__(self, stack: RunningStack, namespace: str) -> None:
        where = urlsplit(stack.apiserver_url)
        tls = ssl.create_default_context(cafile=stack.apiserver_ca_file)
        self.connection = http.client.HTTPSConnection(where.hostname or "", where.port, context=tls)
        self.token = stack.kube_tokens["admin"]
        self.path = f"/api/v1/namespaces/{namespace}/pods"

    def create(self, manifest: dict[str, Any], *, dry_run: bool = False) -> dict[str, Any] | None:
        """Return the pod as it is stored, None for one that the API server refuses."""
        query = "?dryRun=All" if dry_run else ""
        status, answer = self._ask("POST", query, json.dumps(manifest))
        assert status in (201, 400, 422), answer
        return answer if status == 201 else None

    def delete_all(self) -> None:
        """Remove them all at once."""
        status, answer = self._ask("DELETE", "?gracePeriodSeconds=0")
        assert status == 200, answer

    def _ask(self, method: str, query: str, body: str = "") -> tuple[int, dict[str, Any]]:
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        self.connection.request(method, self.path + query, body, headers)
        with self.connection.getresponse() as response:
            return response.status, json.loads(response.read())


@pytest.fixture
def pods(stack: RunningStack, namespace: str) -> Iterator[Pods]:
    found = Pods(stack, namespace)
    with closing(found.connection):
        yield found
        found.delete_all()


def request(manifest: dict[str, Any]) -> dict[str, Any]:
    return {"operation": "CREATE", "namespace": "a", "object": manifest}


def annotated(answer: dict[str, Any]) -> str:
    assert answer["allowed"], answer["reasons"]
    (operation,) = answer["patch"]
    value = operation["value"]
    return str(value[QOS] if isinstance(value, dict) else value)


def test_annotation_is_the_class_that_the_api_server_gives(opa: RegoOpa, pods: Pods) -> None:
    """Of pods as their author sends them, and as a webhook sees them, with defaults filled in."""
    manifests = [pod(seed, kind) for kind in CLASSES for seed in range(_OF_EACH)]
    created = [(sent, got) for sent in manifests if (got := pods.create(sent))]
    sent = [request(manifest) for manifest, _ in created]
    stored = [request(manifest) for _, manifest in created]
    classes = [manifest["status"]["qosClass"] for _, manifest in created]
    for seen in (sent, stored):
        answers = opa.ask_each("kube_sync.qos.decision", seen)
        assert [annotated(answer) for answer in answers] == classes
    counted = Counter(classes)
    assert sum(counted.values()) >= 500
    assert min(counted[name] for name in CLASSES) >= 100, counted


@settings(
    max_examples=examples(150),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(seed=st.integers(0, 2**32), kind=st.sampled_from((*CLASSES, "any")))
def test_no_pod_is_annotated_otherwise(opa: RegoOpa, pods: Pods, seed: int, kind: str) -> None:
    got = pods.create(pod(seed, kind), dry_run=True)
    if got is not None:
        for seen in (pod(seed, kind), got):
            answer = opa.ask("kube_sync.qos.decision", request(seen))
            assert annotated(answer) == got["status"]["qosClass"]


def test_pod_of_more_than_exists_is_refused_with_its_path(opa: RegoOpa) -> None:
    manifest = pod(0, "BestEffort")
    manifest["spec"]["containers"][0]["resources"] = {"limits": {"memory": "1K"}}
    answer = opa.ask("kube_sync.qos.decision", request(manifest))
    assert answer["allowed"] is False
    (reason,) = answer["reasons"]
    assert 'spec.containers[0].resources.limits.memory: "1K" is no quantity' in reason
