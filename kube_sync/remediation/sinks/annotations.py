"""The sink that writes decisions to the annotations and labels of the target itself."""

from __future__ import annotations

from kube_sync.decisions.sealing import Place, Seals
from kube_sync.remediation.decision_cache import Key
from kube_sync.remediation.plan import Check, Current, Decided, Step, Write, plan
from kube_sync.remediation.sinks.sink import Changed
from kube_sync.remediation.writer import Patch


class AnnotationSink:
    """Patches targets."""

    name = "annotations"
    unknown = ""  # the reconciler lists the targets

    def __init__(
        self,
        patch: Patch,
        seals: Seals | None = None,
        unreadable: Check = lambda _annotations: None,
    ) -> None:
        """Sign the records of requested values with `seals`.

        `unreadable` validates decided annotations.
        """
        self._patch = patch
        self._seals = seals or Seals()
        self._unreadable = unreadable

    def subscribe(self, changed: Changed) -> None:
        """Do nothing: all that it reads is the target."""

    def keys(self) -> tuple[Key, ...]:
        """Return nothing: annotations go with the target."""
        return ()

    def read(self, key: Key, target: Current) -> Current:  # noqa: ARG002 - of Sink
        """Return the target as it is."""
        return target

    def plan(self, key: Key, wanted: Decided, current: Current | None) -> Step:
        """Return the PATCH that makes the target as decided."""
        gvr, name = key
        place = Place(gvr.group, gvr.resource, name.namespace, name.name)
        return plan(wanted, current, place, self._seals, self._unreadable)

    async def write(self, key: Key, step: Write) -> None:
        """Send a PATCH. Raises SyncError."""
        await self._patch(*key, step)
