"""The stage of a policy: in force, evaluated beside the policies in force, or only compiled.

Invariant: a policy is in force only without a stage label or with `active`; an unknown stage is not
in force.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, Literal

from kube_sync.errors import NO_JSON
from kube_sync.kube.collection import Item
from kube_sync.kube.meta import object_meta
from kube_sync.objects import ObjectKey

LABEL: Final = "kube-sync.io/stage"
STANDS_FOR: Final = "kube-sync.io/stands-for"  # annotation: the name of the policy it would replace
ACTIVE: Final = "active"
CANDIDATE: Final = "candidate"
SUFFIX: Final = "-candidate"  # name suffix of a staged policy without this annotation
SHADOW: Final = "shadow"
CANARY: Final = "canary"
_OURS: Final = "kube-sync.io/"
# Annotations of a canary: the objects it decides on, and the limits that end it.
SHARE: Final = "kube-sync.io/canary-share"
NAMESPACES: Final = "kube-sync.io/canary-namespaces"
MAX_BREAKS: Final = "kube-sync.io/max-breaks"
MAX_MOVES: Final = "kube-sync.io/max-moves"

MarkKind = Literal["annotation", "label"]
Mark = tuple[MarkKind, str]  # kind and name


def stage_of(labels: Mapping[str, str]) -> str:
    """Return the stage in a policy's labels."""
    return labels.get(LABEL, ACTIVE)


def stands_for(item: Item) -> ObjectKey:
    """Return the object of its namespace that a staged one would replace; it need not exist."""
    named = terms_of(item).get(STANDS_FOR)
    return ObjectKey(item.key.namespace, named or item.key.name.removesuffix(SUFFIX))


def terms_of(item: Item) -> dict[str, str]:
    """Return the annotations of an object that are ours, none if they cannot be read."""
    return {name: text for kind, name, text in _ours(item) if kind == "annotation"}


def marks_of(item: Item) -> tuple[Mark, ...]:
    """Return the annotations and labels of an object that are ours, as kind and name."""
    return tuple((kind, name) for kind, name, _ in _ours(item))


def _ours(item: Item) -> Iterator[tuple[MarkKind, str, str]]:
    try:
        metadata = object_meta(item.body)
    except NO_JSON:
        return
    kinds: tuple[tuple[MarkKind, Mapping[str, str] | None], ...] = (
        ("annotation", metadata.annotations),
        ("label", metadata.labels),
    )
    for kind, found in kinds:
        yield from (
            (kind, name, text) for name, text in (found or {}).items() if name.startswith(_OURS)
        )
