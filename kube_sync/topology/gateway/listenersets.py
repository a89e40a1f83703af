"""ListenerSets: the Gateway that each is attached to, and which of its listeners are accepted.

By the Gateway API reference (ListenerSet, AllowedListeners) and GEP-1713: a Gateway accepts no
ListenerSet unless it says so, and has one list of listeners: its own, then those of its
ListenerSets, the oldest first, then by `namespace/name`. Of conflicting listeners the first in that
list is accepted; of listeners of one ListenerSet that conflict with each other, none.

Invariant: the Gateway's own listeners come first and are always accepted here: the Gateway's
controller reports conflicts between them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from kube_sync.topology.conditions import ACCEPTED
from kube_sync.topology.gateway.kinds import GATEWAY, GROUP, LISTENER_SET
from kube_sync.topology.gateway.listener_conflicts import ListenerConflicts
from kube_sync.topology.gateway.validity import Validity, accepts
from kube_sync.topology.links import View
from kube_sync.topology.nodes import GroupKind, Locator, Node, locator
from kube_sync.topology.raw_json import UNREADABLE, Malformed, mapping, reason, text

_CONFLICTED = "Conflicted"


@dataclass(frozen=True, slots=True)
class Attached:
    """The ListenerSets that a Gateway accepts, and the conflicts of their listeners."""

    sets: frozenset[Locator] = frozenset()  # accepted ones
    conflicts: Mapping[Locator, str] = field(default_factory=dict)  # listener: the reason
    problem: str = ""  # why it cannot be evaluated, so that none is accepted


def parents_named(one: Node) -> Iterator[Locator]:
    """Yield the Gateway that a ListenerSet names; parents of other kinds are ignored.

    Raises Malformed.
    """
    ref = mapping(one.body, "spec", "parentRef")
    kind = GroupKind(text(ref, "group", default=GROUP), text(ref, "kind", default=GATEWAY.kind))
    if kind == GATEWAY:
        yield locator(GATEWAY, text(ref, "namespace") or one.namespace, text(ref, "name"))


def gateway_of(one: Node, view: View, validity: Validity) -> Iterator[Locator]:
    """Yield the Gateway that accepts a ListenerSet. Raises Malformed."""
    for gateway in parents_named(one):
        if view.get(gateway) is None:
            message = f"spec.parentRef: {gateway} is not there"
            view.add_condition(ACCEPTED, "Pending", message, status="Unknown")
            continue
        found = attached(gateway, view, validity)
        if one.locator not in found.sets:
            why = f": its {found.problem}" if found.problem else " of this namespace"
            message = f"spec.parentRef: {gateway} takes no ListenerSets{why}"
            view.add_condition(ACCEPTED, "NotAllowed", message)
            continue
        listeners = [listener.locator for listener in view.sections(one.locator)]
        if listeners and all(name in found.conflicts for name in listeners):
            message = f"spec.listeners: each conflicts with another listener of {gateway}"
            view.add_condition(ACCEPTED, "ListenersNotValid", message)
        yield gateway


def listener_set_of(listener: Node, view: View, validity: Validity) -> Iterator[Locator]:
    """Yield the ListenerSet of a listener, if it is of one, and report a conflict."""
    owner = view.get(listener.owner) if listener.owner else None
    if owner is None or owner.kind != LISTENER_SET:
        return
    found = attachment_of(owner, view, validity)
    if found is not None and (why := found.conflicts.get(listener.locator)):
        # Without the other's name: its namespace may be hidden from the author.
        message = "it conflicts with another listener of its Gateway"
        view.add_condition(_CONFLICTED, why, message, status="True")
    yield owner.locator


def attachment_of(one: Node, view: View, validity: Validity) -> Attached | None:
    """Return the result for the Gateway that accepts a ListenerSet, None if none does."""
    try:
        gateways = list(parents_named(one))
    except UNREADABLE:  # the ListenerSet itself has a condition for it
        return None
    known = (attached(gateway, view, validity) for gateway in gateways)
    return next((found for found in known if one.locator in found.sets), None)


def attached(gateway: Locator, view: View, validity: Validity) -> Attached:
    """Return which ListenerSets a Gateway accepts."""
    return view.shared((LISTENER_SET, "of", gateway), lambda: _attached(gateway, view, validity))


def _attached(name: Locator, view: View, validity: Validity) -> Attached:
    gateway, candidates = view.get(name), view.indexed(LISTENER_SET, name)
    if gateway is None:
        return Attached()
    if validity.allowed_listeners:
        try:
            candidates = [one for one in candidates if accepts(gateway, one, view)]
        except UNREADABLE as error:
            return Attached(problem=reason(error))
    sets = sorted(candidates, key=_precedence)
    conflicts = _conflicts(name, sets, view) if validity.listener_conflicts else {}
    return Attached(frozenset(one.locator for one in sets), conflicts)


def _precedence(one: Node) -> tuple[bool, str, str]:
    """Return the sort key of ListenerSets; one without a time, as in a file, is last."""
    try:
        created = text(one.body, "metadata", "creationTimestamp")
    except Malformed:
        created = ""
    return not created, created, f"{one.namespace}/{one.name}"


def _conflicts(gateway: Locator, sets: Iterable[Node], view: View) -> dict[Locator, str]:
    registered = ListenerConflicts()
    registered.add(view.sections(gateway))
    found: dict[Locator, str] = {}
    for one in sets:
        found |= registered.register(view.sections(one.locator))
    return found
