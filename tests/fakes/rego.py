"""The project's own Rego on a plain OPA of a test: data goes in, decisions come out."""

from __future__ import annotations

import http.client
import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.analysis.opa import plain_spec
from tools.servers.running import Launcher, ServerSpec, free_port, launch_on_free_port

REGO = Path(__file__).resolve().parents[2] / "rego/kube_sync"
_EACH = """package each

answers := [answer |
	some given in input
	found := {{"is": is | is := data.{decision} with input as given}}
	answer := object.get(found, "is", "undefined")
]
"""


@dataclass(slots=True)
class RegoOpa:
    """An OPA that holds `rego/kube_sync`."""

    connection: http.client.HTTPConnection

    def put(self, path: str, content: Any) -> None:
        """Store data, or a policy where the content is its source."""
        raw = content if isinstance(content, str) else json.dumps(content)
        status, answer = self._ask("PUT", f"/v1/{path}", raw)
        assert status in (200, 204), answer

    def policies(self, *stored: Mapping[str, Any]) -> None:
        """Have these MetadataPolicies and no others."""
        tree: dict[str, dict[str, Any]] = {}
        for policy in stored:
            if policy.get("kind", "MetadataPolicy") != "MetadataPolicy":
                continue
            metadata = policy["metadata"]
            tree.setdefault(metadata["namespace"], {})[metadata["name"]] = policy
        self.put("data/kubernetes/metadatapolicies", tree)

    def ask(self, decision: str, given: object) -> Any:
        """Return the decision (a path with dots) about an input; fail where it is undefined."""
        path = "/v1/data/" + decision.replace(".", "/")
        status, answer = self._ask("POST", path, json.dumps({"input": given}))
        assert status == 200, answer
        return answer["result"]

    def ask_each(self, decision: str, inputs: Sequence[object]) -> list[Any]:
        """Return the decision about each input; "undefined" for those without."""
        self.put("policies/each", _EACH.format(decision=decision))
        found: list[Any] = self.ask("each.answers", inputs)
        assert len(found) == len(inputs)
        return found

    def _ask(self, method: str, path: str, body: str) -> tuple[int, Any]:
        self.connection.request(method, path, body.encode())
        response = self.connection.getresponse()
        content = response.read()
        return response.status, json.loads(content) if content else None


@contextmanager
def rego_opa(launcher: Launcher, folder: Path) -> Iterator[RegoOpa]:
    """Run an OPA with the project's Rego, without its tests, until the block ends."""
    shutil.copytree(REGO, folder / "rego", ignore=shutil.ignore_patterns("*_test.rego"))

    def spec() -> ServerSpec:
        plain = plain_spec(folder, free_port())
        return replace(plain, arguments=(*plain.arguments, str(folder / "rego")))

    server = launch_on_free_port(launcher, spec)
    connection = http.client.HTTPConnection(urlsplit(server.url).netloc, timeout=60)
    with closing(connection):
        yield RegoOpa(connection)
    server.stop()
