"""What became of the changes that were asked for."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field

from tools.soak.windows import Denial, Outcome, Window, outcome

_WORDS = 400  # characters of a message


@dataclass
class Tally:
    """Counts, and what is to be looked at one by one; times are seconds since it was made."""

    begun: float = field(default_factory=time.monotonic)
    changes: defaultdict[str, Counter[Outcome]] = field(
        default_factory=lambda: defaultdict(Counter)
    )
    denials: list[Denial] = field(default_factory=list)
    let_through: list[Denial] = field(default_factory=list)
    unexpected: list[Denial] = field(default_factory=list)
    windows: list[Window] = field(default_factory=list)

    @property
    def now(self) -> float:
        """Seconds since the run began."""
        return time.monotonic() - self.begun

    @property
    def made(self) -> int:
        """How many changes the API server has made."""
        return sum(found["made"] for found in self.changes.values())

    @property
    def asked(self) -> int:
        """How many changes were asked for."""
        return sum(found.total() for found in self.changes.values())

    def note(
        self, kind: str, what: str, begun: float, status: int, text: str, *, possible: bool
    ) -> Outcome:
        """Take note of one answer."""
        found = outcome(status, text, possible=possible)
        self.changes[kind][found] += 1
        lists = {
            "denied wrongly": self.denials,
            "let through": self.let_through,
            "gone": self.unexpected,
        }
        if (into := lists.get(found)) is not None:
            words = f"{status} {' '.join(text.split())[:_WORDS]}"
            into.append(Denial(f"{kind} {what}", begun, self.now, words))
        return found
