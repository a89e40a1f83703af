"""A load client in a process of its own: the same bytes over TLS, again and again.

Sockets and a selector, nothing else: what a library would cost is not to be measured, neither in
the floor nor beside it. Each connection sends its next request when it has its answer.
"""

from __future__ import annotations

import asyncio
import json
import selectors
import socket
import ssl
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from urllib.parse import urlsplit


@dataclass(frozen=True, slots=True)
class Target:
    """Where to send requests to, and which, in turn; every answer has to hold `expected`."""

    url: str
    ca_file: str
    bodies: Sequence[str]
    expected: str
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Load:
    """What one run has shown; times in seconds."""

    per_second: float
    median: float
    p99: float
    cpu: float  # of the client, as a share of one processor


async def load(target: Target, requests: int, connections: int) -> Load:
    """Send so many requests, and return what it took. Raises RuntimeError on a wrong answer."""
    command = (sys.executable, "-m", "benchmarks.load")
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe)
    given = {"target": asdict(target), "requests": requests, "connections": connections}
    out, _ = await process.communicate(json.dumps(given).encode())
    if process.returncode:
        msg = f"the load client ended with {process.returncode}"
        raise RuntimeError(msg)
    return Load(**json.loads(out))


class _Connection:
    """One connection, with one request under way at most."""

    def __init__(self, target: Target, tls: ssl.SSLContext) -> None:
        where = urlsplit(target.url)
        plain = socket.create_connection((where.hostname or "", where.port or 443))
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket = tls.wrap_socket(plain, server_hostname=where.hostname)
        self.socket.settimeout(0)
        self._answer = b""
        self._begun = 0.0

    def send(self, request: bytes) -> None:
        self._answer = b""
        self._begun = time.perf_counter()
        self.socket.sendall(request)  # it fits into the kernel's buffer

    def receive(self, expected: bytes) -> float | None:
        """Return what the answer took once it is whole."""
        while True:
            try:
                data = self.socket.recv(65536)
            except ssl.SSLWantReadError:
                return None
            self._answer += data
            if _whole(self._answer):
                break
            if not data:
                msg = f"closed after {self._answer!r}"
                raise ConnectionError(msg)
        if not self._answer.startswith(b"HTTP/1.1 200 ") or expected not in self._answer:
            raise ValueError(self._answer)
        return time.perf_counter() - self._begun


def _whole(answer: bytes) -> bool:
    head, found, body = answer.partition(b"\r\n\r\n")
    if not found:
        return False
    head = head.lower()
    if b"transfer-encoding: chunked" in head:
        return body.endswith(b"0\r\n\r\n")
    return len(body) >= int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0])


def _requests(target: Target) -> list[bytes]:
    where = urlsplit(target.url)
    path = where.path + (f"?{where.query}" if where.query else "")
    fixed = {"Host": where.netloc, "Content-Type": "application/json"} | target.headers
    head = "".join(f"{name}: {value}\r\n" for name, value in fixed.items())
    return [
        f"POST {path} HTTP/1.1\r\n{head}Content-Length: {len(body.encode())}\r\n\r\n{body}".encode()
        for body in target.bodies
    ]


def _run(target: Target, requests: int, connections: int) -> Load:
    tls = ssl.create_default_context(cafile=target.ca_file)
    prepared, expected = _requests(target), target.expected.encode()
    selector = selectors.DefaultSelector()
    opened = [_Connection(target, tls) for _ in range(connections)]
    begun, cpu = time.perf_counter(), time.process_time()
    for sent, connection in enumerate(opened):
        selector.register(connection.socket, selectors.EVENT_READ, connection)
        connection.send(prepared[sent % len(prepared)])
    sent, took = connections, list[float]()
    while len(took) < requests:
        for key, _ in selector.select():
            seconds = key.data.receive(expected)
            if seconds is None:
                continue
            took.append(seconds)
            if sent < requests:
                key.data.send(prepared[sent % len(prepared)])
                sent += 1
    whole = time.perf_counter() - begun
    cpu = (time.process_time() - cpu) / whole
    p99 = sorted(took)[int(len(took) * 0.99)]
    return Load(requests / whole, statistics.median(took), p99, cpu)


def _main() -> None:
    given = json.loads(sys.stdin.readline())
    target = Target(**given["target"])
    print(json.dumps(asdict(_run(target, given["requests"], given["connections"]))))


if __name__ == "__main__":
    _main()
