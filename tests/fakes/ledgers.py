"""Ledgers to test with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from kube_sync.ledger.entries import Entry, Text, text_of
from kube_sync.ledger.heads import Head
from kube_sync.ledger.reading import Object, reading
from kube_sync.ledger.store import Store
from kube_sync.ledger.texts import WINDOW
from kube_sync.ledger.verifying import Verified, verify

WEB = Object("replicasets.v1.apps", "shop", "web")
START = 1_000_000.0  # Unix seconds


def decided(on: str, name: str = "web", **said: Any) -> tuple[Entry, list[Text]]:
    """Return the decision that an object goes `on` a cluster."""
    body = text_of({"annotations": {"clusters": on}})
    fields = {"uid": f"uid-{name}", "status": "decided", "cause": "object", "policy": "p1"} | said
    entry = Entry(
        kind="decision", collection=WEB.collection, namespace="shop", name=name, new=body.digest
    )
    return msgspec.structs.replace(entry, **fields), [body]


def gone(name: str = "web") -> tuple[Entry, list[Text]]:
    return Entry(kind="gone", collection=WEB.collection, namespace="shop", name=name), []


def filled(path: Path, count: int, *, chunk: int = 5_000, window: int = WINDOW) -> Store:
    """Return a ledger in which so many decisions were recorded, one a second."""
    store = Store(path, chunk=chunk, window=window)
    for number in range(count):
        store.append([decided(f"c{number}")], START + number)
    return store


def verified(path: Path, *heads: Head) -> Verified:
    with reading(path) as found:
        return verify(found.db, heads)
