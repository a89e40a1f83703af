"""The `check` commands on an OPA that runs: a scratch OPA reads all modules anew for each command.

That is two processes and 0.2 s of CPU each. The modules are the same, read once; the data are those
of one command at a time. What a scratch OPA does is tried by a test of each command that does not
ask for this, and by its own tests.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from kube_sync.admission.metadata import check as of_metadata
from kube_sync.admission.scheduling import check as of_scheduling
from kube_sync.config import Settings
from kube_sync.opa.scratch import Modules
from tests.fakes.rego import REGO, RegoOpa, rego_opa
from tools.servers.running import Launcher


@dataclass(frozen=True, slots=True)
class Judge:
    """What the commands need of a scratch OPA, by one that runs."""

    opa: RegoOpa
    sources: frozenset[str]

    def of(self, _settings: Settings) -> Judge:
        """Return itself, whatever the configuration says of a scratch OPA."""
        return self

    async def evaluated(
        self, modules: Modules, data: Mapping[str, Any], asked: Any, query: str
    ) -> Any:
        """Return the value of a query over these data and no others."""
        assert self.sources.issuperset(modules.values())
        assert {**data, "kube_sync": [*data["kube_sync"]]} == {
            "kubernetes": data["kubernetes"],
            "kube_sync": ["config"],
        }
        self.opa.put("data/kubernetes", data["kubernetes"])
        self.opa.put("data/kube_sync/config", data["kube_sync"]["config"])
        body = json.dumps({"query": f"value := {query}", "input": asked})
        self.opa.connection.request("POST", "/v1/query", body.encode())
        with self.opa.connection.getresponse() as response:
            answer = json.loads(response.read())
        assert response.status == 200, answer
        (solution,) = answer["result"]
        return solution["value"]

    @contextmanager
    def judging(self) -> Iterator[None]:
        """Let it answer the commands until the block ends."""
        with (
            mock.patch.object(of_metadata, "ScratchOpa", self),
            mock.patch.object(of_scheduling, "ScratchOpa", self),
        ):
            yield


@contextmanager
def judge(launcher: Launcher, folder: Path) -> Iterator[Judge]:
    """Run an OPA with the project's Rego until the block ends."""
    files = (file for file in REGO.rglob("*.rego") if not file.stem.endswith("_test"))
    sources = frozenset(file.read_text(encoding="utf-8") for file in files)
    with rego_opa(launcher, folder) as opa:
        yield Judge(opa, sources)
