"""What the decisions that are told were made by: an edit that none of them looks at changes none.

Keeps true: two sets count as deciding alike only where no rule that either has and the other has
not lies where the decision or the limits look, defined or not. What is not known to be so is not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kube_sync.opa.paths import DataPath
from kube_sync.opa.scratch import Modules
from kube_sync.replicator.extent import Need

Packages = Mapping[str, DataPath]  # by the module's id; those that nobody knows are left out


@dataclass(frozen=True, slots=True)
class Standing:
    """All modules that OPA holds, and what was found that the decision reads by them."""

    modules: Modules
    packages: Packages
    need: Need

    def decides_as(self, modules: Modules, packages: Packages) -> bool:
        """Tell whether with these, and with any mixture of both, every decision is the same."""
        old, new = self.modules.items(), modules.items()
        gone = {policy_id for policy_id, _ in old - new}
        come = {policy_id for policy_id, _ in new - old}
        return not (
            any(self._may_matter(self.packages.get(one)) for one in gone)
            or any(self._may_matter(packages.get(one)) for one in come)
        )

    def _may_matter(self, package: DataPath | None) -> bool:
        reads = self.need.reads
        if package is None or reads.beside is None:
            return True
        return reads.may_see(package) or reads.beside.may_see(package)
