"""Writes the planned Secrets of an installation.

Invariant: a Secret is written only at the resourceVersion that was read, so that no
concurrent write is overwritten: after a conflict all is read and planned again. It ends; the
caller runs it every hour.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from kube_sync.errors import Conflict, Retriable
from kube_sync.kube.client import KubeClient
from kube_sync.kube.meta import ObjectMeta
from kube_sync.kube.wholeobjects import put_object, read_object
from kube_sync.objects import ObjectKey
from kube_sync.provisioning.plan import names, planned, planned_generator
from kube_sync.provisioning.secrets import (
    PART_OF_ARGOCD,
    SECRETS,
    Content,
    read_secret,
    written,
)
from kube_sync.provisioning.wanted import GENERATOR, Wanted

_ATTEMPTS: Final = 3
_MISSING: Final = ObjectMeta()


async def provision(client: KubeClient, wanted: Wanted, now: float) -> list[str]:
    """Write what is due; return one line for each Secret. Raises SyncError."""
    done: list[str] = []
    now = float(int(now))  # whole seconds, as in the annotation
    for _ in range(_ATTEMPTS):
        try:
            await _once(client, wanted, now, done)
        except Conflict:
            continue
        return done
    msg = "the Secrets are being changed by somebody else"
    raise Retriable(msg)


async def _once(client: KubeClient, wanted: Wanted, now: float, done: list[str]) -> None:
    found = {name: await _read(client, wanted.namespace, name) for name in names(wanted)}
    held = {name: one.content for name, one in found.items() if one.content is not None}
    for name, content in planned(held, wanted, now).items():
        await _write(client, found[name], content, done)
    if wanted.argocd is None:
        return
    own, sent = [await _read(client, n, GENERATOR) for n in (wanted.namespace, wanted.argocd)]
    own_now, sent_now = planned_generator(own.content, sent.content, now)
    if own_now is not None:
        await _write(client, own, own_now, done)
    if sent_now is not None:
        await _write(client, sent, sent_now, done, PART_OF_ARGOCD)


@dataclass(frozen=True, slots=True)
class _Found:
    """A Secret as it was read; without content and metadata there is none."""

    key: ObjectKey
    content: Content | None = None
    metadata: ObjectMeta = _MISSING


async def _read(client: KubeClient, namespace: str, name: str) -> _Found:
    key = ObjectKey(namespace, name)
    body = await read_object(client, SECRETS, key)
    return _Found(key) if body is None else _Found(key, *read_secret(str(key), body))


async def _write(
    client: KubeClient,
    found: _Found,
    content: Content,
    done: list[str],
    labels: Mapping[str, str] = MappingProxyType({}),
) -> None:
    body = written(found.key, content, found.metadata, labels)
    version = found.metadata.resource_version
    await put_object(client, SECRETS, body, version)
    done.append(f"Secret {found.key} {'renewed' if version else 'made'}")
