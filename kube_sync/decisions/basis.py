"""The basis of decisions: what the webhook needs to know to reuse an answer of OPA for a class.

Invariant: an answer that OPA gave to a question asked under one revision equals what OPA answers to
any input of the same class as long as the revision is the same. The revision grows after each
change of policies or of data that they read, once OPA has acknowledged it. So an answer that is
older than the last change always belongs to an earlier revision.

A change that OPA may have without having acknowledged it is not covered by the revision. Therefore
the basis is not `current` while such a change is pending for longer than a moment, or while the
source of such data is stale.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Final, Literal

import msgspec

from kube_sync.decisions.classes import why_not_shared
from kube_sync.decisions.policysets import PolicySets, SinglePolicySet
from kube_sync.opa.analysis.paths import Path
from kube_sync.opa.analysis.result import Reads

VERSION: Literal[1] = 1

_LOADING: Final = "OPA is being loaded"


class Basis(msgspec.Struct, frozen=True, omit_defaults=True):
    """What OPA's decisions depend on at one moment.

    `paths` are the fields of the input that the decision reads (null in a path: each member or
    element); None if answers must not be shared, for `reason`.
    """

    instance: str  # of the replicator process; revisions of two instances cannot be compared
    revision: int
    policy: str = ""  # digest of the policies in force
    paths: tuple[Path, ...] | None = None
    reason: str = ""
    current: bool = True
    epoch: str = ""  # of the load of OPA's data, as OPA names it with a decision
    v: Literal[1] = VERSION


class DecisionBasis:
    """The present basis of one replicator process, and those who wait for its next revision."""

    def __init__(self, instance: str) -> None:
        self._present = Basis(instance, 0, reason="OPA is not loaded yet")
        self._is_current: Callable[[], bool] = lambda: False
        self._changed = asyncio.Event()

    def follow(self, is_current: Callable[[], bool], epoch: str) -> None:
        """Let `is_current` tell from now on whether no change of what is read is pending.

        `epoch` is that of the data; its first revision is yet to begin.
        """
        self._is_current = is_current
        self._present = msgspec.structs.replace(self._present, epoch=epoch)

    def leave(self) -> None:
        """End the epoch: what has changed is not known any more."""
        self._is_current = lambda: False
        self.withhold(_LOADING)

    def share(self, policy: str, reads: Reads, documents: Iterable[Path] = ()) -> None:
        """Begin a revision: the policies of this digest are in force, over data that is new."""
        reason = why_not_shared(reads, tuple(documents))
        paths = tuple(reads.input.paths) if reason is None else None
        self._replace(policy=policy, paths=paths, reason=reason or "")

    def withhold(self, reason: str) -> None:
        """Begin a revision whose answers must not be shared."""
        self._replace(paths=None, reason=reason)

    @property
    def present(self) -> Basis:
        """The basis at this moment."""
        return msgspec.structs.replace(self._present, current=self._is_current())

    async def after(self, instance: str, revision: int, seconds: float) -> Basis:
        """Wait for another revision than this, at most so many seconds, and return the basis."""
        try:
            async with asyncio.timeout(seconds):
                while (self._present.instance, self._present.revision) == (instance, revision):
                    await self._changed.wait()
        except TimeoutError:
            pass
        return self.present

    def _replace(self, **changes: object) -> None:
        revision = self._present.revision + 1
        self._present = msgspec.structs.replace(self._present, revision=revision, **changes)
        self._changed.set()
        self._changed = asyncio.Event()


class BasisPublisher:
    """Publishes the basis of one epoch of OPA's data."""

    def __init__(
        self, basis: DecisionBasis, documents: Callable[[], Iterable[Path]], *, static: bool
    ) -> None:
        """`documents` returns the paths of data that is written besides the collections.

        `static`: OPA has policies that the replicator does not write.
        """
        self._basis = basis
        self._documents = documents
        self._static = static
        basis.withhold(_LOADING)

    def publish(self, sets: PolicySets, reads: Reads | None, *, is_changing: bool) -> None:
        """Begin a revision, of answers by these sets of policies, which read this."""
        if is_changing:
            self._basis.withhold("policies are changing")
        elif self._static:
            self._basis.withhold("OPA has policies of its own (policies.static)")
        elif not isinstance(sets, SinglePolicySet):
            self._basis.withhold("a canary decides on some objects")
        elif reads is None:
            self._basis.withhold(_LOADING)
        else:
            self._basis.share(sets.digest, reads, self._documents())
