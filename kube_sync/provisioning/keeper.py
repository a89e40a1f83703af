"""Brings the Secrets of an installation to what is planned.

Keeps true: a Secret is written only as the one that was read (its resource version), so that
whoever wrote meanwhile is not overwritten: then all is read and planned again. It ends; something
else calls it every hour.
"""

from __future__ import annotations

from typing import Final

from kube_sync.errors import Conflict, Retriable
from kube_sync.kube.client import KubeClient
from kube_sync.kube.wholeobjects import read_object
from kube_sync.objects import ObjectKey
from kube_sync.provisioning.plan import names, planned
from kube_sync.provisioning.secrets import SECRETS, Content, read_secret, write_secret
from kube_sync.provisioning.wanted import Wanted

_ATTEMPTS: Final = 3


async def provision(client: KubeClient, wanted: Wanted, now: float) -> list[str]:
    """Return what was made or changed, one line for each Secret. Raises SyncError."""
    done: list[str] = []
    now = float(int(now))  # as it is written down
    for _ in range(_ATTEMPTS):
        try:
            await _once(client, wanted, now, done)
        except Conflict:
            continue
        return done
    msg = "the Secrets are being changed by somebody else"
    raise Retriable(msg)


async def _once(client: KubeClient, wanted: Wanted, now: float, done: list[str]) -> None:
    held: dict[str, Content] = {}
    versions: dict[str, str] = {}
    for name in names(wanted):
        body = await read_object(client, SECRETS, ObjectKey(wanted.namespace, name))
        if body is not None:
            held[name], versions[name] = read_secret(f"{wanted.namespace}/{name}", body)
    for name, content in planned(held, wanted, now).items():
        version = versions.get(name)
        body = write_secret(wanted.namespace, name, content, version)
        if version is None:
            await client.request("POST", SECRETS.path(wanted.namespace), body=body)
        else:
            await client.request("PUT", SECRETS.path(wanted.namespace, name), body=body)
        done.append(f"Secret {wanted.namespace}/{name} {'made' if version is None else 'renewed'}")
