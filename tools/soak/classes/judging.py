"""Whether an answer of the webhook is one that OPA gave at most a second before. Pure.

OPA is asked about the same object before and after the webhook is. If all of OPA's answers from a
second before the webhook was asked until after it had answered are the same, the webhook's has to
be that one: no answer of the policy ever returns (`churn`). If they are not, any of them is right,
and another one may be one that nobody saw. All times are seconds of one clock.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass
from typing import Final, Literal

BOUND: Final = 1.0  # seconds that the webhook's answer may be older than OPA's (docs/admission.md)

UNDECIDED: Final = ""  # OPA, or the webhook, gives no decision; any other text is one

Ruling = Literal["agreed", "differed", "bridged", "undecided", "unsettled"]


@dataclass(frozen=True, slots=True)
class Sample:
    """One answer, of OPA or of the webhook."""

    asked: float
    answered: float
    answer: str


@dataclass(frozen=True, slots=True)
class Difference:
    """An answer of the webhook that OPA gave no more, or never."""

    of: str
    webhook: Sample
    opa: tuple[Sample, Sample]  # the first and the last one around it, all the same


class Judge:
    """The answers about one object.

    `agreed`: OPA gave that answer within the bound. `bridged`: OPA gave no decision, and this was
    its last one. `undecided`: the webhook gave no decision. `unsettled`: OPA's answers changed.
    """

    def __init__(self, name: str) -> None:
        self.counts: Counter[Ruling] = Counter()
        self.differences: list[Difference] = []
        self._name = name
        self._samples: deque[Sample] = deque()  # of OPA
        self._last: str | None = None  # decision of OPA
        self._waiting: list[Sample] = []  # of the webhook

    def heard(self, sample: Sample) -> None:
        """Take an answer of the webhook; it is judged when OPA has answered again."""
        self._waiting.append(sample)

    def seen(self, sample: Sample) -> None:
        """Take an answer of OPA, and judge those of the webhook that were given before."""
        self._samples.append(sample)
        due = [found for found in self._waiting if found.answered <= sample.asked]
        self._waiting = [found for found in self._waiting if found.answered > sample.asked]
        for found in due:
            self.counts[self._ruling(found)] += 1
        if sample.answer:
            self._last = sample.answer
        while len(self._samples) > 1 and self._samples[1].answered <= sample.answered - 2 * BOUND:
            if any(found.asked - BOUND < self._samples[1].answered for found in self._waiting):
                break
            self._samples.popleft()

    def _ruling(self, found: Sample) -> Ruling:
        window = self._window(found)
        answers = {sample.answer for sample in window}
        if not found.answer:
            return "undecided"
        if found.answer in answers:
            return "agreed"
        if UNDECIDED in answers:
            return "bridged" if found.answer == self._last else "unsettled"
        if len(answers) > 1 or window[0].answered > found.asked - BOUND:
            return "unsettled"
        self.differences.append(Difference(self._name, found, (window[0], window[-1])))
        return "differed"

    def _window(self, found: Sample) -> list[Sample]:
        """Return OPA's answers from the last one before the bound on."""
        earlier = [s for s in self._samples if s.answered <= found.asked - BOUND]
        return [*earlier[-1:], *(s for s in self._samples if s.answered > found.asked - BOUND)]
