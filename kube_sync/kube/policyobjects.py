"""The objects of one kind of policy, by name: whether there are any, and where, is all we need.

Keeps true: a kind that the API server does not know is one without objects, and known to be so;
any other reason for not seeing them is none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

from kube_sync.kube.collection import Event, Item
from kube_sync.objects import ObjectKey


class PolicyObject:
    """One policy; what it says is for the built-in rules to read."""

    modules: Mapping[str, str] = {}


class PolicyObjects:
    """The Store of one kind's names."""

    def __init__(self, news: Callable[[], None]) -> None:
        """`news` is called after each change."""
        self.listed = False
        self._news = news
        self._names: set[ObjectKey] = set()
        self._namespaces: Counter[str] = Counter()  # how many of them are in each
        self._listing: set[ObjectKey] = set()
        self._lacking = False

    def __iter__(self) -> Iterator[PolicyObject]:
        return (PolicyObject() for _ in self._names)

    def __len__(self) -> int:
        return len(self._names)

    def any_in(self, namespace: str) -> bool:
        """Tell whether a namespace holds one; asked with each review."""
        return self._namespaces[namespace] > 0

    def is_lacking(self) -> bool:
        """Tell, once after each attempt, whether the API server said that it lacks the kind."""
        lacking, self._lacking = self._lacking, False
        return lacking

    async def page(self, items: Sequence[Item]) -> None:
        """Take a part of a LIST."""
        self._listing.update(item.key for item in items)

    def finish(self, *, known: bool) -> None:
        """Hold exactly what the LIST held."""
        self._names, self._listing = self._listing, set()
        self._namespaces = Counter(key.namespace for key in self._names)
        self.listed, self._lacking = True, not known
        self._news()

    def abandon(self) -> None:
        """Forget the LIST that broke off."""
        self._listing = set()

    def apply(self, event: Event) -> None:
        """Take one watch event in."""
        if event.item is None:
            return
        key, was_there = event.item.key, event.item.key in self._names
        if event.type == "DELETED":
            self._names.discard(key)
        else:
            self._names.add(key)
        self._namespaces[key.namespace] += (key in self._names) - was_there
        self._news()
