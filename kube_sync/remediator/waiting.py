"""What is not done although it is wanted: why, since when, and what would release it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

import structlog

from kube_sync.observability import metrics
from kube_sync.remediator.decision_cache import Key

log: structlog.stdlib.BoundLogger = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Wait:
    """One object that is left as it is.

    `changes` are the values of annotations and labels, before and after (None: absent); `until`
    and `since` are Unix seconds; `name` is that of the step, where a person lets it through.
    """

    uid: str
    kind: str
    reason: str
    release: str
    changes: Mapping[str, tuple[str | None, str | None]]
    name: str = ""
    approve: str | None = None
    until: float | None = None
    since: float = 0.0


class Waiting:
    """Every object that waits."""

    def __init__(
        self,
        told: Callable[[Key], None],
        now: Callable[[], float],
        held: Callable[[Key, Wait], None] = lambda _key, _wait: None,
    ) -> None:
        """Tell `told` each object that waits for another reason than before, `held` for what."""
        self._told = told
        self._held = held
        self._now = now
        self._waits: dict[Key, Wait] = {}
        self._counts: Counter[str] = Counter()

    def __iter__(self) -> Iterator[tuple[Key, Wait]]:
        # Sorted for people, and copied since it changes while somebody reads.
        return iter(sorted(self._waits.items(), key=lambda item: (str(item[0][0]), item[0][1])))

    def get(self, key: Key) -> Wait | None:
        """Return what an object waits for."""
        return self._waits.get(key)

    def put(self, key: Key, wait: Wait) -> bool:
        """Take down what an object waits for, and say so once; tell whether that is news."""
        before = self._waits.get(key)
        same = before is not None and (before.uid, before.kind) == (wait.uid, wait.kind)
        since = before.since if before is not None and same else self._now()
        self._waits[key] = replace(wait, since=since)
        if not same:
            self._count(before, -1)
            self._count(wait, 1)
            self._told(key)
            self._held(key, wait)
            metrics.remediations.labels("dry-run" if wait.kind == "dry-run" else "held").inc()
            reason = {"reason": wait.reason, "release": wait.release}
            log.info("remediation_held", gvr=str(key[0]), key=str(key[1]), kind=wait.kind, **reason)
        return not same

    def drop(self, key: Key) -> None:
        """Take down that an object waits for nothing."""
        self._count(self._waits.pop(key, None), -1)

    def _count(self, wait: Wait | None, by: int) -> None:
        if wait is not None:
            self._counts[wait.kind] += by
            metrics.remediation_held.labels(wait.kind).set(self._counts[wait.kind])
