"""The objects of one kind of policy, by name: whether there are any, and where, is all we need.

Keeps true: a kind that the API server does not know is one without objects, and known to be so;
any other reason for not seeing them is none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from kube_sync.kube.cache import Cache, Changes


class PolicyObject:
    """One policy; what it says is for the built-in rules to read."""

    modules: Mapping[str, str] = {}


_POLICY: Final = PolicyObject()


class PolicyObjects(Cache[PolicyObject]):
    """The objects of one kind; a kind that is unknown has none."""

    def __init__(self, news: Callable[[], None]) -> None:
        """Call `news` when a policy comes or goes, and at the end of each LIST."""
        super().__init__(
            lambda _item: _POLICY, self._changed, self._was_listed, when_unknown="empty"
        )
        self._news = news
        self._namespaces: Counter[str] = Counter()  # how many of them are in each
        self._lacking = False

    def __iter__(self) -> Iterator[PolicyObject]:
        return iter(self.objects.values())

    def any_in(self, namespace: str) -> bool:
        """Tell whether a namespace holds one; asked with each review."""
        return self._namespaces[namespace] > 0

    def is_lacking(self) -> bool:
        """Tell, once after each attempt, whether the API server said that it lacks the kind."""
        lacking, self._lacking = self._lacking, False
        return lacking

    def _changed(self, changes: Changes[PolicyObject]) -> None:
        for key, (_, new) in changes.items():
            self._namespaces[key.namespace] += 1 if new else -1
        self._news()

    def _was_listed(self) -> None:
        self._lacking = not self.served
