"""The policies of scenarios, put together as the replicator puts them together.

Keeps true: what is evaluated compiles as one set and says nothing that no policy may; modules are
known by the names that their files have for whoever asked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kube_sync.config import Settings
from kube_sync.inspect.plan.candidatefiles import read_candidates
from kube_sync.inspect.plan.candidates import put
from kube_sync.inspect.plan.offline import common_modules
from kube_sync.inspect.plan.policies import Chooser
from kube_sync.opa.modules import file_of, plain_package
from kube_sync.opa.paths import DataPath
from kube_sync.opa.scratch import ScratchOpa
from kube_sync.policies.choice import Choice


@dataclass(frozen=True, slots=True)
class PolicySet:
    """All modules that decide, and what files are called."""

    modules: Mapping[str, str]  # source by id, those that are generated among them
    called: Mapping[str, str]  # files by the id of the module

    def beside(self, data: Mapping[str, Any]) -> str:
        """Return which file's package lies where data does, empty: none."""
        for policy_id, source in self.modules.items():
            package = plain_package(source)
            if package is not None and _reaches(data, package):
                return f"{self.told(file_of(policy_id))} (package {'.'.join(package)})"
        return ""

    def told(self, text: str) -> str:
        """Return what OPA says with files as they are called by whoever asked."""
        names = {file_of(policy_id): name for policy_id, name in self.called.items()}
        for file in sorted(names, key=len, reverse=True):
            text = text.replace(file, names[file])
        return text


def _reaches(value: Any, package: DataPath) -> bool:  # noqa: ANN401 - any JSON
    for part in package:
        if not isinstance(value, dict):
            return True
        if part not in value:
            return False
        value = value[part]
    return True


class PolicyReader:
    """Reads and compiles sets of policies, each once."""

    def __init__(self, scratch: ScratchOpa, settings: Settings) -> None:
        """Find the modules that are part of every set. Raises Misconfigured."""
        self._settings = settings
        self._scratch = scratch
        self._always = common_modules(settings)

    async def read(self, paths: Sequence[str]) -> PolicySet:
        """Return the policies of files and folders. Raises SyncError, Broken with file and row."""
        found = await read_candidates(paths, (), self._settings.policies, instead=True)
        # A file is known by its whole path: two folders may have files of one name.
        files = {file: (file, source) for file, (_, source) in found.files.items()}
        wanted = put(replace(found, files=files), {})
        chosen = await Chooser.of(self._settings, self._scratch).tried(wanted, Choice({}))
        return PolicySet({**chosen.modules, **self._always}, wanted.names)
