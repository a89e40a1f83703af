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
from kube_sync.kube.sending import Fenced
from kube_sync.objects import ObjectKey
from kube_sync.policysync.bodies import Body
from kube_sync.policysync.classconditions import class_conditions
from kube_sync.policysync.conditions import Said
from kube_sync.policysync.hubstate import GATEWAY_CLASSES, HubState
from kube_sync.policysync.news import News
from kube_sync.policysync.parameters import Parameters
from kube_sync.policysync.statuses import CONTROLLER
from kube_sync.policysync.telling import Telling
from kube_sync.runtime.backoff import Backoff
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
        self._backoff = backoff
        self._failing: dict[str, Backoff] = {}
        self._queue: WorkQueue[str] = WorkQueue("policy_sync_classes")

    def look_at(self, name: str) -> None:
        """Look at a class."""
        self._queue.add(name)

    def look_at_all(self) -> None:
        """Look at all classes: this process writes now, or time has passed."""
        for key in self._state.classes.objects:
            self._queue.add(key.name)

    async def run(self) -> NoReturn:
        """Tell until cancelled."""
        try:
            while True:
                name = await self._queue.get()
                try:
                    await self._told(name)
                finally:
                    self._queue.done(name)
        finally:
            self._queue.close()

    async def _told(self, name: str) -> None:
        if not self._held():
            return
        try:
            await self._tell(name)
            self._failing.pop(name, None)
        except Fenced:
            return  # whoever writes now tells
        except NotFound:
            self._failing.pop(name, None)
        except SyncError as error:
            wait = self._failing.setdefault(name, self._backoff()).next_delay()
            self._queue.add_after(name, wait)
            log.warning("class_not_told", gateway_class=name, error=str(error))

    async def _tell(self, name: str) -> None:
        key = ObjectKey("", name)
        body, found = self._state.classes.get(key), self._state.parameters.get(name)
        if body is None or found is None:
            self._pending.pop(name, None)
            return
        said = self._said(name, body)
        if self._waits(name, said):
            return
        self._news.refused(body, said)
        answer = await self._telling.conditions(GATEWAY_CLASSES, body, said, "class", _KIND)
        self._state.classes.wrote(key, answer)

    def _waits(self, name: str, said: tuple[Said, ...]) -> bool:
        """Tell whether it will be known in a moment: after a start, what was said before stands."""
        if all(one.status != "Unknown" for one in said):
            self._pending.pop(name, None)
            return False
        left = self._pending.setdefault(name, self._clock()) + _PENDING_SECONDS - self._clock()
        if left > 0:
            self._queue.add_after(name, left)
        return left > 0

    def _said(self, name: str, body: Body) -> tuple[Said, ...]:
        found, together = self._state.parameters[name], self._state.together
        kinds = found.kinds if isinstance(found, Parameters) else ()
        verdicts = {kind.gvr: self._state.verdict(kind.gvr) for kind in kinds}
        try:
            ours = text(body, "spec", "controllerName") == CONTROLLER
        except UNREADABLE:
            ours = False
        refused = together.refused.get(name)
        return class_conditions(found, verdicts, ours=ours, refused=refused)
