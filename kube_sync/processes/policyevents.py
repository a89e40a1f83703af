"""Events beside policies: a canary is halted, or a version is refused for what it did or costs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from kube_sync.kube.eventrecorder import EventRecorder
from kube_sync.kube.events import Occurrence, Reference, cut
from kube_sync.kube.placementpolicies import KIND, PlacementPolicy
from kube_sync.kube.placementpolicies import PLACEMENT_POLICIES as POLICIES
from kube_sync.kube.policynames import object_key
from kube_sync.ledger.heads import HALTED
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
    """Writes them, of the same version of a policy for the same reason once."""

    def __init__(self, events: EventRecorder, head: Callable[[], str]) -> None:
        """`head` returns up to where the ledger is written."""
        self._events = events
        self._head = head
        self._told: dict[ObjectKey, tuple[str, str]] = {}  # digest of the version, and reason

    def halted(self, policy: Policy, halt: Halt) -> None:
        """Tell that a canary was halted, and up to where the ledger was written by then."""
        # The head first, since what is too long is cut at its end.
        said = " ".join(part for part in ("It decides nothing any more.", self._head()) if part)
        self._occurred(policy, HALTED, "Halt", f"{said} {'; '.join(halt.why)}")

    def failed(
        self, policies: Mapping[ObjectKey, Policy], failures: Mapping[ObjectKey, Iterable[Cause]]
    ) -> None:
        """Tell which versions are quarantined, not tried again, too expensive, or released."""
        self._told = {key: told for key, told in self._told.items() if key in policies}
        for key, causes in failures.items():
            for cause in causes:
                reason, message = _REASONS.get(str(cause.get("code"))), str(cause.get("message"))
                if reason is None:
                    continue
                version = digest(policies[key].modules), reason
                if self._told.get(key) != version:
                    self._told[key] = version
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
