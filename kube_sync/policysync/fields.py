"""What is read back of every copy, whatever its kind: its conditions, and which copy it is.

Keeps true: one path is one scalar, since the agents of spokes report nothing else. The digest and
the generation come with the same read as the conditions, so that what was said of an earlier copy
is never taken for what is said of this one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kube_sync.policysync.copies import DIGEST, FeedbackField

# Of a status that is a PolicyStatus of the Gateway API: whose entry of `ancestors` is read. Of
# several ancestors the first, since an agent reports one match of a path.
ANCESTOR_CONTROLLER: Final = "kube-sync.io/topology"
# GEP-713 has Accepted and Programmed, Kuadrant has Accepted and Enforced (RFC 0004).
CONDITIONS: Final = ("Accepted", "Enforced", "Programmed")
OF_COPY: Final = "digest"
GENERATION: Final = "generation"
OBSERVED: Final = "observedGeneration"
_OF_CONDITION: Final = ("status", "reason", "message", OBSERVED)


def named(condition: str, part: str) -> str:
    """Return the name of a condition's field: `enforcedReason`."""
    return condition[0].lower() + condition[1:] + part[0].upper() + part[1:]


def of_ancestor(name: str) -> str:
    """Return the name of the same field of an ancestor: `ancestorEnforcedReason`."""
    return "ancestor" + name[0].upper() + name[1:]


def fields_of(*, conditions: bool = True, ancestors: bool = False) -> tuple[FeedbackField, ...]:
    """Return what is read of a kind whose status has conditions, or conditions of ancestors."""
    found: tuple[FeedbackField, ...] = _COMMON
    if conditions or not ancestors:
        found += tuple(_conditions(".status"))
    if ancestors:
        path = f'.status.ancestors[?(@.controllerName=="{ANCESTOR_CONTROLLER}")]'
        listed = _conditions(path)
        found += tuple(FeedbackField(of_ancestor(one.name), one.path) for one in listed)
    return found


def _conditions(path: str) -> Iterator[FeedbackField]:
    for condition in CONDITIONS:
        for part in _OF_CONDITION:
            one = f'{path}.conditions[?(@.type=="{condition}")].{part}'
            yield FeedbackField(named(condition, part), one)


_COMMON: Final = (
    FeedbackField(OF_COPY, ".metadata.annotations." + DIGEST.replace(".", "\\.")),
    FeedbackField(GENERATION, ".metadata.generation"),
    FeedbackField(OBSERVED, f".status.{OBSERVED}"),
)
FIELDS: Final = fields_of()
NAMES: Final = frozenset(one.name for one in fields_of(ancestors=True))
