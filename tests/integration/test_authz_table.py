"""Who may ask what of a real OPA: method by path by token, with paths and headers bent every way.

What is refused was neither answered nor done: 401, 405, or a redirect, which does nothing by
itself. Odd headers are sent as bytes, since a client library would put right what is wrong.
"""

from __future__ import annotations

import http.client
import json
import socket
import ssl
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tools.servers.http import get
from tools.servers.running import Launcher
from tools.servers.secured_opa import RunningOpa, start_opa

_REFUSED = frozenset((301, 307, 401, 405))
_DECISION = "/v1/data/io/k8s/federation/admission"
_LANE = "/v1/data/kube_sync_stage/shadow/io/k8s/federation/admission"
_ENTRY = "/v1/data/kube_sync_stage/entry/answer"
_REVIEWED = "/v1/data/kube_sync/batch/reviewed"
_LANES_BATCH = "/v1/data/kube_sync_stage/batch/shadow/decisions"
_POLICY = "/v1/policies/team/policies/a.rego"
_DOTS = "/v1/data/kubernetes/%2e%2e/io/k8s/federation/admission"
_METHODS = ("GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE", "get", "TRACE", "BREW")
_READS = frozenset(("GET", "POST"))
_ANYBODY = {path: {"GET"} for path in ("/health", "/health?bundles", "/%68ealth")}
_MAY: dict[str, dict[str, set[str]]] = {
    "nobody": {},
    "a stranger": {},
    "metrics": {path: {"GET"} for path in ("/metrics", "/%6detrics", "/metrics?name=x")},
    "admission": {_DECISION: {"POST"}, _ENTRY: {"POST"}, _REVIEWED: {"POST"}},
    "replicator": {
        "/v1/data": {*_READS, "PATCH"},
        "/v1/data/kubernetes": {*_READS},
        "/v1/data/kubernetes/clusters": {*_READS, "PUT"},
        "/v1/data/system/access": {*_READS},
        _DECISION: {*_READS},
        _LANE: {*_READS},
        _LANES_BATCH: {*_READS},
        _ENTRY: {*_READS},
        _REVIEWED: {*_READS, "PUT"},  # below a root of its own; OPA has a rule there
        f"{_DECISION}/errors": {*_READS},
        "/v1/data/io/k8s%2ffederation/admission": {*_READS},
        _DOTS: {*_READS, "PUT"},  # below its root under a strange name: see the test of it
        "/v1/policies": {"GET"},
        _POLICY: {"GET", "PUT", "DELETE"},
        "/v1/config": {"GET"},
    },
}
_ELSEWHERE = (
    "/",
    "//",
    "/health/",
    "/health/live",
    "/health%2f",
    "/health;x",
    "/Health",
    "/health/../metrics",
    "/health/%2e%2e/metrics",
    "/metrics/",
    "/metrics%00",
    "/..%2fmetrics",
    "/v1/data/",
    f"{_DECISION}/",
    "/v1//data",
    "/V1/data",
    "/v1/DATA",
    "/v1/data/io/k8s//federation/admission",
    "/v1/data/io/k8s/x/../federation/admission",
    "/v1/policies/authz.rego/",
    "/v1/query",
    "/v1/query?q=data",
    "/v1/compile",
    "/v1/compile/io/k8s",
    "/v1/status",
    "/v1/cache",
    "/v0/data",
    "/v0/data/io/k8s/federation/admission",
    "/debug/pprof/",
    "/v1/data/" + "a/" * 5000,
)
_PATHS = sorted({*_ELSEWHERE, *_ANYBODY, *(path for paths in _MAY.values() for path in paths)})


