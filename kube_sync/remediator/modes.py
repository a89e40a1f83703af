"""How far remediation goes in a namespace, and what a person let through where it waits for one."""

from __future__ import annotations

from typing import Literal

from kube_sync.remediator.decided import Key
from kube_sync.settings import Remediate

Mode = Literal["off", "dry-run", "manual", "enforce"]


class Modes:
    """The modes that the configuration gives."""

    def __init__(self, settings: Remediate) -> None:
        self._settings = settings
        self._applied: dict[Key, str] = {}

    def of(self, namespace: str) -> Mode:
        """Return the mode of a namespace; empty for what lies in none."""
        return self._settings.namespaces.get(namespace, self._settings.mode)

    def apply(self, key: Key, step: str) -> None:
        """Let the step of this name through, and no other."""
        self._applied[key] = step

    def goes(self, key: Key, step: str) -> bool:
        """Tell whether a step is meant to be carried out, if only on paper."""
        mode = self.of(key[1].namespace)
        return mode in ("enforce", "dry-run") or (
            mode == "manual" and self._applied.get(key) == step
        )

    def forget(self, key: Key) -> None:
        """Forget what was let through: it is done, or nothing is to be done any more."""
        self._applied.pop(key, None)
