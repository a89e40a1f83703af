"""Denials as Events, about an object that is there, since an Event is looked up by its object.

An update is told about the object itself. What was to be created is not there: it is told about
its controller, which people look at when nothing comes, or else about its namespace. Nothing of
the object goes into an Event but names, and of these no more than a name may be long: nobody has
checked them yet. A dry run leaves no trace, as the registration promises (`sideEffects:
NoneOnDryRun`).
"""

from __future__ import annotations

import msgspec

from kube_sync.admission.review import Review
from kube_sync.errors import NO_JSON
from kube_sync.kube.eventrecorder import EventRecorder
from kube_sync.kube.events import Occurrence, Reference, cut

_NAMESPACE = ("v1", "Namespace")
_LONG = 253  # bytes; the longest name that there is (RFC 1123, a DNS subdomain)


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
    """Return the Event for a denial; `reason` is what whoever asked was told.

    `about` is what was decided, as the first word of the Event's own reason.
    """
    metadata = _metadata(review)
    namespace = _inside(review)
    name = (review.name or metadata.name)[:_LONG]
    kind = review.kind
    related = None
    regarding = Reference(kind.api_version, kind.kind, namespace, name, metadata.uid[:_LONG])
    note = reason
    if review.operation == "CREATE":
        # Its uid, if any, is that of no object: the API server gives it one when it is stored.
        asked = Reference(kind.api_version, kind.kind, namespace, name)
        regarding = _instead(metadata, namespace) or asked
        related = asked if regarding != asked and name else None
        shown = name or f"{metadata.generate_name[:_LONG]}*"
        note = f"{kind.kind} {namespace}/{shown}: {reason}" if namespace else f"{shown}: {reason}"
    action = review.operation.capitalize()
    return Occurrence(regarding, related, _camel(about, outcome), action, cut(note))


def _instead(metadata: _Metadata, namespace: str) -> Reference | None:
    """Return who is told of what is not there: its controller, its namespace, or nobody else.

    Whoever asks may name any owner, so an Event about one never leaves the namespace that they may
    write to: a Node, which lies in none, is not told.
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
    """Return the namespace that the object lies in: none for a Namespace, whatever is said."""
    about = (review.kind.api_version, review.kind.kind)
    return "" if about == _NAMESPACE else review.namespace


def _metadata(review: Review) -> _Metadata:
    try:
        return msgspec.json.decode(review.object, type=_Object).metadata
    except NO_JSON:  # a policy may refuse what is no object of Kubernetes, too
        return _Metadata()


def _camel(about: str, outcome: str) -> str:
    return about + "".join(word.capitalize() for word in outcome.split("_"))


CONTROLLER = "kube-sync.io/admission"


class Denials:
    """Whoever denies tells it here."""

    def __init__(self, recorder: EventRecorder, about: str = "Placement") -> None:
        """`about` is what is denied, as the first word of the Events' reasons."""
        self._about = about
        self._recorder = recorder

    def denied(self, review: Review, outcome: str, reason: str) -> None:
        """Note that a request was refused, and why; never waits, never raises."""
        if not review.dry_run:
            found = occurrence(review, outcome, reason, self._about)
            self._recorder.occurred(found, review.namespace)
