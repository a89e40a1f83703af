"""Decisions on pods: of a large world of policies and bindings, beside those of a small one.

One OPA on `rego/kube_sync`, over HTTP on one connection. Runs over the two worlds take turns, and
each figure is the median of its runs; the floor is the same request where no policy exists.
"""

from __future__ import annotations

import http.client
import json
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tools.servers.processes import ProcessLauncher
from tools.servers.running import ServerSpec, free_port, launch_on_free_port

_REGO = Path(__file__).resolve().parents[1] / "rego/kube_sync"
_GROUP = "policy.kube-sync.io"
_RBAC = "rbac.authorization.k8s.io"
_TEAM = "team-a"
_ASKED = 50  # decisions in a run


@dataclass(frozen=True, slots=True)
class Size:
    """How much there is to look through; every second binding is of the pod's namespace."""

    policies: int
    bindings: int
    usable: int


NOTHING = Size(0, 0, 0)
SMALL = Size(5, 20, 5)
LARGE = Size(200, 2000, 50)


def measure_scheduling(runs: int) -> dict[str, float]:
    """Return the milliseconds of a decision in each world, and what large is to small."""
    taken: dict[Size, list[float]] = {NOTHING: [], SMALL: [], LARGE: []}
    with _opa() as connection:
        for _ in range(runs):
            for size, found in taken.items():
                _put(connection, world_of(size))
                found.append(_decisions(connection, size))
    nothing, small, large = (statistics.median(taken[size]) for size in (NOTHING, SMALL, LARGE))
    pairs = zip(taken[SMALL], taken[LARGE], strict=True)
    return {
        "scheduling, no policy at all (ms)": nothing * 1e3,
        f"scheduling, {_told(SMALL)} (ms)": small * 1e3,
        f"scheduling, {_told(LARGE)} (ms)": large * 1e3,
        "scheduling, ratio": statistics.median(large / small for small, large in pairs),
    }


def world_of(size: Size) -> dict[str, Any]:
    """Return data.kubernetes with so many policies, bindings, and a role for each binding."""
    world: dict[str, Any] = {
        "schedulingpolicies": {_name(n): _policy(n) for n in range(size.policies)},
        "clusterroles": {_name(n): _role(n % size.policies) for n in range(size.bindings)},
        "clusterrolebindings": {},
        "rolebindings": {_TEAM: {}},
    }
    for n in range(size.bindings):
        place = world["rolebindings"][_TEAM] if n % 2 else world["clusterrolebindings"]
        place[_name(n)] = _binding(n, usable=n < size.usable)
    return world


def _told(size: Size) -> str:
    return f"{size.policies} policies, {size.bindings} bindings"


def _name(number: int) -> str:
    return f"p-{number:04d}"


def _policy(number: int) -> dict[str, Any]:
    expression = {"keys": [f"zone-{number}"], "operators": ["In"], "values": ["a", "b"]}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    hard = {"requiredDuringSchedulingIgnoredDuringExecution": terms}
    toleration = {"keys": [f"k-{number}"], "operators": ["Exists"], "effects": ["NoSchedule"]}
    allowed = {
        "schedulerNames": ["default-scheduler", f"scheduler-{number}"],
        "nodeSelectors": {"disk": ["ssd", f"disk-{number}"]},
        "tolerations": [toleration],
        "affinities": {"nodeAffinities": hard},
    }
    spec = {"allowed": allowed, "default": {"nodeSelector": {"kubernetes.io/arch": "amd64"}}}
    return {"metadata": {"name": _name(number)}, "spec": spec}


def _role(policy: int) -> dict[str, Any]:
    rule = {"apiGroups": [_GROUP], "resources": ["schedulingpolicies"], "verbs": ["use"]}
    return {"rules": [rule | {"resourceNames": [_name(policy)]}]}


def _binding(number: int, *, usable: bool) -> dict[str, Any]:
    group = f"system:serviceaccounts:{_TEAM}" if usable else f"team-{number}"
    subjects = [
        {"apiGroup": _RBAC, "kind": "Group", "name": group},
        {"kind": "ServiceAccount", "name": f"robot-{number}", "namespace": "elsewhere"},
    ]
    role = {"apiGroup": _RBAC, "kind": "ClusterRole", "name": _name(number)}
    return {"metadata": {"name": _name(number)}, "roleRef": role, "subjects": subjects}


def _request() -> dict[str, Any]:
    toleration = {"key": "k-1", "operator": "Exists", "effect": "NoSchedule"}
    spec = {"nodeSelector": {"disk": "ssd"}, "tolerations": [toleration], "containers": []}
    metadata = {"name": "pod", "namespace": _TEAM}
    return {
        "uid": "1",
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "operation": "CREATE",
        "namespace": _TEAM,
        "userInfo": {"username": "alice", "groups": ["system:authenticated"]},
        "object": {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec},
    }


@contextmanager
def _opa() -> Iterator[http.client.HTTPConnection]:
    folder = Path(tempfile.mkdtemp(prefix="kube-sync-bench-"))
    server = launch_on_free_port(ProcessLauncher(), lambda: _spec(folder, free_port()))
    connection = http.client.HTTPConnection(urlsplit(server.url).netloc, timeout=60)
    yield connection
    connection.close()
    server.stop()
    shutil.rmtree(folder)


def _spec(folder: Path, port: int) -> ServerSpec:
    address = f"--addr=127.0.0.1:{port}"
    quiet = ("--log-level=error", "--skip-version-check")
    return ServerSpec(
        name="opa",
        program="opa",
        arguments=("run", "--server", address, *quiet, str(_REGO)),
        folder=folder,
        url=f"http://127.0.0.1:{port}",
        ready_paths=("/health",),
    )


def _put(connection: http.client.HTTPConnection, world: dict[str, Any]) -> None:
    _ask(connection, "PUT", "kubernetes", world)


def _decisions(connection: http.client.HTTPConnection, size: Size) -> float:
    asked = {"input": _request()}
    taken = []
    for _ in range(_ASKED):
        begun = time.perf_counter()
        answer = _ask(connection, "POST", "kube_sync/scheduling/decision", asked)["result"]
        taken.append(time.perf_counter() - begun)
        if (answer["allowed"], len(answer["policies"])) != (size.usable > 0, size.usable):
            msg = f"not the decision that was to be measured: {answer}"
            raise RuntimeError(msg)
    return statistics.median(taken)


def _ask(connection: http.client.HTTPConnection, method: str, path: str, body: Any) -> Any:
    connection.request(method, f"/v1/data/{path}", json.dumps(body))
    content = connection.getresponse().read()
    return json.loads(content) if content else None
