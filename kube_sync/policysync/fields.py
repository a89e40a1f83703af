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
_OF_CONDITION: Final = ("status", "reason", "message", OBSERVED)


def named(condition: str, part: str) -> str:
    """Return the name of a condition's field: `enforcedReason`."""
    return condition[0].lower() + condition[1:] + part[0].upper() + part[1:]


def _fields() -> Iterator[FeedbackField]:
    yield FeedbackField(OF_COPY, ".metadata.annotations." + DIGEST.replace(".", "\\."))
    yield FeedbackField(GENERATION, ".metadata.generation")
    yield FeedbackField(OBSERVED, f".status.{OBSERVED}")
    for condition in CONDITIONS:
        for part in _OF_CONDITION:
            path = f'.status.conditions[?(@.type=="{condition}")].{part}'
            yield FeedbackField(named(condition, part), path)


FIELDS: Final = tuple(_fields())
NAMES: Final = frozenset(field.name for field in FIELDS)
