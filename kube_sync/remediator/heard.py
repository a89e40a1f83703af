"""What the decision stream says now, for a sink that keeps a level of its own.

Keeps true: while the decisions are held, or one has not been confirmed by the stream that is being
read, it may not be acted on. Holds keys and decisions, and acts on nothing itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from kube_sync.decisions.decision import Decision
from kube_sync.decisions.records import (
    BookmarkRecord,
    DecisionRecord,
    DeletedRecord,
    Record,
    StatusRecord,
    Target,
)
from kube_sync.objects import GroupVersionResource, ObjectKey

Key = tuple[GroupVersionResource, ObjectKey]


@dataclass(frozen=True, slots=True)
class Decided:
    """What was decided of the object `uid`, by the policies of this digest."""

    uid: str
    decision: Decision | None
    failure: str | None
    policy: str


class Decisions:
    """The latest decision on each resource."""

    def __init__(self, changed: Callable[[Key], None], released: Callable[[], None]) -> None:
        """Tell `changed` each key that was decided on again, and `released` when holds end."""
        self._changed = changed
        self._released = released
        self._decided: dict[Key, Decided] = {}
        self._unconfirmed: set[Key] = set()
        self._holds: tuple[str, ...] = ("the decision stream has not begun",)

    def get(self, key: Key) -> Decided | None:
        """Return what was decided last."""
        return self._decided.get(key)

    def known(self) -> Iterable[Key]:
        """Return every resource that was decided on."""
        return tuple(self._decided)

    def may_act(self, key: Key) -> bool:
        """Tell whether what is known of `key` may be acted on now."""
        return not self._holds and key not in self._unconfirmed

    def take(self, record: Record | None) -> None:
        """Take one record in; None: a new stream begins."""
        match record:
            case None:
                self._unconfirmed = set(self._decided)
                self._hold(("the decision stream is new",))
            case DecisionRecord():
                self._decide(_key(record.object), record)
            case DeletedRecord():
                self._forget(_key(record.object))
            case StatusRecord():
                self._hold(record.held)
            case BookmarkRecord():
                # What a complete stream did not mention is not decided any more.
                for key in tuple(self._unconfirmed):
                    self._forget(key)

    def _decide(self, key: Key, record: DecisionRecord) -> None:
        self._decided[key] = Decided(record.uid, record.decision, record.failure, record.policy)
        self._unconfirmed.discard(key)
        self._changed(key)

    def _forget(self, key: Key) -> None:
        self._decided.pop(key, None)
        self._unconfirmed.discard(key)
        self._changed(key)

    def _hold(self, reasons: tuple[str, ...]) -> None:
        ended = self._holds and not reasons
        self._holds = reasons
        if ended:
            self._released()


def _key(target: Target) -> Key:
    return (target.gvr, target.key)
