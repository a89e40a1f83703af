"""Writes the conditions of GatewayClasses: whether their policy sync parameters are valid.

A condition of our own type reports whether the parameters can be followed. `Accepted` belongs to
the controller of a class (Gateway API, GatewayClass): it is set only on classes whose
controllerName is one of ours. Both use server-side apply: other owners keep their conditions.

Invariant: every kind that cannot be synced is named with its reason; the other kinds are synced.
A status is written only while this process is the leader, and only if it differs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Final, NoReturn

import structlog

from kube_sync.errors import NotFound, SyncError
from kube_sync.kube.conditions import Condition, message
from kube_sync.kube.fencedwriter import Fenced
from kube_sync.objects import GroupVersionResource, ObjectKey
from kube_sync.policysync.events import PolicySyncEvents
from kube_sync.policysync.hub_status_writer import CONTROLLER, TYPE, HubStatusWriter
from kube_sync.policysync.hubstate import GATEWAY_CLASSES, HubState
from kube_sync.policysync.object_cache import Body
from kube_sync.policysync.parameters import Invalid, Parameters
from kube_sync.policysync.validation import Faulty, Undetermined, Verdict
from kube_sync.runtime.backoff import Backoff
from kube_sync.runtime.controller import Result, work
from kube_sync.runtime.workqueue import WorkQueue
from kube_sync.topology.raw_json import text_if_any

_ACCEPTED: Final = "Accepted"
_INVALID: Final = "InvalidParameters"  # the Gateway API's reason for it


def class_conditions(
    found: Parameters | Invalid,
    verdicts: Mapping[GroupVersionResource, Verdict],
    *,
    ours: bool,
    refused: Mapping[GroupVersionResource, str] | None = None,
) -> tuple[Condition, ...]:
    """Return the conditions of a class; `ours`: we are its controller.

    `refused` are kinds that the lists of several classes do not allow.
    """
    if isinstance(found, Invalid):
        if found.foreign and not ours:
            return ()  # the parameters belong to another controller
        condition = Condition(TYPE, "False", _INVALID, f"Invalid Parameters - {found.problem}")
    elif not found.kinds and not found.problems:
        condition = Condition(
            TYPE, "True", "NothingToSync", "the parameters name no policies to sync"
        )
        if not ours:
            return ()
    else:
        condition = _validity(found, verdicts, refused or {})
    return (condition, _accepted(condition)) if ours else (condition,)


def _validity(
    found: Parameters,
    verdicts: Mapping[GroupVersionResource, Verdict],
    refused: Mapping[GroupVersionResource, str],
) -> Condition:
    faults = [*found.problems, *_faults(found, verdicts, refused)]
    if faults:
        return Condition(
            TYPE, "False", _INVALID, message(["Invalid Parameters - " + faults[0], *faults[1:]])
        )
    undetermined = list(_undetermined(found, verdicts))
    if undetermined:
        return Condition(TYPE, "Unknown", "Pending", message(undetermined))
    names = message(str(kind.gvr) for kind in found.kinds)
    return Condition(TYPE, "True", "Valid", f"policies are synced: {names}")


def _faults(
    found: Parameters,
    verdicts: Mapping[GroupVersionResource, Verdict],
    refused: Mapping[GroupVersionResource, str],
) -> Iterator[str]:
    for kind in found.kinds:
        verdict = verdicts.get(kind.gvr)
        if kind.gvr in refused:
            yield f"{kind.gvr}: {refused[kind.gvr]}"
        elif isinstance(verdict, Faulty):
            yield f"{kind.gvr}: {verdict.reason}"


def _undetermined(
    found: Parameters, verdicts: Mapping[GroupVersionResource, Verdict]
) -> Iterator[str]:
    for kind in found.kinds:
        verdict = verdicts.get(kind.gvr, Undetermined("it has not been looked at yet"))
        if isinstance(verdict, Undetermined):
            yield f"{kind.gvr}: {verdict.reason}"


def _accepted(condition: Condition) -> Condition:
    if condition.status == "True":
        return Condition(_ACCEPTED, "True", _ACCEPTED, condition.message)
    return condition._replace(type=_ACCEPTED)


log: structlog.stdlib.BoundLogger = structlog.get_logger()

_KIND: Final = "GatewayClass"
_PENDING_SECONDS: Final = 10.0  # for which undetermined kinds are not reported


class GatewayClassReconciler:
    """Reconciles the conditions of all GatewayClasses."""

    def __init__(
        self,
        state: HubState,
        writer: HubStatusWriter,
        is_leader: Callable[[], bool],
        events: PolicySyncEvents,
        *,
        backoff: Callable[[], Backoff] = lambda: Backoff(1.0, 300.0),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`is_leader`: whether this process is the leader."""
        self._clock = clock
        self._pending: dict[str, float] = {}  # since when
        self._state = state
        self._writer = writer
        self._is_leader = is_leader
        self._events = events
        self._queue = WorkQueue[str]("policy_sync_classes", backoff)

    def enqueue(self, name: str) -> None:
        """Enqueue a class."""
        self._queue.add(name)

    def enqueue_all(self) -> None:
        """Enqueue all classes: this process became the leader, or time has passed."""
        for key in self._state.classes.objects:
            self._queue.add(key.name)

    async def run(self) -> NoReturn:
        """Reconcile until cancelled."""
        await work(self._queue, self._process)

    async def _process(self, name: str) -> Result:
        if not self._is_leader():
            return Result()
        try:
            return await self._write_status(name)
        except (Fenced, NotFound):  # another process is the leader, or the class is gone
            return Result()
        except SyncError as error:
            log.warning("class_not_told", gateway_class=name, error=str(error))
            raise

    async def _write_status(self, name: str) -> Result:
        key = ObjectKey("", name)
        body, found = self._state.classes.get(key), self._state.parameters.get(name)
        if body is None or found is None:
            self._pending.pop(name, None)
            return Result()
        conditions = self._conditions(name, body)
        if (wait := self._seconds_to_wait(name, conditions)) > 0:
            return Result(wait)
        self._events.publish_refused(body, conditions)
        response = await self._writer.conditions(GATEWAY_CLASSES, body, conditions, "class", _KIND)
        self._state.classes.record_write(key, response)
        return Result()

    def _seconds_to_wait(self, name: str, conditions: tuple[Condition, ...]) -> float:
        """Return for how many seconds conditions from before a start stay: more may be known then.

        0 or less: they do not.
        """
        if all(one.status != "Unknown" for one in conditions):
            self._pending.pop(name, None)
            return 0.0
        return self._pending.setdefault(name, self._clock()) + _PENDING_SECONDS - self._clock()

    def _conditions(self, name: str, body: Body) -> tuple[Condition, ...]:
        found, merged = self._state.parameters[name], self._state.merged_parameters
        kinds = found.kinds if isinstance(found, Parameters) else ()
        verdicts = {kind.gvr: self._state.verdict(kind.gvr) for kind in kinds}
        ours = text_if_any(body, "spec", "controllerName") == CONTROLLER
        refused = merged.refused.get(name)
        return class_conditions(found, verdicts, ours=ours, refused=refused)
