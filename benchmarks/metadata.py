"""One object against many MetadataPolicies of its namespace, beside few, with as many elsewhere.

Over HTTP on a plain OPA that holds all of them; both questions take turns in one run, over one
connection, so that what else the machine does weighs on both alike.
"""

from __future__ import annotations

import http.client
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.world import medians
from tests.fakes.rego import RegoOpa, rego_opa
from tools.servers.processes import ProcessLauncher

MANY, FEW, ELSEWHERE = 500, 5, 50_000
_IN_EACH = 500  # policies in each of the other namespaces
_TURNS = 200
_ENTRIES = {  # and how many policies have a say: at the end one that rejects, and none does
    "policies": ("/v1/data/kube_sync/metadata/decision", 1),
    "with QoS": ("/v1/data/kube_sync/metadata/pipeline", 1),
    "at the end": ("/v1/data/kube_sync/metadata/checked", 0),
}


def measure_metadata(runs: int) -> dict[str, float]:
    """Measure the decision alone and the one with the quality of service, so many times."""
    found: dict[str, float] = {}
    with (
        tempfile.TemporaryDirectory() as folder,
        rego_opa(ProcessLauncher(), Path(folder) / "opa") as opa,
    ):
        opa.put("data/kubernetes/metadatapolicies", _stored())
        for name, (path, policies) in _ENTRIES.items():
            figures = medians([_run(opa, path, policies) for _ in range(runs)])
            found |= {f"metadata, {name}, {what}": value for what, value in figures.items()}
    return found


def _run(opa: RegoOpa, path: str, policies: int) -> dict[str, float]:
    few, many = [], []
    for _ in range(_TURNS):
        few.append(_seconds(opa.connection, path, "few", policies))
        many.append(_seconds(opa.connection, path, "many", policies))
    low, high = statistics.median(few), statistics.median(many)
    return {
        f"{FEW} policies (ms)": low * 1e3,
        f"{MANY} policies (ms)": high * 1e3,
        "ratio": high / low,
    }


def _seconds(
    connection: http.client.HTTPConnection, path: str, namespace: str, policies: int
) -> float:
    body = json.dumps({"input": _request(namespace)})
    begun = time.perf_counter()
    connection.request("POST", path, body)
    answer = json.loads(connection.getresponse().read())
    took = time.perf_counter() - begun
    if len(answer["result"]["policies"]) != policies:
        raise AssertionError(answer)
    return took


def _stored() -> dict[str, dict[str, Any]]:
    namespaces = {"few": FEW, "many": MANY}
    namespaces |= {f"other-{n}": _IN_EACH for n in range(ELSEWHERE // _IN_EACH)}
    return {
        namespace: {f"policy-{i:03}": _policy(namespace, i) for i in range(count)}
        for namespace, count in namespaces.items()
    }


def _policy(namespace: str, index: int) -> dict[str, Any]:
    rule = {
        "policyPredicate": {"labelSelector": {"matchLabels": {"app": f"web-{index}"}}},
        "policyAction": {"reject": False, "updatedLabels": {f"example.com/rule-{index}": "yes"}},
    }
    metadata = {"name": f"policy-{index:03}", "namespace": namespace, "generation": 1}
    return {"metadata": metadata, "spec": {"rules": [rule]}}


def _request(namespace: str) -> dict[str, Any]:
    amounts = {"cpu": "100m", "memory": "128Mi"}
    container = {"name": "c", "image": "i", "resources": {"limits": amounts}}
    metadata = {"name": "p", "namespace": namespace, "labels": {"app": "web-3", "tier": "front"}}
    return {
        "operation": "CREATE",
        "namespace": namespace,
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "object": {"metadata": metadata, "spec": {"containers": [container]}},
    }
