"""When rules of one name in two policies are the same thing, as one counter of a limit.

Keeps true: it is for users to say, of a kind or of one policy, which comes before the kind; as long
as nobody says anything, rules are the same where they are from the same policies.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Final

from kube_sync.topology.identity import Locator
from kube_sync.topology.nodes import Body, Node
from kube_sync.topology.shapes import text

IDENTITY: Final = "kube-sync.io/rule-identity"  # annotation of kinds and policies


class Identity(StrEnum):
    """Within what rules of one name, and of policies of one kind, are the same."""

    POLICY = "policy"
    TARGET = "target"  # the object that is targeted, whichever section of it
    NAMESPACE = "namespace"  # that the policy lies in
    NAME = "name"  # everywhere


IDENTITIES: Final = {str(identity): identity for identity in Identity}


def identity_of(body: Body) -> tuple[Identity | None, str]:
    """Return what a policy says of itself, and what is wrong with that. Raises Malformed."""
    said = text(body, "metadata", "annotations", IDENTITY)
    if not said or said.lower() in IDENTITIES:
        return IDENTITIES.get(said.lower()), ""
    known = ", ".join(IDENTITIES)
    return None, f'annotation {IDENTITY}: "{said}" is none of {known}, so it counts as not there'


def scope(identity: Identity, policy: Node, targets: Iterable[Locator]) -> str:
    """Return what the rules of a policy have in common with those that they are the same as."""
    match identity:
        case Identity.NAME:
            return "by name"
        case Identity.NAMESPACE:
            return f"in namespace {policy.namespace}"
        case Identity.TARGET:
            objects = {target.partition("#")[0] for target in targets}
            return " ".join(["at", *sorted(objects)])
        case Identity.POLICY:
            return policy.locator
