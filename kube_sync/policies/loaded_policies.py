"""The policy modules that OPA holds, or may hold, and what decisions read by them.

Invariant: an edit outside the rules that the decision reads changes no decision. Two sets count as
deciding alike only if no rule that is in one of them alone lies where the decision or the limits
look, defined or not. If that is not known for certain, they do not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kube_sync.opa.analysis.result import Reads
from kube_sync.opa.client import OpaError
from kube_sync.opa.lanes import ROOT, is_of_a_lane
from kube_sync.opa.paths import DataPath
from kube_sync.opa.scratch import Modules
from kube_sync.policies.bundle import digest
from kube_sync.policies.delivery import Delivery
from kube_sync.policies.epoch import Changed
from kube_sync.policies.guard import Declared
from kube_sync.policies.policy_api import Delivered
from kube_sync.policies.reading import Reading
from kube_sync.policies.required_fields import Need

Failures = Mapping[str, OpaError]  # by module id
Packages = Mapping[str, DataPath]  # by module id, without unknown ones


@dataclass(frozen=True, slots=True)
class LoadedState:
    """All modules that OPA holds, and what the decision reads by them."""

    modules: Modules
    packages: Packages
    need: Need

    def decides_as(self, modules: Modules, packages: Packages) -> bool:
        """Return whether these, and any mixture of both sets, decide everything the same."""
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


class Loaded:
    """The modules of one OPA, from one epoch to the next."""

    def __init__(self, declared: Declared, reading: Reading, generated: Modules) -> None:
        """Look packages up in `declared`; `generated` modules are part of every set."""
        self._declared = declared
        self._reading = reading
        self._generated = generated
        self._modules: Mapping[str, str | None] = {}
        self._offered: str | None = None  # digest of the last delivery
        self._told: tuple[str, Reads] | None = None
        self._standing: LoadedState | None = None  # None: unknown, or others are being delivered
        self._may_hold: list[Modules] = []  # OPA may hold modules of each of these

    def __len__(self) -> int:
        """Return the number of modules in OPA, without generated ones."""
        return len(self._modules)

    @property
    def in_force(self) -> Mapping[str, str]:
        """The known sources in OPA, by id, without generated ones."""
        return {i: source for i, source in self._modules.items() if source is not None}

    @property
    def reads(self) -> Reads | None:
        """What the decision reads by the modules in force, None before any are."""
        return None if self._told is None else self._told[1]

    @property
    def digest(self) -> str:
        """The digest of the modules in force, "" before any are."""
        return "" if self._told is None else self._told[0]

    @property
    def stands(self) -> bool:
        """Whether it is known which modules decide."""
        return self._standing is not None

    def begin(self) -> None:
        """Forget what OPA holds: it is being loaded anew."""
        self._told = self._offered = self._standing = None

    def found(self, held: Modules) -> None:
        """Record the modules that OPA held when it was queried."""
        self._may_hold = [held]

    def packages(self, modules: Modules) -> dict[str, DataPath]:
        """Return the package of each module, as far as known."""
        lanes: dict[str, DataPath] = {i: (ROOT,) for i in modules if is_of_a_lane(i)}
        found = {i: self._declared[source] for i, source in modules.items() if i not in lanes}
        return lanes | {i: module.package for i, module in found.items() if module}

    def decides_as(self, modules: Modules, together: Modules) -> bool:
        """Return whether `together`, with these `modules`, decides like the set in force."""
        packages = self.packages({**self._generated, **modules})
        return self._standing is not None and self._standing.decides_as(together, packages)

    def stays(self, way: Delivery, wanted: Modules) -> bool:
        """Return whether all decisions stay the same, and if so cache what the wanted set reads."""
        standing, modules = self._standing, {**way.static, **wanted}
        # The first policy and the last are more than an edit: without any nothing is decided.
        several = self.in_force and wanted.keys() - self._generated.keys()
        if standing is None or way.opaque or not several:
            return False
        if alike := standing.decides_as(modules, self.packages(wanted)):
            self._reading.remember(modules, standing.need)
        return alike

    async def need(self, way: Delivery, *sets: Modules) -> Need | None:
        """Return what these need of the data, None if that is unknown."""
        return None if way.opaque else await self._reading.need(*sets)

    async def ahead(self, way: Delivery, modules: Modules) -> list[Need | None]:
        """Return what is needed until these modules are in force."""
        needs = [await self.need(way, {**way.static, **modules})]
        if way.puts is not None:
            # One by one: a mixture of old and new modules reads what neither set does.
            before = {source for found in self._may_hold for source in found.values()}
            if not before <= {*way.static.values(), *modules.values()}:
                needs.append(await self.need(way, *self._may_hold, {**way.static, **modules}))
        return needs

    def offer(self, wanted: Modules, *, alike: bool) -> bool:
        """Record that OPA is to hold these; return whether decisions may differ from now on."""
        if wanted not in self._may_hold:
            self._may_hold.append(wanted)
        before, self._offered = self._offered, digest(wanted)
        if self._offered == before or alike:
            return False
        self._told = self._standing = None
        return True

    async def settle(
        self, way: Delivery, in_force: Delivered, beside: Iterable[Need | None]
    ) -> tuple[Reads, Need | None]:
        """Record the set in force; return what it reads, and what data must be kept.

        The latter includes the needs of what is `beside` it; None if it is unknown.
        """
        known = {i: source for i, source in in_force.modules.items() if source is not None}
        need = await self._reading.need({**way.static, **known})
        reads = need.reads
        if way.opaque or len(known) < len(in_force.modules):
            self._standing = None
            return reads, None
        self._may_hold = [known]
        self._standing = LoadedState({**way.static, **known}, self.packages(known), need)
        for other in beside:
            need = need if other is None else need.joined(other)
        return reads, need

    def note(
        self,
        in_force: Delivered,
        reads: Reads,
        changed: Changed,
        renamed: Changed,
        *,
        alike: bool,
    ) -> int:
        """Record the set in force; call `changed` if it is new, `renamed` if it decides alike.

        Returns the number of new modules.
        """
        modules = {i: s for i, s in in_force.modules.items() if i not in self._generated}
        new = len(modules.items() - self._modules.items())
        self._modules = modules
        if (told := (digest(modules), reads)) != self._told:
            same = alike and self._told is not None and self._told[1] == reads
            self._told = told
            (renamed if same else changed)(told[0], len(modules), reads)
        return new
