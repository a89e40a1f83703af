"""Compiles the policies of scenarios, combined as the replicator combines them.

Invariant: the evaluated modules compile as one set and pass all checks; modules are
named after their files as the user spelt them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kube_sync.config import Settings
from kube_sync.inspect.plan.candidate_files import read_candidates
from kube_sync.inspect.plan.candidates import put
from kube_sync.inspect.plan.offline_opa import common_modules
from kube_sync.inspect.plan.policy_selection import PolicySelector
from kube_sync.inspect.plan.warned import warned
from kube_sync.opa.analysis.result import Collection
from kube_sync.opa.modules import file_of, plain_package
from kube_sync.opa.paths import DataPath
from kube_sync.opa.scratch import ScratchOpa
from kube_sync.policies.policywarning import PolicyWarning
from kube_sync.policies.set_compiler import Choice


@dataclass(frozen=True, slots=True)
class PolicySet:
    """All modules that decide, and the names of their files."""

    modules: Mapping[str, str]  # source by id, including the generated ones
    file_names: Mapping[str, str]  # file names by the id of the module
    warnings: tuple[PolicyWarning, ...] = ()

    def overlapping(self, data: Mapping[str, Any]) -> str:
        """Return the file whose package overlaps with data, "" if none does."""
        for policy_id, source in self.modules.items():
            package = plain_package(source)
            if package is not None and _reaches(data, package):
                return f"{self.with_file_names(file_of(policy_id))} (package {'.'.join(package)})"
        return ""

    def with_file_names(self, text: str) -> str:
        """Return OPA's message with the file names of the user."""
        names = {file_of(policy_id): name for policy_id, name in self.file_names.items()}
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

    def __init__(
        self, scratch: ScratchOpa, settings: Settings, places: Mapping[str, Collection]
    ) -> None:
        """Prepare the modules that are part of every set. Raises Misconfigured."""
        self._places = places
        self._settings = settings
        self._scratch = scratch
        self._always = common_modules(settings)

    async def read(self, paths: Sequence[str]) -> PolicySet:
        """Return the policies of files and folders. Raises SyncError, Broken with file and row."""
        found = await read_candidates(paths, (), self._settings.policies, instead=True)
        # Files have their whole path as a key: two folders may have files of one name.
        files = {file: (file, source) for file, (_, source) in found.files.items()}
        edited = put(replace(found, files=files), {})
        chosen = await PolicySelector.of(self._settings, self._scratch).select_with(
            edited, Choice({})
        )
        modules, names = {**chosen.modules, **self._always}, edited.names
        warnings = await warned(modules, names, self._settings, self._places, self._scratch)
        return PolicySet(modules, names, warnings)
