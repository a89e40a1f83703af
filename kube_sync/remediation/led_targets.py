"""The target objects, each as its leading sink has it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

from kube_sync.objects import GroupVersionResource
from kube_sync.remediation.decision_cache import Key
from kube_sync.remediation.plan import Current, Nothing, Step, Wanted
from kube_sync.remediation.planner import Moves
from kube_sync.remediation.sinks.sink import Lead, Sink
from kube_sync.remediation.targets import Targets


class LedTargets:
    """Caches targets, and reads and plans them by their leading sinks."""

    def __init__(
        self,
        lead: Lead,
        changed: Callable[[Key], None],
        listed: Callable[[], None],
        moves: Moves,
    ) -> None:
        """Call `changed` with each target that differs, and `listed` at the end of a LIST.

        `moves` says what else is read of each target.
        """
        self._lead = lead
        self._changed = changed
        self._listed = listed
        self._moves = moves
        self._targets: dict[GroupVersionResource, Targets] = {}
        self._leading: dict[Sink, None] = {}

    def of(self, gvr: GroupVersionResource) -> Targets:
        """Return the Store for one collection."""
        if gvr not in self._targets:
            lead, moves = self._lead(gvr), self._moves
            self._leading[lead] = None
            self._targets[gvr] = Targets(
                lambda key: self._changed((gvr, key)),
                self._listed,
                moves.read_health(gvr),
                # Other sinks do not keep the record of an addition on the target.
                digests=moves.in_steps and lead.name != "annotations",
            )
        return self._targets[gvr]

    @property
    def holds(self) -> list[str]:
        """What has not been listed yet, of the targets and of what their leading sinks read."""
        reasons = [f"{gvr}: not listed yet" for gvr, t in self._targets.items() if not t.listed]
        return reasons + [f"{what}: not listed yet" for s in self._leading if (what := s.unknown)]

    @property
    def namespaces(self) -> Counter[str]:
        """The number of targets in each namespace that are not idle."""
        return sum((t.namespaces for t in self._targets.values()), Counter[str]())

    def keys(self) -> Iterator[Key]:
        """Yield every target."""
        return ((gvr, name) for gvr, t in self._targets.items() for name in t.objects)

    def objects(self) -> list[tuple[Key, Current]]:
        """Return every target."""
        return [
            (key := (gvr, name), self._lead(gvr).read(key, found))
            for gvr, targets in self._targets.items()
            for name, found in targets.objects.items()
        ]

    def get(self, key: Key) -> Current | None:
        """Return a target, None if there is none."""
        gvr, name = key
        target = self._targets[gvr].get(name) if gvr in self._targets else None
        return None if target is None else self._lead(gvr).read(key, target)

    def plan(self, key: Key, wanted: Wanted | None, current: Current | None) -> Step:
        """Return the step that makes a target as decided."""
        # What a sink has of a target that is gone is its follower's to remove.
        return Nothing() if current is None else self._lead(key[0]).plan(key, wanted, current)
