"""What a policy ConfigMap may not say, whatever it decides.

Take over OPA's own packages or the replicator's; claim a place where replicated data or a module
of OPA's own lies; reach the network or OPA's environment. The administrator may allow packages
and builtins by name. Pure: what modules say of themselves comes from the scratch OPA.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kube_sync.opa import lanes
from kube_sync.opa.paths import DataPath
from kube_sync.opa.scratch import Inspected, Modules

_RESERVED = ("system", "kube_sync", lanes.ROOT)
_OUTSIDE = frozenset({"http.send", "net.lookup_ip_addr", "opa.runtime"})
# A builtin is called by a name that begins with one of these, spelt out: a variable has no escapes.
_SUSPECT = re.compile(rf"\b({'|'.join(sorted({name.partition('.')[0] for name in _OUTSIDE}))})\b")


@dataclass(frozen=True, slots=True)
class Guard:
    """What is taken already, and what the administrator allows."""

    data: Sequence[DataPath]  # where replicated data lies
    packages: frozenset[str] = frozenset()  # allowed although reserved, dotted
    builtins: frozenset[str] = frozenset()  # allowed although they reach outside
    own: Sequence[DataPath] = ()  # packages of modules that OPA did not get from here
    builtin: Sequence[DataPath] = ()  # packages of modules that are ours, whatever is allowed
    by_bundle: bool = False  # then a package claims all that lies below it

    def findings(self, module: Inspected) -> list[str]:
        """Return the reasons to refuse a module, none for one that may be loaded."""
        if module.refused:
            return [module.refused]
        package = module.package
        name = ".".join(package)
        return [*self._of_package(name, package), *self._of_builtins(module.names)]

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

    def _of_builtins(self, names: frozenset[str]) -> Iterable[str]:
        for name in sorted(names & (_OUTSIDE - self.builtins)):
            yield f"builtin {name} is not allowed: it reaches outside OPA"

    def _allows(self, name: str) -> bool:
        return any(name == allowed or name.startswith(f"{allowed}.") for allowed in self.packages)


def suspects(sources: Modules) -> list[str]:
    """Return the ids of modules that might call a builtin that reaches outside."""
    return [policy_id for policy_id, source in sources.items() if _SUSPECT.search(source)]


def _within(path: DataPath, root: DataPath) -> bool:
    return path[: len(root)] == tuple(root)
