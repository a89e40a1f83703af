"""The spokes by their Secrets with a kubeconfig, one a cluster, under the cluster's name.

Invariant: an unusable Secret is reported for its cluster, without its content, and affects no
other; one that is the same as before changes nothing.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from kube_sync.errors import NO_JSON, Misconfigured
from kube_sync.kube.cache import Cache
from kube_sync.kube.collection import Item
from kube_sync.kube.inline import InlineCredentials, inline_credentials
from kube_sync.objects import GroupVersionResource, ObjectKey

SECRETS: Final = GroupVersionResource("", "v1", "secrets")
KEY: Final = "kubeconfig"
_TYPE: Final = "Opaque"

Access = InlineCredentials | Misconfigured


class SpokeSecrets(Cache[Access]):
    """The Secrets of one namespace that a label selects."""

    def __init__(self, changed: Callable[[], None], schemes: tuple[str, ...] = ("https",)) -> None:
        """`schemes` are those that a spoke's URL may have."""
        super().__init__(self._read, lambda _changes: changed())
        self._schemes = schemes

    @property
    def spokes(self) -> Mapping[str, Access]:
        """The credentials, or the reason why there are none, by cluster."""
        return {key.name: access for key, access in self.objects.items()}

    def _read(self, item: Item) -> Access:
        try:
            credentials = inline_credentials(kubeconfig_in(item.key, item.body), self._schemes)
            credentials.tls()
        except Misconfigured as error:
            return error
        return credentials


def kubeconfig_in(key: ObjectKey, body: bytes) -> bytes:
    """Return the kubeconfig of a Secret. Raises Misconfigured."""
    msg = f"Secret {key} is not of type {_TYPE} with the key {KEY}"
    try:
        secret: Any = msgspec.json.decode(body)
        if secret.get("type", _TYPE) != _TYPE:
            raise Misconfigured(msg)
        return base64.b64decode(secret["data"][KEY], validate=True)
    except (*NO_JSON, KeyError, TypeError, ValueError, AttributeError, binascii.Error):
        # Without its cause, which quotes the content.
        raise Misconfigured(msg) from None
