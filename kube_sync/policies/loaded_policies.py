"""What OPA holds of policies, or may hold, and what decisions were made by.

Keeps true: an edit that no decision looks at changes none. Two sets count as deciding alike only
where no rule that either has and the other has not lies where the decision or the limits look,
defined or not. What is not known to be so is not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kube_sync.opa.analysis.reads import Reads
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

Failures = Mapping[str, OpaError]  # by a module's id
Packages = Mapping[str, DataPath]  # by the module's id; those that nobody knows are left out


@dataclass(frozen=True, slots=True)
class LoadedState:
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


class Loaded:
    """The modules of one OPA, from one epoch to the next."""

    def __init__(self, declared: Declared, reading: Reading, generated: Modules) -> None:
        """Take what knows packages, and the `generated` modules, which are part of every set."""
        self._declared = declared
        self._reading = reading
        self._generated = generated
        self._modules: Mapping[str, str | None] = {}
        self._offered: str | None = None  # the digest of what was delivered last
        self._told: tuple[str, Reads] | None = None
        self._standing: LoadedState | None = None  # None: nobody knows, or others are on their way
        self._may_hold: list[Modules] = []  # of each of these OPA may hold some modules

    def __len__(self) -> int:
        """Return how many modules OPA holds, without what is generated here."""
        return len(self._modules)

    @property
    def in_force(self) -> Mapping[str, str]:
        """The sources that OPA is known to hold, by id, without what is generated here."""
        return {i: source for i, source in self._modules.items() if source is not None}

    @property
    def reads(self) -> Reads | None:
        """What the decision reads by what is in force, None before anything is."""
        return None if self._told is None else self._told[1]

    @property
    def digest(self) -> str:
        """The digest of what is in force, "" before anything is."""
        return "" if self._told is None else self._told[0]

    @property
    def stands(self) -> bool:
        """Whether it is known what decisions are made by."""
        return self._standing is not None

    def begin(self) -> None:
        """Know nothing of what OPA holds: it is loaded anew."""
        self._told = self._offered = self._standing = None

    def found(self, held: Modules) -> None:
        """Take in what OPA held when it was looked at."""
        self._may_hold = [held]

    def packages(self, modules: Modules) -> dict[str, DataPath]:
        """Return the package of each module, as far as it is known."""
        lanes: dict[str, DataPath] = {i: (ROOT,) for i in modules if is_of_a_lane(i)}
        found = {i: self._declared[source] for i, source in modules.items() if i not in lanes}
        return lanes | {i: module.package for i, module in found.items() if module}

    def decides_as(self, modules: Modules, together: Modules) -> bool:
        """Tell whether all decide by `together`, with these `modules`, as by what is in force."""
        packages = self.packages({**self._generated, **modules})
        return self._standing is not None and self._standing.decides_as(together, packages)

    def stays(self, way: Delivery, wanted: Modules) -> bool:
        """Tell whether all decisions stay as they are, and remember it for what they read."""
        standing, modules = self._standing, {**way.static, **wanted}
        # The first policy, and the last one, are more than an edit: without any nobody decides.
        several = self.in_force and wanted.keys() - self._generated.keys()
        if standing is None or way.opaque or not several:
            return False
        if alike := standing.decides_as(modules, self.packages(wanted)):
            self._reading.remember(modules, standing.need)
        return alike

    async def need(self, way: Delivery, *sets: Modules) -> Need | None:
        """Return what these need of the data, None where nobody knows."""
        return None if way.opaque else await self._reading.need(*sets)

    async def ahead(self, way: Delivery, modules: Modules) -> list[Need | None]:
        """Return what is needed until these modules are in force."""
        needs = [await self.need(way, {**way.static, **modules})]
        if way.puts is not None:
            # One by one: what is there with some of them is read by no set that was ever wanted.
            before = {source for found in self._may_hold for source in found.values()}
            if not before <= {*way.static.values(), *modules.values()}:
                needs.append(await self.need(way, *self._may_hold, {**way.static, **modules}))
        return needs

    def offer(self, wanted: Modules, *, alike: bool) -> bool:
        """Note that OPA is to hold these; returns whether decisions may differ from now on."""
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
        """Take in what is in force, with what it reads.

        Returns that, and what of the data is needed by it and by what is `beside` it, None where
        nobody knows.
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
        """Take in what is in force; call `changed` if it is news, `renamed` if that decides alike.

        Returns how many modules are new.
        """
        modules = {i: s for i, s in in_force.modules.items() if i not in self._generated}
        new = len(modules.items() - self._modules.items())
        self._modules = modules
        if (told := (digest(modules), reads)) != self._told:
            same = alike and self._told is not None and self._told[1] == reads
            self._told = told
            (renamed if same else changed)(told[0], len(modules), reads)
        return new
