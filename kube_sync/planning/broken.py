"""Why there is no plan: everything that is wrong with what was asked, line by line."""

from __future__ import annotations

from collections.abc import Iterable

from kube_sync.errors import Terminal


class Broken(Terminal):
    """There is no plan; each line names a file with its row, or an object."""

    def __init__(self, lines: Iterable[str]) -> None:
        super().__init__("\n".join(lines))
