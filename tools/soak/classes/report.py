"""What the soak of decisions by class has shown, as text and as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from tools.soak.classes.judging import Difference, Ruling

_SHOWN = 5  # differences
Counts = Mapping[str, int]  # answers by outcome, as the webhook counts them


@dataclass
class Report:
    """What is known so far."""

    reviews: int  # that are asked for
    seed: int
    seconds: float = 0.0
    verifying: Counts = field(default_factory=dict)
    giving: Counts = field(default_factory=dict)
    witnessed: Counter[Ruling] = field(default_factory=Counter)
    differences: list[Difference] = field(default_factory=list)  # that the witness saw
    unanswered: int = 0  # reviews of the witness without an answer
    changes: Counter[str] = field(default_factory=Counter)
    failed_changes: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    restarts: Counter[str] = field(default_factory=Counter)
    complete: bool = False

    @property
    def verified(self) -> int:
        """How many answers of classes were compared by the webhook that verifies."""
        return self.verifying.get("agreed", 0) + self.verifying.get("differed", 0)

    @property
    def differed(self) -> int:
        """How many answers differ from OPA's, by the webhook or by the witness."""
        return self.verifying.get("differed", 0) + self.witnessed["differed"]

    def progress(self) -> str:
        """Return one line on how far it is."""
        return (
            f"{self.seconds:6.0f} s  {self.verified} of {self.reviews} verified, "
            f"{self.giving.get('reused', 0)} reused, {self.witnessed.total()} witnessed, "
            f"{self.differed} differed; {self.changes.total()} changes, "
            f"{self.faults.total()} faults"
        )

    def text(self) -> str:
        """Return it for a person; the last line has the sums."""
        sums = {
            "verified": self.verified,
            "agreed": self.verifying.get("agreed", 0),
            "differed": self.differed,
            "reused": self.giving.get("reused", 0),
            "witnessed": self.witnessed.total(),
            "asked": self._both("asked"),
            "unconfirmed": self._both("unconfirmed"),
            "unshared": self._both("unshared"),
            "changes": self.changes.total(),
            "faults": self.faults.total(),
        }
        return "\n".join(
            [
                "",
                f"classes: seed {self.seed}, {self.seconds:.0f} s"
                + ("" if self.complete else " (INTERRUPTED)"),
                f"changes: {_counts(self.changes)}; {self.failed_changes} failed",
                f"faults: {_counts(self.faults)}",
                f"answers of the webhook that verifies: {_counts(self.verifying)}",
                f"answers of the webhook by class: {_counts(self.giving)}",
                f"witness: {_counts(self.witnessed)}; {self.unanswered} unanswered",
                *map(_shown, self.differences[:_SHOWN]),
                ", ".join(f"{count} {name}" for name, count in sums.items()),
            ]
        )

    def document(self) -> dict[str, Any]:
        """Return everything as JSON."""
        sums = {"verified": self.verified, "differed": self.differed}
        return {found.name: _plain(getattr(self, found.name)) for found in fields(self)} | sums

    def _both(self, outcome: str) -> int:
        return self.verifying.get(outcome, 0) + self.giving.get(outcome, 0)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    return [asdict(found) for found in value] if isinstance(value, list) else value


def _counts(found: Mapping[Any, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in sorted(found.items())) or "none"


def _shown(found: Difference) -> str:
    said = found.webhook
    opa = [
        f"{one.asked - said.asked:+.3f} to {one.answered - said.asked:+.3f} s: {one.answer}"
        for one in found.opa
    ]
    took = said.answered - said.asked
    return "\n  ".join([f"  DIFFERED {found.of}: within {took:.3f} s: {said.answer}; OPA:", *opa])
