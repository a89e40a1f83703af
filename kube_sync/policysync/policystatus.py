"""What the hub's policies carry of their copies: where they are, and what the clusters say.

Keeps true: it is written only where it differs; a policy that is not synced any more carries
nothing of ours.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import structlog

from kube_sync.errors import NotFound, Refused, Terminal
from kube_sync.kube.client import KubeClient
from kube_sync.kube.wholeobjects import read_object
from kube_sync.objects import ObjectKey
from kube_sync.policysync.aggregate import aggregate, extra_values
from kube_sync.policysync.annotations import placed_annotations
from kube_sync.policysync.bodies import Body
from kube_sync.policysync.copies import PLACED, STATUS, PolicyId
from kube_sync.policysync.desired import Desired
from kube_sync.policysync.downstream import Downstream
from kube_sync.policysync.hubstate import HubState
from kube_sync.policysync.looking import Look
from kube_sync.policysync.statuses import removals_held
from kube_sync.policysync.telling import Telling
from kube_sync.safety import Held

log: structlog.stdlib.BoundLogger = structlog.get_logger()


class PolicyStatus:
    """Writes on policies of the hub."""

    def __init__(
        self, client: KubeClient, state: HubState, telling: Telling, downstream: Downstream
    ) -> None:
        self._client = client
        self._state = state
        self._telling = telling
        self._downstream = downstream

    async def tell(
        self, found: Look, held: Mapping[str, Held], troubles: Mapping[str, str]
    ) -> bool:
        """Bring annotations and status up to date; return whether that took a write.

        Raises SyncError.
        """
        body, kind, gvr = found.body, found.kind, found.policy.gvr
        if body is None or kind is None:
            return False
        wanted = found.wanted or Desired()
        extra = extra_values(wanted, found.placed)
        notes = placed_annotations(found.policy, found.placed, extra, self._downstream)
        said = (
            *aggregate(wanted, found.placed, found.targets.others, troubles, notes.cut),
            *removals_held(held),
        )
        store, key = self._state.policies(gvr), ObjectKey(found.policy.namespace, found.policy.name)
        try:
            failed: Refused | Terminal | None = None
            try:
                body = await self._telling.annotate(gvr, body, notes.annotations)
                store.wrote(key, body)
                if notes.cut and body is not found.body:
                    log.warning("annotation_cut", gvr=str(gvr), key=str(key), cut=notes.cut)
            except (Refused, Terminal) as error:
                failed = error  # how it stands is told all the same
            if kind.conditions:
                body = await self._telling.conditions(gvr, body, said, kind=kind.kind)
            elif kind.ancestors:
                body = await self._telling.ancestors(gvr, body, found.gateways, said)
            store.wrote(key, body)
            if failed is not None:
                raise failed
        except NotFound:
            return False  # gone, which the watch will tell
        return body is not found.body

    async def clean(self, policy: PolicyId) -> None:
        """Take everything of ours off a policy whose kind is synced no more.

        What cannot be taken off is left behind. Raises SyncError where that may yet be.
        """
        gvr, key = policy.gvr, ObjectKey(policy.namespace, policy.name)
        try:
            answer = await read_object(self._client, gvr, key)
        except (Refused, Terminal) as error:
            # Its permission went with its kind: what nobody may touch is left behind.
            log.warning("policy_not_cleaned", gvr=str(gvr), key=str(key), error=str(error))
            return
        body = None if answer is None else _decoded(answer)
        if body is None:
            return
        try:
            body = await self._telling.annotate(gvr, body, {PLACED: None, STATUS: None})
            body = await self._telling.conditions(gvr, body, ())
            await self._telling.ancestors(gvr, body, (), ())
        except NotFound:
            return
        except (Refused, Terminal) as error:
            # It may be of a shape that its kind does not take any more.
            log.warning("policy_not_cleaned", gvr=str(gvr), key=str(key), error=str(error))


def _decoded(answer: bytes) -> Body | None:
    try:
        found = msgspec.json.decode(answer, type=dict[str, object])
    except (msgspec.DecodeError, RecursionError):
        return None
    return found
