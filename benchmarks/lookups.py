"""Another client of OPA, in a process of its own: what it waits for is OPA, not our reading."""

from __future__ import annotations

import http.client
import json
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from tools.servers.stack import RunningStack

Lookup = tuple[float, float]  # when it began, and what it took: seconds, on the monotonic clock


@dataclass
class Lookups:
    """What the other client saw; complete when it has ended."""

    seen: list[Lookup] = field(default_factory=list)

    def within(self, windows: Sequence[tuple[float, float]]) -> list[float]:
        """Return the seconds of all that were under way in one of these windows."""
        return [
            took
            for begun, took in self.seen
            if any(begun < end and begun + took > start for start, end in windows)
        ]

    def before(self, end: float) -> list[float]:
        """Return the seconds of all that had ended by then."""
        return [took for begun, took in self.seen if begun + took < end]


@contextmanager
def other_client(stack: RunningStack, path: str) -> Iterator[Lookups]:
    """Look `path` up again and again beside the block."""
    lookups = Lookups()
    token = stack.opa_token_files["replicator"].read_text(encoding="utf-8").strip()
    given = {"url": stack.opa_url, "ca": str(stack.opa_ca_file), "token": token, "path": path}
    command = (sys.executable, "-m", "benchmarks.lookups")
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:  # noqa: S603 - ourselves
        if process.stdin is None or process.stdout is None:
            raise AssertionError
        process.stdin.write(json.dumps(given).encode() + b"\n")
        process.stdin.flush()
        process.stdout.readline()  # it has begun
        yield lookups
        process.stdin.write(b"enough\n")
        process.stdin.flush()
        lookups.seen += [(begun, took) for begun, took in json.loads(process.stdout.read())]


def _wait(enough: threading.Event) -> None:
    sys.stdin.readline()
    enough.set()


def _main() -> None:
    given = json.loads(sys.stdin.readline())
    enough = threading.Event()
    threading.Thread(target=_wait, args=(enough,), daemon=True).start()
    where = urlsplit(given["url"])
    tls = ssl.create_default_context(cafile=given["ca"])
    connection = http.client.HTTPSConnection(where.hostname or "", where.port, context=tls)
    seen: list[Lookup] = []
    print(flush=True)
    while not enough.is_set():
        begun = time.perf_counter()
        headers = {"Authorization": f"Bearer {given['token']}"}
        connection.request("GET", "/v1/data/" + given["path"], headers=headers)
        connection.getresponse().read()
        seen.append((begun, time.perf_counter() - begun))
        time.sleep(0.0005)  # a client, not a flood
    print(json.dumps(seen))


if __name__ == "__main__":
    _main()
