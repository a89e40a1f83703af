"""Records denials as Events about an existing object, since Events are looked up by their object.

A denied update gets an Event about the object itself. A denied create has no object: its Event is
about its controller, where people look for the cause, or else about its namespace. Of the object an
Event contains names only, cut to the length of a name: they are not validated yet. A dry run writes
no Event, as the registration declares (`sideEffects: NoneOnDryRun`).
"""

from __future__ import annotations

import msgspec

from kube_sync.admission.review import Review
from kube_sync.errors import NO_JSON
from kube_sync.kube.eventrecorder import EventRecorder
from kube_sync.kube.events import Occurrence, Reference, cut

_NAMESPACE = ("v1", "Namespace")
_LONG = 253  # bytes; the length limit of a name (RFC 1123, a DNS subdomain)


class _Owner(msgspec.Struct, rename="camel"):
    api_version: str
    kind: str
    name: str
    uid: str = ""
    controller: bool | None = None


# Not kube.meta: no API server has validated what is reviewed.
class _Metadata(msgspec.Struct, rename="camel"):
    name: str = ""
    generate_name: str = ""
    uid: str = ""
    owner_references: list[_Owner] | None = None


class _Object(msgspec.Struct):
    metadata: _Metadata


def occurrence(review: Review, outcome: str, reason: str, about: str = "Placement") -> Occurrence:
    """Return the Event for a denial; `reason` is the message that the client gets.

    `about`: the subject of the decision, the first word of the Event's reason.
    """
    metadata = _metadata(review)
    namespace = _inside(review)
    name = (review.name or metadata.name)[:_LONG]
    kind = review.kind
    related = None
    regarding = Reference(kind.api_version, kind.kind, namespace, name, metadata.uid[:_LONG])
    note = reason
    if review.operation == "CREATE":
        # Without a uid: the API server assigns it when the object is stored.
        asked = Reference(kind.api_version, kind.kind, namespace, name)
        regarding = _instead(metadata, namespace) or asked
        related = asked if regarding != asked and name else None
        shown = name or f"{metadata.generate_name[:_LONG]}*"
        note = f"{kind.kind} {namespace}/{shown}: {reason}" if namespace else f"{shown}: {reason}"
    action = review.operation.capitalize()
    return Occurrence(regarding, related, _camel(about, outcome), action, cut(note))


def _instead(metadata: _Metadata, namespace: str) -> Reference | None:
    """Return the object for the Event of a denied create: its controller, its namespace, or None.

    A client may name any owner, so an Event about one is always in the namespace of the request: a
    Node, which is cluster-scoped, gets none.
    """
    for owner in metadata.owner_references or ():
        if owner.controller and namespace and (owner.api_version, owner.kind) != ("v1", "Node"):
            return Reference(
                owner.api_version[:_LONG],
                owner.kind[:_LONG],
                namespace,
                owner.name[:_LONG],
                owner.uid[:_LONG],
            )
    return Reference(*_NAMESPACE, "", namespace) if namespace else None


def _inside(review: Review) -> str:
    """Return the namespace of the object: none for a Namespace, whatever the request says."""
    about = (review.kind.api_version, review.kind.kind)
    return "" if about == _NAMESPACE else review.namespace


def _metadata(review: Review) -> _Metadata:
    try:
        return msgspec.json.decode(review.object, type=_Object).metadata
    except NO_JSON:  # a policy may deny what is no Kubernetes object, too
        return _Metadata()


def _camel(about: str, outcome: str) -> str:
    return about + "".join(word.capitalize() for word in outcome.split("_"))


CONTROLLER = "kube-sync.io/admission"


class Denials:
    """Records denials as Events."""

    def __init__(self, recorder: EventRecorder, about: str = "Placement") -> None:
        """`about`: the subject of the decisions, the first word of the Events' reasons."""
        self._about = about
        self._recorder = recorder

    def denied(self, review: Review, outcome: str, reason: str) -> None:
        """Record a denied request and the reason; never waits, never raises."""
        if not review.dry_run:
            found = occurrence(review, outcome, reason, self._about)
            self._recorder.occurred(found, review.namespace)
