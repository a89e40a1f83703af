"""What is read back of every copy, whatever its kind: its conditions, and which copy it is.

Keeps true: one path is one scalar, since the agents of spokes report nothing else. The digest and
the generation come with the same read as the conditions, so that what was said of an earlier copy
is never taken for what is said of this one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kube_sync.policysync.copies import DIGEST, FeedbackField

# GEP-713 has Accepted and Programmed, Kuadrant has Accepted and Enforced (RFC 0004).
CONDITIONS: Final = ("Accepted", "Enforced", "Programmed")
OF_COPY: Final = "digest"
GENERATION: Final = "generation"
OBSERVED: Final = "observedGeneration"
PARTS: Final = ("status", "reason", "message", OBSERVED)


def named(condition: str, part: str) -> str:
    """Return the name of a condition's field: `enforcedReason`."""
    return condition[0].lower() + condition[1:] + part[0].upper() + part[1:]


def fields_of(*, conditions: bool = True, ancestors: bool = False) -> tuple[FeedbackField, ...]:
    """Return what is read of a kind whose status has conditions, or ancestors that have them.

    What the entries of ancestors say is read by `ancestor_fields`, which needs to know the copy.
    """
    return (*_COMMON, *_conditions()) if conditions or not ancestors else _COMMON


def _conditions() -> Iterator[FeedbackField]:
    for condition in CONDITIONS:
        for part in PARTS:
            path = f'.status.conditions[?(@.type=="{condition}")].{part}'
            yield FeedbackField(named(condition, part), path)


_COMMON: Final = (
    FeedbackField(OF_COPY, ".metadata.annotations." + DIGEST.replace(".", "\\.")),
    FeedbackField(GENERATION, ".metadata.generation"),
    FeedbackField(OBSERVED, f".status.{OBSERVED}"),
)
FIELDS: Final = fields_of()
NAMES: Final = frozenset(one.name for one in FIELDS)
