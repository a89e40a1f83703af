"""One plain OPA on the loopback that compiles policies and decides."""

from __future__ import annotations

import http.client
import json
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from kube_sync.opa.analysis.analyzer import PolicyModule
from tools.servers.binaries import ensure_binary
from tools.servers.running import ServerSpec

UNDEFINED = "<undefined>"
FAILED = "<failed>"
_BATCH = """package batch

answers[index] := {{"is": answer}} if {{
	some index, object in input.objects
	answer := data.{path} with input as object
}}
"""


class NotCompiled(Exception):
    """OPA does not take these policies."""


def plain_spec(folder: Path, port: int, *options: str) -> ServerSpec:
    """Describe an OPA without any security, for policies and data of a test."""
    address = f"--addr=127.0.0.1:{port}"
    arguments = ("run", "--server", address, "--log-level=error", "--skip-version-check", *options)
    url = f"http://127.0.0.1:{port}"
    return ServerSpec(
        name="opa",
        program="opa",
        arguments=arguments,
        folder=folder,
        url=url,
        ready_paths=("/health",),
    )


def parsed(source: str, folder: Path) -> Any:
    """Return the parsed tree of a module, with its locations."""
    path = folder / "module.rego"
    path.write_text(source)
    command = ("parse", "--format=json", "--json-include=locations")
    return json.loads(
        subprocess.run(
            [ensure_binary("opa"), *command, path], capture_output=True, check=True
        ).stdout
    )


@dataclass(slots=True)
class PolicyOpa:
    """An OPA that holds one set of policies at a time."""

    url: str
    connection: http.client.HTTPConnection
    _asked: str = ""  # the decision that the loaded batch module asks for
    _data: bytes = b""

    @classmethod
    def at(cls, url: str) -> PolicyOpa:
        """Return a client of an OPA that runs."""
        return cls(url, http.client.HTTPConnection(urlsplit(url).netloc, timeout=30))

    def compile(self, sources: Mapping[str, str]) -> list[PolicyModule]:
        """Load these modules in their order and no other; return them as OPA compiled them."""
        self._asked = ""
        for name in self._names():
            self._ask("DELETE", f"/v1/policies/{name}")
        for name, source in sources.items():
            status, answer = self._ask("PUT", f"/v1/policies/{name}", source.encode())
            if status != 200:
                raise NotCompiled(json.dumps(answer))
        return [PolicyModule(name, tree) for name, tree in self._trees() if name in sources]

    def load(self, sources: Sequence[str], data: Any) -> list[PolicyModule] | None:
        """Load these modules and this data, alone; return the modules as OPA compiled them.

        They need not come in the order in which they load. None: OPA does not take them together.
        """
        self._asked = ""
        self._data = b""
        for name in self._names():
            self._ask("DELETE", f"/v1/policies/{name}")
        if not self.replace_data(data):
            return None
        left = {f"module{number}.rego": source for number, source in enumerate(sources)}
        names = {*left}
        while left:
            taken = [n for n, s in left.items() if self._is_taken(n, s)]
            if not taken:
                return None
            left = {n: s for n, s in left.items() if n not in taken}
        return [PolicyModule(name, tree) for name, tree in self._trees() if name in names]

    def replace_data(self, data: Any) -> bool:
        """Replace all data; returns whether OPA takes it."""
        status, _ = self._ask("PUT", "/v1/data", json.dumps(data).encode())
        return status == 204

    def decided(self, decision: str, asked: Any) -> Any:
        """Return the decision of one input (None: of none), or UNDEFINED, or FAILED."""
        body = json.dumps({} if asked is None else {"input": asked}).encode()
        status, answer = self._ask("POST", f"/v1/data/{decision}", body)
        return FAILED if status != 200 else answer.get("result", UNDEFINED)

    def _is_taken(self, name: str, source: str) -> bool:
        return self._ask("PUT", f"/v1/policies/{name}", source.encode())[0] == 200

    def put(self, data: Any) -> None:
        """Replace `data.kubernetes`."""
        body = json.dumps(data).encode()
        if body != self._data:
            status, answer = self._ask("PUT", "/v1/data/kubernetes", body)
            assert status == 204, answer
            self._data = body

    def ask(self, decision: str, objects: Sequence[Any]) -> list[Any]:
        """Return the decision of each object, or UNDEFINED, or FAILED."""
        if decision != self._asked:
            source = _BATCH.format(path=decision.replace("/", "."))
            status, answer = self._ask("PUT", "/v1/policies/batch", source.encode())
            assert status == 200, answer
            self._asked = decision
        body = json.dumps({"input": {"objects": objects}}).encode()
        status, answer = self._ask("POST", "/v1/data/batch/answers", body)
        if status != 200:
            return [self._one(decision, found) for found in objects]
        answers = answer.get("result", {})
        found = (answers.get(str(i), {"is": UNDEFINED}) for i in range(len(objects)))
        return [answer["is"] for answer in found]

    def _one(self, decision: str, found: Any) -> Any:
        body = json.dumps({"input": found}).encode()
        status, answer = self._ask("POST", f"/v1/data/{decision}", body)
        return FAILED if status != 200 else answer.get("result", UNDEFINED)

    def _names(self) -> list[str]:
        # `batch` last: it needs nothing to be there, but others may be needed.
        return [name for name, _ in reversed(self._trees())]

    def _trees(self) -> list[tuple[str, Any]]:
        _, answer = self._ask("GET", "/v1/policies")
        return [(policy["id"], policy["ast"]) for policy in answer.get("result", [])]

    def _ask(self, method: str, path: str, body: bytes | None = None) -> tuple[int, Any]:
        self.connection.request(method, path, body)
        response = self.connection.getresponse()
        content = response.read()
        return response.status, json.loads(content) if content else None
