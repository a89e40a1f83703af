from __future__ import annotations

import pytest

from tools.soak.classes.judging import UNDECIDED, Judge, Sample


def judged(opa: list[tuple[float, str]], webhook: str, at: float = 10.0) -> Judge:
    """Return the judge of one answer of the webhook, among answers of OPA at these times."""
    judge = Judge("app")
    for time, answer in opa:
        if time > at and not judge.counts.total():
            judge.heard(Sample(at, at + 0.1, webhook))
        judge.seen(Sample(time, time + 0.01, answer))
    return judge


STABLE = [(8.0, "a"), (9.0, "a"), (10.2, "a")]


@pytest.mark.parametrize(
    ("opa", "webhook", "ruling"),
    [
        (STABLE, "a", "agreed"),
        (STABLE, "b", "differed"),
        (STABLE, UNDECIDED, "undecided"),
        # A change within the bound: either is right.
        ([(8.0, "a"), (9.5, "b"), (10.2, "b")], "a", "agreed"),
        ([(8.0, "a"), (9.5, "b"), (10.2, "b")], "b", "agreed"),
        ([(8.0, "a"), (9.5, "b"), (10.2, "b")], "c", "unsettled"),
        # OPA's answer was another one before the bound, and none after it.
        ([(8.0, "a"), (8.9, "b"), (10.2, "b")], "a", "differed"),
        # Nobody asked OPA early enough.
        ([(9.5, "a"), (10.2, "a")], "b", "unsettled"),
        # OPA is away.
        ([(8.0, "a"), (9.5, UNDECIDED), (10.2, UNDECIDED)], "a", "agreed"),
        ([(5.0, "a"), (8.5, UNDECIDED), (10.2, UNDECIDED)], "a", "bridged"),
        ([(5.0, "a"), (8.5, UNDECIDED), (10.2, UNDECIDED)], "b", "unsettled"),
    ],
)
def test_answer_is_judged_by_what_opa_answered_around_it(
    opa: list[tuple[float, str]], webhook: str, ruling: str
) -> None:
    judge = judged(opa, webhook)
    assert dict(judge.counts) == {ruling: 1}
    assert [found.webhook.answer for found in judge.differences] == (
        [webhook] if ruling == "differed" else []
    )


def test_answer_is_judged_only_after_opa_was_asked_again() -> None:
    judge = Judge("app")
    judge.seen(Sample(8.0, 8.1, "a"))
    judge.heard(Sample(10.0, 10.1, "b"))
    judge.seen(Sample(10.0, 10.2, "a"))  # asked before the webhook had answered
    assert not judge.counts
    judge.seen(Sample(10.3, 10.4, "a"))
    assert dict(judge.counts) == {"differed": 1}


def test_answers_of_opa_that_nothing_needs_are_dropped_and_the_others_kept() -> None:
    judge = Judge("app")
    for tick in range(100):
        judge.seen(Sample(tick, tick + 0.1, "a"))
    judge.heard(Sample(99.5, 200.0, "b"))  # the webhook stood still
    for tick in range(100, 202):
        judge.seen(Sample(tick, tick + 0.1, "a" if tick < 150 else "b"))
    assert dict(judge.counts) == {"agreed": 1}
    judge.heard(Sample(202.1, 202.2, "a"))
    judge.seen(Sample(202.3, 202.4, "b"))
    assert judge.counts["differed"] == 1
    assert [found.answered for found in judge.differences[0].opa] == [201.1, 202.4]
