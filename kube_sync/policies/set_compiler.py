"""Choose the version of each policy to put in force, so that all of them compile together.

Invariant: the chosen versions compile as one set. A policy falls back to its last good version only
if it is at fault, and blocks no other. Of two that conflict the one that was good before stays in
force, else the older one. A change that exceeds the compiler's limits is found by adding changes to
the last good versions, which are never dropped for that. A deleted policy stays in force as long as
good policies do not compile without it. Pure but for the compiler, which runs once if all is well.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from kube_sync.objects import ObjectKey
from kube_sync.opa.inspection import TOO_EXPENSIVE
from kube_sync.opa.scratch import Cause, Modules

Check = Callable[[Modules], Awaitable[list[Cause]]]
Versions = Mapping[ObjectKey, Modules]
Blame = dict[ObjectKey, list[Cause]]  # by the policy in which an error is located

# Compilations for one question that only trials can answer, and for readmissions.
_TRIALS, _CHANCES = 8, 40
# OPA's messages for modules that cannot be loaded together; they seldom name both.
_RIVALRY = re.compile(r"conflict|multiple default|recursi")


@dataclass(frozen=True, slots=True)
class Candidate:
    """A policy as its author wrote it."""

    modules: Modules
    born: str  # creationTimestamp, which sorts as text
    refused: tuple[Cause, ...] = ()  # by the guard: it is not compiled


@dataclass(slots=True)
class Choice:
    """The versions to put in force, the errors of the others, and conflicts between policies."""

    modules: dict[ObjectKey, Modules]
    failures: dict[ObjectKey, list[Cause]] = field(default_factory=dict)
    conflicts: dict[ObjectKey, set[ObjectKey]] = field(default_factory=dict)
    put_off: set[ObjectKey] = field(default_factory=set)  # too expensive, alone or together


async def choose(
    wanted: Mapping[ObjectKey, Candidate],
    good: Versions,
    check: Check,
    hurry: Callable[[], bool] = lambda: False,
) -> Choice:
    """Choose the versions of `wanted` to put in force, given the versions that were `good` before.

    While `hurry` returns true, the search for the too expensive ones is postponed. Errors of
    `check` pass through.
    """
    choosing = _Choosing(wanted, good, check, hurry)
    await choosing.narrow()
    await choosing.admit_again()
    return choosing.choice


class _Choosing:
    """One search; `choice.modules` is the set to compile."""

    def __init__(
        self,
        wanted: Mapping[ObjectKey, Candidate],
        good: Versions,
        check: Check,
        hurry: Callable[[], bool],
    ) -> None:
        self._hurry = hurry
        self._wanted = wanted
        self._good = good
        self._check = check
        self.choice = Choice({key: found.modules for key, found in wanted.items()})
        for key, found in wanted.items():
            if found.refused:
                self._revert(key, found.refused)

    async def narrow(self) -> None:
        """Revert policies at fault until the rest compiles."""
        while self.choice.modules and (causes := await self._check(self._together())):
            by_owner, changed = self._by_owner(causes), self._changed()
            if is_too_expensive(causes):
                if not changed:
                    return  # OPA holds this set already, or did
                await self._admit_affordable(changed, causes)
                continue
            # An error located in a changed policy is most likely its own.
            if blamed := by_owner.keys() & changed:
                self._revert_all(blamed, by_owner, causes)
            elif await self._is_missed(causes):
                self._restore(by_owner)
            elif changed:
                self._revert_all(await self._whose_change(changed, causes), by_owner, causes)
            else:
                self._drop(by_owner, causes)

    async def admit_again(self) -> None:
        """Readmit policies that were reverted for the fault of others."""
        reverted = [key for key in self.choice.failures if not self._wanted[key].refused]
        for key in sorted(reverted, key=self._age)[:_CHANCES]:
            failures = self.choice.failures[key]
            if self._is_in_force(key) or _unparsed(failures) or is_too_expensive(failures):
                continue
            causes = await self._check(self._together({key: self._wanted[key].modules}))
            if not causes:
                self._admit(key)
            elif any(_RIVALRY.search(cause.get("message", "")) for cause in causes):
                await self._find_rival(key, causes)

    async def _whose_change(
        self, changed: Collection[ObjectKey], causes: list[Cause]
    ) -> set[ObjectKey]:
        """Return the change that broke an unchanged policy; all changes if no single one did."""
        for key in sorted(changed, key=self._age, reverse=True)[:_TRIALS]:
            found = await self._check(self._together({key: self._good.get(key, {})}))
            if not _same(found, causes):
                return {key}
        return set(changed)

    async def _admit_affordable(self, changed: Iterable[ObjectKey], causes: list[Cause]) -> None:
        """Revert all changes, then readmit those that stay within the limits, oldest first."""
        self._revert_all(changed, {}, causes)
        keys = sorted(changed, key=self._age)
        if len(keys) > 1 and self._hurry():
            self.choice.put_off.update(keys)
        elif not is_too_expensive(await self._check(self._together())):
            await self._split(keys, causes)

    async def _admit_halves(self, keys: Sequence[ObjectKey]) -> None:
        if self._hurry():
            self.choice.put_off.update(keys)
            return
        wanted = {key: self._wanted[key].modules for key in keys}
        causes = await self._check(self._together(wanted))
        if not is_too_expensive(causes):
            for key in keys:  # the caller finds their other errors
                self._admit(key)
        else:
            await self._split(keys, causes)

    async def _split(self, keys: Sequence[ObjectKey], causes: list[Cause]) -> None:
        """Find which of these exceed a limit, given that they do together."""
        if len(keys) == 1:
            self.choice.failures[keys[0]] = causes
        else:
            middle = len(keys) // 2
            await self._admit_halves(keys[:middle])
            await self._admit_halves(keys[middle:])

    async def _find_rival(self, key: ObjectKey, causes: list[Cause]) -> None:
        """Find the policy that conflicts with `key`; a younger one that is new too is reverted."""
        changed = self._changed()
        for other in self._suspects(key, causes)[:_TRIALS]:
            trial = {key: self._wanted[key].modules, other: self._good.get(other, {})}
            if other not in changed:
                trial[other] = {}
            found = await self._check(self._together(trial))
            if _same(found, causes):
                continue
            self._note_conflict(key, other)
            if other in changed and not found and self._age(other) > self._age(key):
                self._revert(other, causes)
                self._admit(key)
            return

    def _suspects(self, key: ObjectKey, causes: list[Cause]) -> list[ObjectKey]:
        """Return the other policies, most likely rivals first; only a compilation can tell."""
        said = " ".join(str(cause) for cause in causes)
        packages = set(re.findall(r"\b(?:data\.|package )([\w.]+)", said))

        def likelihood(other: ObjectKey) -> tuple[bool, bool, tuple[str, ObjectKey]]:
            modules = self.choice.modules[other]
            declared = re.findall(r"^package\s+(\S+)", "\n".join(modules.values()), re.MULTILINE)
            near = any(_related(one, two) for one in packages for two in declared)
            return (not any(i in said for i in modules), not near, self._age(other))

        return sorted((other for other in self.choice.modules if other != key), key=likelihood)

    def _revert(self, key: ObjectKey, causes: Iterable[Cause]) -> None:
        self.choice.failures.setdefault(key, []).extend(causes)
        if key in self._good and self._good[key] != self._wanted[key].modules:
            self.choice.modules[key] = self._good[key]
        else:
            self.choice.modules.pop(key, None)

    def _admit(self, key: ObjectKey) -> None:
        self.choice.modules[key] = self._wanted[key].modules
        self.choice.failures.pop(key, None)

    def _revert_all(
        self, keys: Iterable[ObjectKey], by_owner: Blame, causes: Iterable[Cause]
    ) -> None:
        for key in keys:
            self._revert(key, by_owner.get(key) or causes)

    async def _is_missed(self, causes: list[Cause]) -> bool:
        """Return whether restoring deleted policies would fix this."""
        gone = self._gone()
        return bool(gone) and not _same(await self._check(self._together(gone)), causes)

    def _restore(self, by_owner: Blame) -> None:
        """Keep deleted policies, and report the error on those that do not compile without them."""
        self.choice.modules |= self._gone()
        for key in by_owner.keys() & self._wanted.keys():
            self.choice.failures.setdefault(key, []).extend(by_owner[key])

    def _gone(self) -> dict[ObjectKey, Modules]:
        known = self._wanted.keys() | self.choice.modules.keys()
        return {key: modules for key, modules in self._good.items() if key not in known}

    def _drop(self, by_owner: Blame, causes: Iterable[Cause]) -> None:
        """Drop last good versions that do not compile any more."""
        for key in by_owner or list(self.choice.modules):
            self.choice.modules.pop(key, None)
            if key in self._wanted:
                self.choice.failures.setdefault(key, []).extend(by_owner.get(key) or causes)

    def _note_conflict(self, one: ObjectKey, other: ObjectKey) -> None:
        self.choice.conflicts.setdefault(one, set()).add(other)
        self.choice.conflicts.setdefault(other, set()).add(one)

    def _changed(self) -> set[ObjectKey]:
        """Return the policies that are compiled in a version that was not in force before."""
        tried = self.choice.modules.items()
        return {k for k, modules in tried if k in self._wanted and modules != self._good.get(k)}

    def _is_in_force(self, key: ObjectKey) -> bool:
        return self.choice.modules.get(key) == self._wanted[key].modules

    def _age(self, key: ObjectKey) -> tuple[str, ObjectKey]:
        return (self._wanted[key].born if key in self._wanted else "", key)

    def _together(self, instead: Versions | None = None) -> Modules:
        versions = {**self.choice.modules, **(instead or {})}
        return {i: source for modules in versions.values() for i, source in modules.items()}

    def _by_owner(self, causes: Iterable[Cause]) -> Blame:
        owners = {i: k for k, modules in self.choice.modules.items() for i in modules}
        found: Blame = {}
        for cause in causes:
            if owner := owners.get((cause.get("location") or {}).get("file", "")):
                found.setdefault(owner, []).append(cause)
        return found


def is_too_expensive(causes: Iterable[Cause]) -> bool:
    """Return whether a limit was exceeded, so that no other error is known."""
    return any(cause.get("code") == TOO_EXPENSIVE for cause in causes)


def _same(some: Iterable[Cause], others: Iterable[Cause]) -> bool:
    """Return whether both have an error message in common, wherever it is located."""
    messages = {cause.get("message") for cause in some}
    return any(cause.get("message") in messages for cause in others)


def _related(one: str, other: str) -> bool:
    return f"{one}.".startswith(f"{other}.") or f"{other}.".startswith(f"{one}.")


def _unparsed(causes: Iterable[Cause]) -> bool:
    return any(cause.get("code") == "rego_parse_error" for cause in causes)
