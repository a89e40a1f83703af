"""Which version of each policy ConfigMap is in force, so that all of them compile together.

Keeps true: what is chosen compiles as one set; a ConfigMap falls back to its last good version
only if it is at fault, and no other is held up by it; of two that conflict the one that was good
before stays, else the older. A change that exceeds the compiler's limits is found by adding changes
to what was good, which is never dropped for that. What is gone stays in force as long as others
that are good cannot do without it. Pure but for the compiler, which is asked once when nothing is
wrong.
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
Blame = dict[ObjectKey, list[Cause]]  # by the ConfigMap that an error is located in

# Compilations spent on one question that only trying answers, and on second chances.
_TRIALS, _CHANCES = 8, 40
# What OPA says when two modules cannot be together; it seldom names both.
_RIVALRY = re.compile(r"conflict|multiple default|recursi")


@dataclass(frozen=True, slots=True)
class Candidate:
    """A policy ConfigMap as its author wants it."""

    modules: Modules
    born: str  # creationTimestamp, which sorts as text
    refused: tuple[Cause, ...] = ()  # by the guard: it is not even tried


@dataclass(slots=True)
class Choice:
    """What is in force, what is wrong with what is not, and who is in whose way."""

    modules: dict[ObjectKey, Modules]
    failures: dict[ObjectKey, list[Cause]] = field(default_factory=dict)
    conflicts: dict[ObjectKey, set[ObjectKey]] = field(default_factory=dict)
    put_off: set[ObjectKey] = field(default_factory=set)  # too expensive together, or one of them


async def choose(
    wanted: Mapping[ObjectKey, Candidate],
    good: Versions,
    check: Check,
    hurry: Callable[[], bool] = lambda: False,
) -> Choice:
    """Choose what is in force of `wanted`, given the versions that were `good` before.

    In a `hurry` it is put off to find out which of them are too expensive. Whatever `check` raises
    passes through.
    """
    choosing = _Choosing(wanted, good, check, hurry)
    await choosing.narrow()
    await choosing.admit_again()
    return choosing.choice


class _Choosing:
    """One search; `choice.modules` is the set that is tried."""

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
        """Revert what is at fault until the rest compiles."""
        while self.choice.modules and (causes := await self._check(self._together())):
            by_owner, changed = self._by_owner(causes), self._changed()
            if is_too_expensive(causes):
                if not changed:
                    return  # OPA holds it already, or did
                await self._admit_affordable(changed, causes)
                continue
            # An error that is located in a changed ConfigMap is most likely its own.
            if blamed := by_owner.keys() & changed:
                self._revert_all(blamed, by_owner, causes)
            elif await self._is_missed(causes):
                self._restore(by_owner)
            elif changed:
                self._revert_all(await self._whose_change(changed, causes), by_owner, causes)
            else:
                self._drop(by_owner, causes)

    async def admit_again(self) -> None:
        """Give those a second chance that were reverted for what others were at fault for."""
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
        """Find the change that broke what did not change itself; all of them if no one alone."""
        for key in sorted(changed, key=self._age, reverse=True)[:_TRIALS]:
            found = await self._check(self._together({key: self._good.get(key, {})}))
            if not _same(found, causes):
                return {key}
        return set(changed)

    async def _admit_affordable(self, changed: Iterable[ObjectKey], causes: list[Cause]) -> None:
        """Revert all changes, and admit those again, oldest first, that stay within the limits."""
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
            for key in keys:  # what else is wrong with them is found out by whoever called
                self._admit(key)
        else:
            await self._split(keys, causes)

    async def _split(self, keys: Sequence[ObjectKey], causes: list[Cause]) -> None:
        """Find out which of these exceed a limit, as they do together."""
        if len(keys) == 1:
            self.choice.failures[keys[0]] = causes
        else:
            middle = len(keys) // 2
            await self._admit_halves(keys[:middle])
            await self._admit_halves(keys[middle:])

    async def _find_rival(self, key: ObjectKey, causes: list[Cause]) -> None:
        """Find who is in the way of `key`; a younger rival that is as new gives way to it."""
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
        """Return the others, most likely rivals first: only a trial tells."""
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
        """Tell whether what is gone from the API server would mend it."""
        gone = self._gone()
        return bool(gone) and not _same(await self._check(self._together(gone)), causes)

    def _restore(self, by_owner: Blame) -> None:
        """Keep what is gone, and tell those that do not compile without it."""
        self.choice.modules |= self._gone()
        for key in by_owner.keys() & self._wanted.keys():
            self.choice.failures.setdefault(key, []).extend(by_owner[key])

    def _gone(self) -> dict[ObjectKey, Modules]:
        known = self._wanted.keys() | self.choice.modules.keys()
        return {key: modules for key, modules in self._good.items() if key not in known}

    def _drop(self, by_owner: Blame, causes: Iterable[Cause]) -> None:
        """Do without last good versions that are not good any more."""
        for key in by_owner or list(self.choice.modules):
            self.choice.modules.pop(key, None)
            if key in self._wanted:
                self.choice.failures.setdefault(key, []).extend(by_owner.get(key) or causes)

    def _note_conflict(self, one: ObjectKey, other: ObjectKey) -> None:
        self.choice.conflicts.setdefault(one, set()).add(other)
        self.choice.conflicts.setdefault(other, set()).add(one)

    def _changed(self) -> set[ObjectKey]:
        """Whatever is tried in a version that was not in force before."""
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
    """Tell whether a limit was exceeded, so that nothing else is known."""
    return any(cause.get("code") == TOO_EXPENSIVE for cause in causes)


def _same(some: Iterable[Cause], others: Iterable[Cause]) -> bool:
    """Whether any complaint is in both, wherever it is located."""
    messages = {cause.get("message") for cause in some}
    return any(cause.get("message") in messages for cause in others)


def _related(one: str, other: str) -> bool:
    return f"{one}.".startswith(f"{other}.") or f"{other}.".startswith(f"{one}.")


def _unparsed(causes: Iterable[Cause]) -> bool:
    return any(cause.get("code") == "rego_parse_error" for cause in causes)
