"""The newest state of an object that is known: as it was told, or as it was answered to a write.

Keeps true: between a write and the watch event that tells of it, the answer counts, so that nothing
is written twice; as soon as something else is told than what was written on, that counts.
"""

from __future__ import annotations

from collections.abc import Callable

from kube_sync.topology import Locator
from kube_sync.topology.nodes import Body
from kube_sync.topology.shapes import Malformed, text


class Latest:
    """The newest states of objects."""

    def __init__(self, held: Callable[[Locator], Body | None]) -> None:
        """`held` returns an object as it was told last, None where it is gone."""
        self._held = held
        self._answers: dict[Locator, tuple[str, Body]] = {}  # and what each was written on

    def get(self, name: Locator) -> Body | None:
        """Return an object, None where it is gone."""
        body = self._held(name)
        if name in self._answers:
            written_on, answer = self._answers[name]
            if body is not None and _version(body) == written_on:
                return answer
            del self._answers[name]
        return body

    def answered(self, name: Locator, written_on: str, answer: Body) -> None:
        """Take in what a write at a resourceVersion was answered with."""
        self._answers[name] = written_on, answer

    def answer(self, name: Locator) -> Body | None:
        """Return what the last write of an object was answered with, as long as that is known."""
        known = self._answers.get(name)
        return None if known is None else known[1]

    def tidy(self) -> None:
        """Let go of answers that do not count any more."""
        for name in list(self._answers):
            self.get(name)


def _version(body: Body) -> str | None:
    try:
        return text(body, "metadata", "resourceVersion")
    except Malformed:
        return None
