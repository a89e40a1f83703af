"""What is wrong with a scenario file: where, and what.

Keeps true: each problem is one line that names the file, the row where it is known, and the key.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kube_sync.errors import Terminal


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong; `row` counts from 1, 0 where there is none."""

    file: str
    row: int
    key: str  # as in cases[2].expect.clusters; empty for the file itself
    message: str

    def __str__(self) -> str:
        """`file:row: key: message`."""
        where = f"{self.file}:{self.row}" if self.row else self.file
        return ": ".join(part for part in (where, self.key, self.message) if part)


class Invalid(Terminal):
    """A scenario file that cannot be run, with all that is wrong with it."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(map(str, self.problems)))


class Misfit(Terminal):
    """An object that cannot be put where it is to be; whoever put it there knows the place."""
