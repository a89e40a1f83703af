"""The interface of sinks: each is one way to carry out the decisions on target resources.

A target resource has one or more sinks (`placement.resources[].sinks`). One of them leads: the
annotations, or else the first. The reconciler plans with it, asks the brakes, and writes through
it, with the ledger and the Lease. What the guard let through is not stored besides: the reconciler
reads it back from what the leading sink wrote. The others follow (`follower.py`): they get the
decision once the leading sink has carried it out, so no sink is ever ahead of the guard.

The annotations always lead, since they are the object's own (`annotations.py`). A sink that keeps
objects of its own can do both, and does not need to know which it does: `object_sink.py` has all of
it but the form of the objects, where one object has a whole placement.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Protocol

from kube_sync.objects import GroupVersionResource
from kube_sync.remediation.decision_cache import Key
from kube_sync.remediation.plan import Current, Decided, Step, Write

# Called with the targets for which a sink now reads or plans something else; None: with all.
Changed = Callable[[Collection[Key] | None], None]


class Sink(Protocol):
    """One way to carry out decisions on targets."""

    @property
    def name(self) -> str:
        """Its name in the configuration, in metrics and in logs."""

    @property
    def unknown(self) -> str:
        """What has not been listed yet, so that `read` and `plan` would be wrong; "": nothing."""

    def subscribe(self, changed: Changed) -> None:
        """Call `changed` when `read` or `plan` may answer otherwise for the same target."""

    def keys(self) -> Collection[Key]:
        """Return the targets for which something is there, also those that are gone themselves."""

    def read(self, key: Key, target: Current) -> Current:
        """Return the target with what this sink has carried out for it, and nothing else.

        Its annotations are those that the sink keeps: the placement as decisions spell it, and the
        records of its moves (`kube_sync.guard`: HISTORY, ADDITION), if the sink was given some.
        They are read from what is there and not from memory, so that a restart changes nothing.
        """

    def plan(self, key: Key, wanted: Decided, current: Current | None) -> Step:
        """Return the step that makes what is there as decided.

        `current`: what `read` returned; None: the target is gone, and what is there of it has to
        go. Repeats no write: once its step is written, it returns Nothing. If time alone may bring
        another step, Nothing and Unusable say when to plan again.
        """

    async def write(self, key: Key, step: Write) -> None:
        """Write a step that `plan` returned, to which a history may have been added.

        Raises SyncError. Fails if what is there has changed since `read`.
        """


Lead = Callable[[GroupVersionResource], Sink]  # returns the leading sink of a collection


def names(sink: Sink, key: Key) -> dict[str, str]:
    """Return what identifies a sink and a target in the log."""
    return {"sink": sink.name, "gvr": str(key[0]), "key": str(key[1])}
