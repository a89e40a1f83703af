"""Reloads the configuration file while a process runs: it is read every second.

Invariant: contents are compared, never times, since a mounted ConfigMap changes by swapping
symbolic links; a new content counts when it was read twice in a row, so that a partly written
file is not used; an invalid file changes nothing and is reported in the log, on the readiness
page (the process stays ready with the last good configuration) and by a metric.
Settings that need a restart keep their values, and are reported by name.
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
_CHECK_SECONDS = 1.0


class ConfigFile:
    """One configuration file, with a callback for changes."""

    def __init__(
        self,
        source: Source,
        settings: Settings,
        readiness: Readiness,
        *,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        """Start with `settings` as the configuration in force."""
        self._source = source
        self._settings = settings
        self._readiness = readiness
        self._sleep = sleep
        self._seen: bytes | None = None
        self._loaded: bytes | None = None
        self._reported: object = None

    async def follow(self, changed: Callable[[Settings], None]) -> NoReturn:
        """Call `changed` with the settings whenever they differ from those in force, for ever."""
        metrics.config_valid.set(1)
        self._readiness.met(CONDITION)
        while True:
            if (settings := self._changed_settings()) is not None and settings != self._settings:
                self._settings = settings
                log.info("configuration_changed", file=self._source.file)
                changed(settings)
            await self._sleep(_CHECK_SECONDS)

    def _changed_settings(self) -> Settings | None:
        """Return the settings of a changed file, None if it did not change."""
        try:
            content = self._source.read()
        except Misconfigured as error:
            self._seen = self._loaded = None  # the file may get its old content back
            self._reject(str(error))
            return None
        settled, self._seen = content == self._seen, content
        if not settled or content == self._loaded:
            return None
        self._loaded = content
        try:
            return self._accept(self._source.load(content))
        except Misconfigured as error:
            self._reject(str(error))
            return None

    def _reject(self, error: str) -> None:
        metrics.config_valid.set(0)
        self._readiness.noted(CONDITION, f"the last good one is in force, since {error}")
        if self._is_new(error):
            log.warning("configuration_not_applied", error=error)

    def _accept(self, wanted: Settings) -> Settings:
        metrics.config_valid.set(1)
        late = _differing(self._settings, wanted)
        detail = f"restart to apply {', '.join(late)}" if late else "ok"
        self._readiness.noted(CONDITION, detail)
        if self._is_new(late) and late:
            log.warning("configuration_needs_restart", fields=late)
        return _merged(self._settings, wanted)

    def _is_new(self, problem: object) -> bool:
        """Return whether this differs from the last reported problem."""
        old, self._reported = self._reported, problem
        return old != problem


def _differing(running: Settings, wanted: Settings) -> list[str]:
    """Return the changed fields that need a restart."""
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
