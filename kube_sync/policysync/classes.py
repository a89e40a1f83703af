"""What is wrong with the parameters of GatewayClasses, told in their statuses.

Level-based: it is told names, and looks at each anew. It writes only while it may, and only what is
not so already.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, NoReturn

import structlog

from kube_sync.errors import NotFound, SyncError
from kube_sync.kube.conditions import Condition
from kube_sync.kube.fencedwriter import Fenced
from kube_sync.objects import ObjectKey
from kube_sync.policysync.bodies import Body
from kube_sync.policysync.classconditions import class_conditions
from kube_sync.policysync.hubstate import GATEWAY_CLASSES, HubState
from kube_sync.policysync.news import News
from kube_sync.policysync.parameters import Parameters
from kube_sync.policysync.statuses import CONTROLLER
from kube_sync.policysync.telling import Telling
from kube_sync.runtime.backoff import Backoff
from kube_sync.runtime.controller import Result, work
from kube_sync.runtime.workqueue import WorkQueue
from kube_sync.topology.shapes import UNREADABLE, text

log: structlog.stdlib.BoundLogger = structlog.get_logger()

_KIND: Final = "GatewayClass"
_PENDING_SECONDS: Final = 10.0  # for which nothing is said of what is not found out yet


class Classes:
    """The conditions of all classes."""

    def __init__(
        self,
        state: HubState,
        telling: Telling,
        held: Callable[[], bool],
        news: News,
        *,
        backoff: Callable[[], Backoff] = lambda: Backoff(1.0, 300.0),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`held`: whether this process writes."""
        self._clock = clock
        self._pending: dict[str, float] = {}  # since when
        self._state = state
        self._telling = telling
        self._held = held
        self._news = news
        self._queue = WorkQueue[str]("policy_sync_classes", backoff)

    def look_at(self, name: str) -> None:
        """Look at a class."""
        self._queue.add(name)

    def look_at_all(self) -> None:
        """Look at all classes: this process writes now, or time has passed."""
        for key in self._state.classes.objects:
            self._queue.add(key.name)

    async def run(self) -> NoReturn:
        """Tell until cancelled."""
        await work(self._queue, self._told)

    async def _told(self, name: str) -> Result:
        if not self._held():
            return Result()
        try:
            return await self._tell(name)
        except (Fenced, NotFound):  # whoever writes now tells; or it is gone
            return Result()
        except SyncError as error:
            log.warning("class_not_told", gateway_class=name, error=str(error))
            raise

    async def _tell(self, name: str) -> Result:
        key = ObjectKey("", name)
        body, found = self._state.classes.get(key), self._state.parameters.get(name)
        if body is None or found is None:
            self._pending.pop(name, None)
            return Result()
        said = self._said(name, body)
        if (left := self._left(name, said)) > 0:
            return Result(left)
        self._news.refused(body, said)
        answer = await self._telling.conditions(GATEWAY_CLASSES, body, said, "class", _KIND)
        self._state.classes.wrote(key, answer)
        return Result()

    def _left(self, name: str, said: tuple[Condition, ...]) -> float:
        """Return for how many seconds what was said before a start stands: more may be known then.

        0 or less: it does not.
        """
        if all(one.status != "Unknown" for one in said):
            self._pending.pop(name, None)
            return 0.0
        return self._pending.setdefault(name, self._clock()) + _PENDING_SECONDS - self._clock()

    def _said(self, name: str, body: Body) -> tuple[Condition, ...]:
        found, together = self._state.parameters[name], self._state.together
        kinds = found.kinds if isinstance(found, Parameters) else ()
        verdicts = {kind.gvr: self._state.verdict(kind.gvr) for kind in kinds}
        try:
            ours = text(body, "spec", "controllerName") == CONTROLLER
        except UNREADABLE:
            ours = False
        refused = together.refused.get(name)
        return class_conditions(found, verdicts, ours=ours, refused=refused)
