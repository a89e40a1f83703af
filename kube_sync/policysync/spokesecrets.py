"""Which spokes there are: Secrets with a kubeconfig, one a cluster, under the cluster's name.

Keeps true: a Secret that cannot be used is told by its cluster, in words without its content, and
takes none of the others along; one that is the same as before changes nothing.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from kube_sync.errors import NO_JSON, Misconfigured
from kube_sync.kube.collection import Event, Item
from kube_sync.kube.inline import InlineCredentials, inline_credentials
from kube_sync.objects import GroupVersionResource, ObjectKey

SECRETS: Final = GroupVersionResource("", "v1", "secrets")
KEY: Final = "kubeconfig"
_TYPE: Final = "Opaque"

Access = InlineCredentials | Misconfigured


class SpokeSecrets:
    """The Store of those Secrets of one namespace that a label selects."""

    def __init__(self, changed: Callable[[], None], schemes: tuple[str, ...] = ("https",)) -> None:
        """`schemes` are those that a spoke's URL may have."""
        self.listed = False
        self._changed = changed
        self._schemes = schemes
        self._spokes: dict[str, Access] = {}
        self._listing: dict[str, Access] = {}

    @property
    def spokes(self) -> Mapping[str, Access]:
        """Who we are where, or why not, by cluster."""
        return self._spokes

    async def page(self, items: Sequence[Item]) -> None:
        """Take a part of a LIST."""
        self._listing.update({item.key.name: self._read(item) for item in items})

    def finish(self, *, known: bool) -> None:
        """Hold exactly what the LIST held; every API server knows Secrets, whatever it says."""
        listing, self._listing = self._listing, {}
        self.listed = self.listed or known
        if known:
            self._spokes = listing
            self._changed()

    def abandon(self) -> None:
        """Forget the LIST that broke off."""
        self._listing = {}

    def apply(self, event: Event) -> None:
        """Take one watch event in."""
        if event.item is None:
            return
        if event.type == "DELETED":
            self._spokes.pop(event.item.key.name, None)
        else:
            self._spokes[event.item.key.name] = self._read(event.item)
        self._changed()

    def _read(self, item: Item) -> Access:
        try:
            credentials = inline_credentials(kubeconfig_in(item.key, item.body), self._schemes)
            credentials.tls()
        except Misconfigured as error:
            return error
        return credentials


def kubeconfig_in(key: ObjectKey, body: bytes) -> bytes:
    """Return the kubeconfig out of a Secret. Raises Misconfigured."""
    msg = f"Secret {key} is not of type {_TYPE} with the key {KEY}"
    try:
        secret: Any = msgspec.json.decode(body)
        if secret.get("type", _TYPE) != _TYPE:
            raise Misconfigured(msg)
        return base64.b64decode(secret["data"][KEY], validate=True)
    except (*NO_JSON, KeyError, TypeError, ValueError, AttributeError, binascii.Error):
        # Without its cause, which quotes the content.
        raise Misconfigured(msg) from None
