"""Policy ConfigMaps as the API server holds them.

A ConfigMap is policy if it has at least one key that ends in `.rego`; its other keys are not, and
a ConfigMap without such a key is ignored and does not count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from kube_sync.kube.collection import Event, Item
from kube_sync.objects import GroupVersionResource, ObjectKey

CONFIGMAPS = GroupVersionResource("", "v1", "configmaps")
# kube-mgmt's name, so that people and tools that read it go on working.
STATUS = "openpolicyagent.org/kube-mgmt-status"


@dataclass(frozen=True, slots=True)
class PolicyMap:
    """One policy ConfigMap."""

    key: ObjectKey
    version: str
    modules: Mapping[str, str]  # source by OPA's policy id, `<namespace>/<name>/<key>`
    status: str | None  # what its status annotation says
    born: str = ""  # creationTimestamp (RFC 3339, in UTC): sorts as text


class _Metadata(msgspec.Struct, rename="camel"):
    annotations: dict[str, str] | None = None
    creation_timestamp: str | None = None


class _ConfigMap(msgspec.Struct):
    metadata: _Metadata
    data: dict[str, str] | None = None


_configmaps = msgspec.json.Decoder(_ConfigMap)


def parse(item: Item) -> PolicyMap | None:
    """Return the policy in a ConfigMap, None if there is none."""
    decoded = _configmaps.decode(item.body)
    modules = {
        f"{item.key}/{name}": source
        for name, source in (decoded.data or {}).items()
        if name.endswith(".rego")
    }
    if not modules:
        return None
    status = (decoded.metadata.annotations or {}).get(STATUS)
    born = decoded.metadata.creation_timestamp or ""
    return PolicyMap(item.key, item.version, modules, status, born)


class PolicyMaps:
    """The Store of one policy namespace."""

    def __init__(self, namespace: str, news: Callable[[], None]) -> None:
        self.namespace = namespace
        self.listed = False
        self._news = news
        self._maps: dict[ObjectKey, PolicyMap] = {}
        self._listing: dict[ObjectKey, PolicyMap] = {}

    def __iter__(self) -> Iterator[PolicyMap]:
        return iter(self._maps.values())

    def __len__(self) -> int:
        return len(self._maps)

    async def page(self, items: Sequence[Item]) -> None:
        """Take a part of a LIST."""
        found = (parse(item) for item in items)
        self._listing.update({policy.key: policy for policy in found if policy is not None})

    def finish(self, *, known: bool) -> None:
        """Hold exactly the policies of the LIST."""
        self._maps, self._listing = self._listing, {}
        self.listed = known
        self._news()

    def abandon(self) -> None:
        """Forget the LIST that broke off."""
        self._listing = {}

    def apply(self, event: Event) -> None:
        """Take one watch event in."""
        if event.item is None:
            return
        policy = None if event.type == "DELETED" else parse(event.item)
        if policy is None:
            self._maps.pop(event.item.key, None)
        else:
            self._maps[policy.key] = policy
        self._news()
