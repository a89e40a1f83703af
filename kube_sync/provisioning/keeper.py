"""Writes the planned Secrets of an installation.

Invariant: a Secret is written only at the resourceVersion that was read, so that no
concurrent write is overwritten: after a conflict all is read and planned again. It ends; the
caller runs it every hour.
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
