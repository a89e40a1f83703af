"""Kubernetes Events of policy sync: held removals, their release, and refused kinds.

Invariant: each change is published once, with the message of the condition, and a state that lasts
is not repeated; the conditions themselves are the memory across restarts. A hold that the next
round ends is not published. A deleted or unsynced policy carries no condition: every process
publishes its hold once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from kube_sync.guard import Withheld
from kube_sync.kube.conditions import Condition, message
from kube_sync.kube.events import Occurrence, Reference, cut
from kube_sync.objects import GroupVersionResource
from kube_sync.policysync.hub_status_writer import HELD, TYPE, is_momentary, removals_held
from kube_sync.policysync.object_cache import Body
from kube_sync.policysync.placers import Subject, subject_of
from kube_sync.policysync.policy_state import PolicyState
from kube_sync.topology.raw_json import UNREADABLE, items, text, text_if_any

_RELEASED: Final = "no removal of its copies is held any more"


@dataclass(frozen=True, slots=True)
class _Published:
    """The message of a policy's last Event on holds, and its published approvals."""

    held: str = ""
    approved: frozenset[str] = frozenset()


class PolicySyncEvents:
    """Publishes Events; never waits, never raises."""

    def __init__(
        self,
        record: Callable[[Occurrence, str], None],
        kind_of: Callable[[GroupVersionResource], str],
    ) -> None:
        """`record` publishes an Event in a namespace; `kind_of` returns "" if unknown."""
        self._record = record
        self._kind_of = kind_of
        self._published: dict[Subject, _Published] = {}
        self._refused: dict[str, str] = {}

    def reset(self) -> None:
        """Forget what was published: another process may have published more since."""
        self._published.clear()
        self._refused.clear()

    def publish_removals(
        self, found: PolicyState, held: Mapping[str, Withheld], approved: Mapping[str, str]
    ) -> None:
        """Publish the held and the approved removals of a policy, both by cluster."""
        if any(map(is_momentary, held.values())):
            return
        subject, listed = subject_of(found.policy), _message(found.body, HELD)
        before = self._published.get(subject, _Published(listed))
        now = _Published(next((one.message for one in removals_held(held)), ""), _names(approved))
        if before.held and now.approved - before.approved:
            self._publish(found, "RemovalsApproved", "Approve", _approval(approved), warns=False)
        elif before.held and not now.held:
            self._publish(found, "RemovalsReleased", "Release", _RELEASED, warns=False)
        if now.held not in ("", before.held):
            self._publish(found, "RemovalsHeld", "Hold", now.held)
        self._published[subject] = now
        if now == _Published(listed):
            del self._published[subject]  # no longer needed: the policy's own condition has it

    def publish_refused(self, gateway_class: Body, conditions: Iterable[Condition]) -> None:
        """Publish the refused kinds in a class's parameters."""
        name, uid = (text_if_any(gateway_class, "metadata", one) for one in ("name", "uid"))
        if not name:
            return
        before = self._refused.get(name, _message(gateway_class, TYPE, "False"))
        refusals = [one for one in conditions if (one.type, one.status) == (TYPE, "False")]
        self._refused[name] = next((one.message for one in refusals), "")
        for one in refusals:
            if one.message != before:
                about = Reference("gateway.networking.k8s.io/v1", "GatewayClass", "", name, uid)
                occurrence = Occurrence(about, None, one.reason, "Refuse", cut(one.message))
                self._record(occurrence, "")

    def _publish(
        self, found: PolicyState, reason: str, action: str, note: str, *, warns: bool = True
    ) -> None:
        gvr, namespace, name = found.policy
        if kind := self._kind_of(gvr):
            version = gvr.api_version
            uid = text_if_any(found.body, "metadata", "uid")
            about = Reference(version, kind, namespace, name, uid)
            occurrence = Occurrence(about, None, reason, action, cut(note), warns=warns)
            self._record(occurrence, namespace)


def _names(approved: Mapping[str, str]) -> frozenset[str]:
    return frozenset(approved.values())


def _approval(approved: Mapping[str, str]) -> str:
    alike: dict[str, list[str]] = {}
    for cluster, name in sorted(approved.items()):
        alike.setdefault(name, []).append(cluster)
    return message(
        f"{name} was approved, for {', '.join(of)}" for name, of in sorted(alike.items())
    )


def _message(body: Body | None, condition: str, status: str = "True") -> str:
    """Return the message of an object's own condition, or of an ancestor's; "" if none."""
    try:
        ancestors = () if body is None else items(body, "status", "ancestors")
        for one in (*_conditions(body), *(c for a in ancestors for c in items(a, "conditions"))):
            if (text(one, "type"), text(one, "status")) == (condition, status):
                return text(one, "message")
    except UNREADABLE:
        return ""
    return ""


def _conditions(body: Body | None) -> Iterable[Body]:
    return () if body is None else items(body, "status", "conditions")
