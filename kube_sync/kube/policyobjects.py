"""Cache of which objects of a policy kind exist, by name, without their content.

Invariant: a kind that the API server does not know counts as listed and empty; any other failure
does not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from kube_sync.kube.cache import Cache, Changes


class PolicyObject:
    """One policy; its content is read by the built-in rules."""

    modules: Mapping[str, str] = {}


_POLICY: Final = PolicyObject()


class PolicyObjects(Cache[PolicyObject]):
    """Caches the objects of one kind; an unknown kind has none."""

    def __init__(self, on_change: Callable[[], None]) -> None:
        """Call `on_change` when a policy is created or deleted, and at the end of each LIST."""
        super().__init__(
            lambda _item: _POLICY, self._changed, self._was_listed, when_unknown="empty"
        )
        self._notify = on_change
        self._namespaces: Counter[str] = Counter()  # number of policies in each namespace
        self._lacking = False

    def __iter__(self) -> Iterator[PolicyObject]:
        return iter(self.objects.values())

    def any_in(self, namespace: str) -> bool:
        """Return whether a namespace has one; called for each admission review."""
        return self._namespaces[namespace] > 0

    def is_lacking(self) -> bool:
        """Return, once after each LIST, whether the API server lacked the kind."""
        lacking, self._lacking = self._lacking, False
        return lacking

    def _changed(self, changes: Changes[PolicyObject]) -> None:
        for key, (_, new) in changes.items():
            self._namespaces[key.namespace] += 1 if new else -1
        self._notify()

    def _was_listed(self) -> None:
        self._lacking = not self.served
