"""Attribute OPA's crashes to edits: the newest one first, until OPA ends without it too.

Invariant: a version that OPA held for an hour without a restart is not blamed, nor one that it held
when this process began. An end counts against each younger version in force, whatever else is
edited meanwhile. If OPA keeps ending, the next version is blamed and the former one released, once.
If no version is left to blame, all blamed ones are released, and none is blamed as long as the same
versions stay in force. Pure.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

import msgspec

from kube_sync.objects import ObjectKey
from kube_sync.opa.scratch import Modules
from kube_sync.policies.bundle import digest
from kube_sync.policies.set_compiler import Versions

ENDS: Final = 3
STOOD_SECONDS: Final = 3600.0  # without a restart


class Count(msgspec.Struct, frozen=True):
    """How often OPA ended with a version, and the revision that introduced it."""

    ends: int
    revision: str


@dataclass(slots=True, eq=False)
class Young:
    """A version that OPA has not held for an hour."""

    modules: Modules
    before: Modules  # the last one of this policy that it held so long, if any
    count: Count


@dataclass(frozen=True, slots=True)
class Verdict:
    """The consequences of an end of OPA."""

    blamed: Mapping[ObjectKey, Young] = field(default_factory=dict[ObjectKey, Young])
    released: Collection[str] = ()  # digests of versions blamed before
    unexplained: bool = False  # no edit explains it


class Blame:
    """Counts the ends of OPA for each version."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._counted: dict[str, Count] = {}  # by an earlier process, oldest first
        self._before: Versions = {}  # the versions before those
        self._stood: dict[ObjectKey, Modules] | None = None  # versions not to blame
        self._young: dict[ObjectKey, Young] = {}  # newest last
        self._stands: Versions = {}  # versions that OPA may hold
        self._since: dict[ObjectKey, float] = {}
        self._revision: str | None = None  # None: OPA holds none
        self._begun = 0.0
        self.ends = 0  # since a version was blamed, or none could be
        self.doubtful: dict[str, str] = {}  # blamed since OPA last stood: digest to policy
        self._released: set[str] = set()
        self._beyond: Versions | None = None  # while these stay in force, none is blamed

    @property
    def counts(self) -> dict[ObjectKey, Young]:
        """The versions with which OPA ended and that may be blamed, oldest first."""
        return {key: young for key, young in self._young.items() if young.count.ends}

    def learn(
        self,
        counted: Mapping[str, Count],
        ends: int,
        before: Versions,
        doubtful: Mapping[str, str],
    ) -> None:
        """Continue an earlier process's counts; `before` are the versions before those it counted.

        A version without one of those cannot be rolled back, so it is not counted.
        """
        self._counted, self._before = dict(counted), before
        self.ends, self.doubtful = ends, dict(doubtful)

    def keep(self, keys: Collection[ObjectKey]) -> None:
        """Forget policies that are not among these: they were deleted."""
        for known in (self._young, self._stood or {}):
            for key in [*known]:
                if key not in keys:
                    del known[key]
        if self._beyond is not None and not all(key in keys for key in self._beyond):
            self._beyond = None

    def offered(self, revision: str, versions: Versions) -> None:
        """Record that OPA may hold these versions from now on."""
        if revision == self._revision:
            return
        now, was = self._clock(), self._stands
        if self._revision is None:
            self._begun = now
        if self._stood is None:
            known = versions.items()
            self._stood = {k: self._before[k] if self._is_counted(k, m) else m for k, m in known}
        self._settle(now)
        self._since = {k: self._since[k] if was.get(k) == m else now for k, m in versions.items()}
        self._stands, self._revision = dict(versions), revision
        new = {key: digest(m) for key, m in versions.items() if m != self._stood.get(key)}
        for key in versions.keys() & self._young.keys():
            if key not in new or self._young[key].modules != versions[key]:
                del self._young[key]
        ranks = {name: rank for rank, name in enumerate(self._counted)}
        for key in sorted(new.keys() - self._young.keys(), key=lambda key: ranks.get(new[key], 0)):
            self._young[key] = self._new(key, versions[key], revision)

    def opa_ended(self) -> Verdict:
        """Record that OPA has restarted and lost all that it held."""
        now, stands = self._clock(), self._stands
        if self._revision is None:
            return Verdict()  # it ended before it got any policy of this load
        self._settle(now)
        self._revision, self._stands = None, {}
        self.ends += 1
        if now - self._begun > STOOD_SECONDS:
            self.ends, self._beyond = 1, None
            self.doubtful.clear()
            self._released.clear()
        if self._beyond is not None:
            if all(stands.get(key, modules) == modules for key, modules in self._beyond.items()):
                return Verdict(unexplained=True)
            self.ends, self._beyond = 1, None
        held = [key for key, young in self._young.items() if stands.get(key) == young.modules]
        for key in held:
            count = self._young[key].count
            self._young[key].count = Count(count.ends + 1, count.revision)
        guilty = [key for key in held if self._young[key].count.ends >= ENDS]
        if self.ends < ENDS or (held and not guilty):
            return Verdict()
        self.ends = 0
        return self._newest(guilty) if guilty else self._nobody(stands)

    def _newest(self, guilty: list[ObjectKey]) -> Verdict:
        newest = self._young[guilty[-1]].count.revision
        keys = [key for key in guilty if self._young[key].count.revision == newest]
        blamed = {key: self._young.pop(key) for key in keys}
        released = self.doubtful.keys() - self._released
        self._released |= released
        self.doubtful |= {digest(young.modules): str(key) for key, young in blamed.items()}
        return Verdict(blamed, released)

    def _nobody(self, stands: Versions) -> Verdict:
        released, again = [*self.doubtful], set(self.doubtful.values())
        self._beyond = {key: m for key, m in stands.items() if str(key) not in again}
        self.doubtful.clear()
        return Verdict(released=released, unexplained=True)

    def _settle(self, now: float) -> None:
        """Record which versions have stood for an hour."""
        for key, modules in self._stands.items():
            if self._stood is not None and now - self._since[key] > STOOD_SECONDS:
                self._stood[key] = modules
                self._young.pop(key, None)

    def _is_counted(self, key: ObjectKey, modules: Modules) -> bool:
        return key in self._before and digest(modules) in self._counted

    def _new(self, key: ObjectKey, modules: Modules, revision: str) -> Young:
        before = (self._stood or {}).get(key, {})
        if self._is_counted(key, modules):
            return Young(modules, self._before[key], self._counted.pop(digest(modules)))
        return Young(modules, before, Count(0, revision))