@dataclass(frozen=True)
class Asked:
    """One OPA, and ways to send it anything."""

    opa: RunningOpa

    def token(self, role: str) -> str:
        """Return a role's token, or one that nobody knows."""
        file = self.opa.token_files.get(role)
        return file.read_text(encoding="utf-8") if file else "unknown"

    def connection(self) -> http.client.HTTPSConnection:
        """Return a connection that may be used for many requests."""
        context = ssl.create_default_context(cafile=str(self.opa.ca_file))
        return http.client.HTTPSConnection(self.opa.url[len("https://") :], context=context)

    def status(self, connection: http.client.HTTPSConnection, role: str, what: str) -> int:
        """Ask `METHOD PATH` as a role."""
        method, _, path = what.partition(" ")
        headers = {"Authorization": f"Bearer {self.token(role)}"} if role != "nobody" else {}
        body = "not json" if method in ("PATCH", "DELETE") else "{}"
        connection.request(method, path, body, headers)
        with connection.getresponse() as answer:
            answer.read()
            return answer.status

    def send(self, path: str, *headers: str) -> int:
        """GET a path with the headers as they are; return the status."""
        lines = (f"GET {path} HTTP/1.1", "Host: opa", "Connection: close", *headers, "", "")
        context = ssl.create_default_context(cafile=str(self.opa.ca_file))
        address = ("127.0.0.1", int(self.opa.url.rpartition(":")[2]))
        with (
            socket.create_connection(address, timeout=10) as plain,
            context.wrap_socket(plain, server_hostname="127.0.0.1") as connection,
        ):
            connection.sendall("\r\n".join(lines).encode("latin-1"))
            return int(connection.recv(64).split()[1])


@pytest.fixture(scope="module")
def asked(launcher: Launcher, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asked]:
    opa = start_opa(launcher, tmp_path_factory.mktemp("authz"), by_bundle=False)
    yield Asked(opa)
    opa.server.stop()


@pytest.mark.parametrize("role", _MAY)
def test_role_may_do_what_its_row_says_and_nothing_else(asked: Asked, role: str) -> None:
    may = _ANYBODY | _MAY[role]
    expected = {f"{method} {path}" for path, methods in may.items() for method in methods}
    connection = asked.connection()
    tried = [f"{method} {path}" for path in _PATHS for method in _METHODS]
    done = {what for what in tried if asked.status(connection, role, what) not in _REFUSED}
    connection.close()
    assert done == expected


def test_two_dots_are_a_name_below_the_root_and_lead_nowhere_else(asked: Asked) -> None:
    connection = asked.connection()
    assert asked.status(connection, "replicator", f"PUT {_DOTS}") == 204
    connection.close()
    token = asked.token("replicator")
    at = {
        path: json.loads(get(asked.opa.url + path, ca_file=asked.opa.ca_file, token=token).body)
        for path in ("/v1/data/io", "/v1/data/kubernetes")
    }
    assert at["/v1/data/io"] == {}
    assert ".." in at["/v1/data/kubernetes"]["result"]


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        (["Authorization: Bearer {}"], 200),
        (["Authorization: Bearer {} "], 200),
        (["authorization: Bearer {}"], 200),
        # Of two headers the first counts, so that nothing is gained by adding one.
        (["Authorization: Bearer {}", "Authorization: Bearer x"], 200),
        (["Authorization: Bearer x", "Authorization: Bearer {}"], 401),
        (["Authorization: Bearer {}x"], 401),
        (["Authorization: Bearer {}\r\n x"], 401),
        (["Authorization: Bearer {}\tx"], 401),
        (["Authorization: Bearer {} x"], 401),
        (["Authorization: Bearer {},Bearer x"], 401),
        (["Authorization: Bearer {}%20"], 401),
        (["Authorization: Basic {}"], 401),
        (["Authorization: {}"], 401),
        (["Authorization: Bearer "], 401),
        (["Authorization:"], 401),
        (["Authorization: Bearer null"], 401),
        (["Authorization: Bearer " + "x" * 100_000], 401),
        (["X-Authorization: Bearer {}"], 401),
        (["Proxy-Authorization: Bearer {}"], 401),
        (["Cookie: Authorization=Bearer {}"], 401),
    ],
)
def test_token_counts_only_as_it_is(asked: Asked, headers: list[str], status: int) -> None:
    token = asked.token("metrics")
    assert asked.send("/metrics", *(header.format(token) for header in headers)) == status


def test_token_in_the_path_or_in_another_case_counts_for_nothing(asked: Asked) -> None:
    token = asked.token("metrics")
    assert asked.send(f"/metrics?token={token}&access_token={token}") == 401
    assert asked.send("/metrics", f"Authorization: Bearer {token.swapcase()}") == 401
