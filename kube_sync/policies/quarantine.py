"""Quarantine of policy versions that ended OPA or the replicator, or cost too much to compile.

Invariant: before a version that was never good is compiled, its digest is recorded, and it is
removed from the record once there is any answer. A replicator that finds a digest of its own there
was killed in between: it tries these versions again, one by one, and never again one that ended it
twice. A version that is blamed for OPA's ends is replaced by the one before it (`opa_crashes.py`);
blamed versions are recorded as soon as OPA ended. A refusal holds for one version: another is
tried.
"""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

import structlog

from kube_sync.objects import ObjectKey
from kube_sync.observability import metrics
from kube_sync.opa.inspection import EXPENSIVE_SECONDS
from kube_sync.opa.scratch import Cause, Modules
from kube_sync.policies.bundle import digest
from kube_sync.policies.configmap_status import NOT_TRIED, QUARANTINED, UNEXPLAINED, WAITING
from kube_sync.policies.last_good import UNREADABLE, fitting, versions_of
from kube_sync.policies.marker import State
from kube_sync.policies.opa_crashes import Blame
from kube_sync.policies.set_compiler import Versions, is_too_expensive

log: structlog.stdlib.BoundLogger = structlog.get_logger()

_WAITS: Final = "it waits for others: the replicator ended while it compiled them together"
_LATE: Final = (
    "it is tried after others, and later each time: it, or the version before it, was too expensive"
)
_LATE_SECONDS: Final = 3600.0  # for so long after a version that was too expensive
_PAUSE_SECONDS: Final = 20.0  # before a policy's third such version; then doubled
_CODES: Final = (NOT_TRIED, QUARANTINED)
_UNCLEAN_ENDS: Final = 2  # the first may be an eviction or a lost node
_BEFORE_BYTES: Final = 24_000  # of recorded versions to restore: replicators share a ConfigMap
_UNEXPLAINED: Final = (
    "OPA went on ending while this version was taken back: it ends for a reason that this edit does"
    " not explain, and the version was tried again"
)


class Record(Protocol):
    """Stores the record beyond the life of this process."""

    async def load(self) -> State:
        """Return the record."""

    async def write(self, state: State) -> None:
        """Write the record."""


class Nowhere:
    """No record: the state is in memory alone."""

    async def load(self) -> State:
        """Return an empty record."""
        return State()

    async def write(self, state: State) -> None:
        """Do nothing."""


@dataclass(slots=True)
class _Slow:
    """A policy with a version that was too expensive."""

    versions: int
    since: float  # when the last of them was found
    until: float  # the next one is not tried before


