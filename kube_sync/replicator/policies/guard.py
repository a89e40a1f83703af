"""What a policy ConfigMap may not say, whatever it decides.

Take over OPA's own packages or the replicator's; claim a place where replicated data or a module
of OPA's own lies; reach anything outside OPA. The administrator may allow packages and builtins by
name. Pure: what modules say of themselves comes from the scratch OPA.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from kube_sync.opa import lanes
from kube_sync.opa.inspection import Finding, Inspected, objections
from kube_sync.opa.paths import DataPath
from kube_sync.regoversion import V0

_RESERVED = ("system", "kube_sync", lanes.ROOT)
_ONE_BY_ONE: Final = (
    "Rego v0 reaches OPA in a bundle alone, and this OPA takes policies one by one"
    " (PUT /v1/policies has no version): configure OPA to fetch the replicator's bundle, or"
    " rewrite it with `opa fmt --write --rego-v1 FILE`"
)


@dataclass(frozen=True, slots=True)
class Guard:
    """What is taken already, and what the administrator allows."""

    data: Sequence[DataPath]  # where replicated data lies
    packages: frozenset[str] = frozenset()  # allowed although reserved, dotted
    builtins: frozenset[str] = frozenset()  # allowed although they reach outside
    own: Sequence[DataPath] = ()  # packages of modules that OPA did not get from here
    own_builtins: frozenset[str] = frozenset()  # that only those modules may call
    builtin: Sequence[DataPath] = ()  # packages of modules that are ours, whatever is allowed
    by_bundle: bool = False  # then a package claims all that lies below it
    one_by_one: bool = False  # OPA takes no bundle, and nothing else states a version of Rego

    def findings(self, module: Inspected) -> list[Finding]:
        """Return the reasons to refuse a module, none for one that may be loaded."""
        package = module.package
        claims = self._of_package(".".join(package), package)
        version = [_ONE_BY_ONE] if self.one_by_one and module.rego_version == V0 else []
        return [*map(Finding, (*claims, *version)), *objections(module, self.builtins)]

    def _of_package(self, name: str, package: DataPath) -> Iterable[str]:
        if package[:1] and package[0] in _RESERVED and not self._allows(name):
            yield f"package {name} is reserved"
        for root in self.builtin:
            if _within(package, root) or _within(root, package):
                yield f"package {name} is built in ({'.'.join(root)})"
        for root in self.data:
            if _within(package, root):
                yield f"package {name} is where replicated data lies"
            elif self.by_bundle and _within(root, package):
                yield f"package {name} is above replicated data ({'.'.join(root)}): go below it"
        for other in self.own if self.by_bundle else ():
            if _within(other, package):
                yield f"package {name} holds a module that OPA loaded by itself ({'.'.join(other)})"

    def _allows(self, name: str) -> bool:
        return any(name == allowed or name.startswith(f"{allowed}.") for allowed in self.packages)


def _within(path: DataPath, root: DataPath) -> bool:
    return path[: len(root)] == tuple(root)
