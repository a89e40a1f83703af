"""Publishes Events on policies: a halted canary, or a version that is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from kube_sync.kube.eventrecorder import EventRecorder
from kube_sync.kube.events import Occurrence, Reference, cut
from kube_sync.kube.placementpolicies import KIND, PlacementPolicy
from kube_sync.kube.placementpolicies import PLACEMENT_POLICIES as POLICIES
from kube_sync.kube.policynames import object_key
from kube_sync.ledger.entries import HALTED
from kube_sync.objects import ObjectKey
from kube_sync.opa.scratch import Cause
from kube_sync.policies.bundle import digest
from kube_sync.policies.configmap_status import UNEXPLAINED
from kube_sync.policies.placementpolicy_status import HARMFUL, Policy
from kube_sync.policies.staging.canary import Halt

CONTROLLER: Final = "kube-sync.io/replicator"
_RELEASED: Final = "OpaEndsUnexplained"
_REASONS: Final = {**HARMFUL, UNEXPLAINED: _RELEASED}


class PolicyEvents:
    """Publishes Events, once for the same version of a policy and the same reason."""

    def __init__(self, events: EventRecorder, head: Callable[[], str]) -> None:
        """`head` returns the current head of the ledger."""
        self._events = events
        self._head = head
        self._published: dict[ObjectKey, tuple[str, str]] = {}  # digest of the version, and reason

    def halted(self, policy: Policy, halt: Halt) -> None:
        """Publish that a canary was halted, with the head of the ledger at that time."""
        # The head first, since a message that is too long is cut at its end.
        message = " ".join(part for part in ("It decides nothing any more.", self._head()) if part)
        self._occurred(policy, HALTED, "Halt", f"{message} {'; '.join(halt.why)}")

    def failed(
        self, policies: Mapping[ObjectKey, Policy], failures: Mapping[ObjectKey, Iterable[Cause]]
    ) -> None:
        """Publish which versions are quarantined, not tried again, too expensive, or released."""
        self._published = {key: last for key, last in self._published.items() if key in policies}
        for key, causes in failures.items():
            for cause in causes:
                reason, message = _REASONS.get(str(cause.get("code"))), str(cause.get("message"))
                if reason is None:
                    continue
                version = digest(policies[key].modules), reason
                if self._published.get(key) != version:
                    self._published[key] = version
                    action = "Refuse" if reason != _RELEASED else "Release"
                    self._occurred(policies[key], reason, action, message)

    def _occurred(self, policy: Policy, reason: str, action: str, note: str) -> None:
        where = object_key(policy.key)
        if isinstance(policy, PlacementPolicy):
            version, kind, uid = POLICIES.api_version, KIND, policy.uid
        else:
            version, kind, uid = "v1", "ConfigMap", ""
        about = Reference(version, kind, where.namespace, where.name, uid)
        self._events.occurred(Occurrence(about, None, reason, action, cut(note)), where.namespace)