class Quarantine:
    """Decides which versions are refused, whatever the compiler would say."""

    def __init__(
        self, record: Record | None = None, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Without `record` the state does not outlive this process."""
        self._record: Record = record or Nowhere()
        self._clock = clock
        self._loaded = False
        self._suspects: dict[str, int] = {}  # unclean ends of versions not tried since
        self._waiting: set[str] = set()  # suspects to be tried after another one
        self._trying: set[str] = set()
        self._answered: set[str] = set()  # compiled, with any result, in this process
        self._refused: dict[str, str] = {}
        self._expensive: dict[str, tuple[tuple[Cause, ...], float]] = {}  # causes, and until when
        self._slow: dict[ObjectKey, _Slow] = {}
        self._undecided: set[str] = set()  # too expensive together: which one is unknown
        self._together = 1  # how many of these are tried at once
        self._hurried = False  # newer versions are tried before them
        self._again: float | None = None  # when waiting versions may be tried
        self._unwritten = False
        self._blame = Blame(clock)
        self._ended = 0  # last end of OPA: seconds since 1970
        self._released: set[str] = set()  # blamed, and found not to be at fault
        self._restore: dict[ObjectKey, Modules] = {}

    async def begin(self, wanted: Versions, good: Versions) -> None:
        """Record the versions that are tried now for the first time. Never raises SyncError."""
        if not self._loaded:
            await self._load()
        self._blame.keep(wanted.keys())
        if self._refused or self._suspects or self._released:
            self._forget_all_but({digest(modules) for modules in wanted.values()})
        names = {digest(modules) for key, modules in wanted.items() if modules != good.get(key)}
        now = self._clock()
        for name in [name for name, (_, until) in self._expensive.items() if until <= now]:
            del self._expensive[name]
            self._answered.discard(name)  # it is tried again, after others
        self._answered &= names
        new = names - self._answered - self._refused.keys() - self._trying
        suspects = sorted(new & self._suspects.keys())
        # One by one: if several were tried together, only one may be at fault.
        self._waiting = set(suspects[not self._trying & self._suspects.keys() :])
        self._waiting |= self._late(wanted, new - self._waiting, now)
        if new := new - self._waiting:
            self._trying |= new
            self._unwritten = True
        await self._write()

    async def ended(self) -> float | None:
        """Remove tried versions from the record; return when waiting ones may be tried.

        That is in seconds; None if none wait.
        """
        if self._trying:
            self._answered |= self._trying
            if self._undecided & self._trying:
                self._together *= 2
            self._undecided -= self._trying
            for name in self._trying:
                self._suspects.pop(name, None)
            self._trying.clear()
            self._unwritten = True
        await self._write()
        waiting, self._waiting, self._hurried = self._waiting, set(), False
        if not waiting:
            return None
        return 0.0 if self._again is None else max(0.0, self._again - self._clock())

    def objection(self, modules: Modules) -> tuple[Cause, ...]:
        """Return why this version is not tried."""
        if not (self._refused or self._waiting or self._expensive):
            return ()
        name = digest(modules)
        if why := self._refused.get(name):
            code, _, message = why.partition(": ")
            return ({"code": code, "message": message},)
        if name in self._waiting:
            late = name not in self._suspects
            return ({"code": WAITING, "message": _LATE if late else _WAITS},)
        causes, until = self._expensive.get(name, ((), 0.0))
        return causes if self._clock() < until else ()

    def judge(self, failures: Mapping[ObjectKey, Iterable[Cause]], wanted: Versions) -> bool:
        """Remember versions that exceeded a limit, so that they do not delay changes of others.

        Returns whether there are new ones; after EXPENSIVE_SECONDS they may be tried again.
        """
        now, before = self._clock(), len(self._expensive)
        for key, causes in failures.items():
            if is_too_expensive(causes) and (name := digest(wanted[key])) not in self._expensive:
                self._expensive[name] = tuple(causes), now + EXPENSIVE_SECONDS
                versions = self._slow[key].versions + 1 if key in self._slow else 1
                pause = min(EXPENSIVE_SECONDS, _PAUSE_SECONDS * 2 ** min(versions - 2, 9))
                self._slow[key] = _Slow(versions, now, now + pause * (versions > 1))
        return len(self._expensive) > before

    def put_off(self, keys: Iterable[ObjectKey], wanted: Versions) -> dict[ObjectKey, list[Cause]]:
        """Try these after all others, fewer at once; return the causes for their statuses."""
        found = {key: digest(wanted[key]) for key in keys}
        self._undecided |= {*found.values()}
        self._trying -= self._undecided
        self._waiting |= self._undecided
        self._together, self._again = max(1, len(found) // 2), None
        self._hurried = self._unwritten = True
        return {key: [{"code": WAITING, "message": _LATE}] for key in found}

    def _late(self, wanted: Versions, new: set[str], now: float) -> set[str]:
        """Return the new versions that wait for others, or for the end of their pause."""
        self._slow = {k: s for k, s in self._slow.items() if now - s.since < _LATE_SECONDS}
        slow = {digest(wanted[k]): s.until for k, s in self._slow.items() if k in wanted}
        self._undecided &= new | self._trying
        late = {
            name: slow.get(name, 0.0) for name in new if name in slow or name in self._undecided
        }
        self._again = None
        if late.keys() < new or self._trying or self._hurried:
            return {*late}
        due = sorted(name for name in self._undecided if late[name] <= now)[: self._together]
        due = due or sorted((n for n in late if late[n] <= now), key=lambda n: late[n])[:1]
        if late and not due:
            self._again = min(late.values())
        return late.keys() - due

    def offered(self, revision: str, versions: Versions) -> None:
        """Record that OPA may hold these versions from now on."""
        self._blame.offered(revision, versions)

    async def opa_ended(self) -> None:
        """Handle and record that OPA has lost all that it held. Never raises SyncError."""
        verdict = self._blame.opa_ended()
        for key, young in verdict.blamed.items():
            name, ends = digest(young.modules), young.count.ends
            self._refused[name] = (
                f"{QUARANTINED}: OPA ended {ends} times while this version was in force (digest"
                f" {name}): the version before it is; change it to have it tried"
            )
            self._restore[key] = young.before
            log.error("policy_quarantined", policy=str(key), digest=name, opa_ended=ends)
        for name in verdict.released:
            if self._refused.pop(name, None) is not None:
                self._released.add(name)
                log.warning("policy_released", digest=name, reason=_UNEXPLAINED)
        if verdict.unexplained:
            metrics.opa_ends_unexplained.inc()
            log.error("opa_ends_unexplained", released=[*verdict.released])
        if self._blame.counts or self._blame.doubtful or verdict.released:
            self._ended, self._unwritten = int(time.time()), True
        await self._write()

    def doubts(self, modules: Modules) -> tuple[Cause, ...]:
        """Return the warning for a version that was taken back and is tried again."""
        if not self._released or digest(modules) not in self._released:
            return ()
        return ({"code": UNEXPLAINED, "message": _UNEXPLAINED},)

    def restored(self, good: Versions) -> dict[ObjectKey, Modules]:
        """Return the last good versions, with the restored ones in place of blamed ones."""
        restore, self._restore = self._restore, {}
        return {key: modules for key, modules in {**good, **restore}.items() if modules}

    async def _load(self) -> None:
        self._loaded = True
        found = await self._record.load()
        self._refused, self._ended = {**found.refused, **self._refused}, found.ended
        try:
            before = versions_of(found.before)
            self._blame.learn(found.counts, found.ends, before, found.doubtful)
        except UNREADABLE as error:
            log.warning("ends_of_opa_not_counted", error=str(error))
        for name, ends in found.trying.items():
            if ends < _UNCLEAN_ENDS:
                self._suspects[name] = ends
                continue
            self._refused[name] = (
                f"{NOT_TRIED}: not tried again: the replicator ended {ends} times while it compiled"
                f" this version (digest {name}); change it to have it tried"
            )
            self._unwritten = True
            log.error("policy_not_tried_again", digest=name, replicator_ended=ends)

    def _forget_all_but(self, names: set[str]) -> None:
        if (self._refused.keys() | self._suspects.keys()) - names:
            self._refused = {n: why for n, why in self._refused.items() if n in names}
            self._suspects = {n: ends for n, ends in self._suspects.items() if n in names}
            self._unwritten = True
        self._released &= names

    async def _write(self) -> None:
        if self._unwritten:
            self._unwritten = False
            trying = self._suspects | {n: self._suspects.get(n, 0) + 1 for n in self._trying}
            state = State(trying, dict(self._refused))
            if self._blame.counts or self._blame.doubtful:
                state.counts = {digest(y.modules): y.count for y in self._blame.counts.values()}
                before = {key: young.before for key, young in self._blame.counts.items()}
                packed, _ = fitting(before, _BEFORE_BYTES)
                state.before = base64.b64encode(packed).decode()
                state.doubtful, state.ends = dict(self._blame.doubtful), self._blame.ends
                state.ended = self._ended
            await self._record.write(state)


def quarantined(failures: Mapping[ObjectKey, Iterable[Cause]]) -> int:
    """Return the number of policies refused for the harm they did, whatever the compiler says."""
    return sum(any(c.get("code") in _CODES for c in causes) for causes in failures.values())
