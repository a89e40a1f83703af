"""The configuration file while it is in force: read again every second.

Keeps true: content is compared, never times, since a ConfigMap that is mounted changes by swapping
symbolic links; a new content counts when it was there twice in a row, so that a file that is being
written is not taken at its half; a mistake changes nothing and is told in the log, on the readiness
page (without making the process unready: the last good configuration works on) and by a metric.
What cannot change in a running process stays as it was at the start, and is named.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from operator import attrgetter
from typing import NoReturn

import msgspec
import structlog

from kube_sync.config import LIVE, Settings, Source, fields
from kube_sync.errors import Misconfigured
from kube_sync.observability import metrics
from kube_sync.observability.readiness import Readiness

log: structlog.stdlib.BoundLogger = structlog.get_logger()

CONDITION = "configuration"
_LOOK_SECONDS = 1.0


class ConfigFile:
    """One configuration, and who is told when it changes."""

    def __init__(
        self,
        source: Source,
        settings: Settings,
        readiness: Readiness,
        *,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        """Take `settings` as what is in force now."""
        self._source = source
        self._settings = settings
        self._readiness = readiness
        self._sleep = sleep
        self._seen: bytes | None = None
        self._judged: bytes | None = None
        self._said: object = None

    async def follow(self, changed: Callable[[Settings], None]) -> NoReturn:
        """Tell `changed` the settings whenever they differ from those in force, for ever."""
        metrics.config_valid.set(1)
        self._readiness.met(CONDITION)
        while True:
            if (settings := self._look()) is not None and settings != self._settings:
                self._settings = settings
                log.info("configuration_changed", file=self._source.file)
                changed(settings)
            await self._sleep(_LOOK_SECONDS)

    def _look(self) -> Settings | None:
        """Return what the file says now, None where that is nothing new."""
        try:
            content = self._source.read()
        except Misconfigured as error:
            self._seen = self._judged = None  # it may come back as it was
            self._reject(str(error))
            return None
        settled, self._seen = content == self._seen, content
        if not settled or content == self._judged:
            return None
        self._judged = content
        try:
            return self._accept(self._source.load(content))
        except Misconfigured as error:
            self._reject(str(error))
            return None

    def _reject(self, error: str) -> None:
        metrics.config_valid.set(0)
        self._readiness.noted(CONDITION, f"the last good one is in force, since {error}")
        if self._news(error):
            log.warning("configuration_not_applied", error=error)

    def _accept(self, wanted: Settings) -> Settings:
        metrics.config_valid.set(1)
        late = _differing(self._settings, wanted)
        detail = f"restart to apply {', '.join(late)}" if late else "ok"
        self._readiness.noted(CONDITION, detail)
        if self._news(late) and late:
            log.warning("configuration_needs_restart", fields=late)
        return _merged(self._settings, wanted)

    def _news(self, said: object) -> bool:
        """Tell whether this was not the last thing said."""
        old, self._said = self._said, said
        return old != said


def _differing(running: Settings, wanted: Settings) -> list[str]:
    """Return the fields that only a restart can change, where they differ."""
    late = (field for field in fields() if field.path not in LIVE)
    return [field.path for field in late if field.of(running) != field.of(wanted)]


def _merged(running: Settings, wanted: Settings) -> Settings:
    """Return `running` with the fields of `wanted` that may change at any time."""
    sections: dict[str, dict[str, object]] = {}
    for path in LIVE:
        section, _, name = path.partition(".")
        sections.setdefault(section, {})[name] = attrgetter(path)(wanted)
    return msgspec.structs.replace(
        running,
        **{
            section: msgspec.structs.replace(getattr(running, section), **changes)
            for section, changes in sections.items()
        },
    )
