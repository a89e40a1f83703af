from __future__ import annotations

from kube_sync.decisions.records import Stale as StaleRecord
from kube_sync.decisions.records import StatusRecord
from kube_sync.remediator.decided import Decided
from kube_sync.runtime.freshness import SETTLE_SECONDS, Stale


def test_the_stream_tells_what_is_not_current() -> None:
    now = [100.0]
    decided = Decided(lambda _: None, lambda: now[0])
    decided.take(StatusRecord((), "me", (), (StaleRecord("clusters", 5.0, "503"),)))
    now[0] += 1.0
    assert decided.freshness.stale() == [Stale("clusters", 6.0, "503")]
    decided.take(StatusRecord((), "me"))
    assert decided.freshness.stale() == [Stale("clusters", 6.0, "503")]
    now[0] += SETTLE_SECONDS + 0.1
    assert decided.freshness.stale() == []


def test_a_status_that_holds_no_more_than_before_touches_nothing() -> None:
    """It comes with every watch that blinks, and there may be many thousand objects."""
    touched: list[int] = []
    decided = Decided(lambda keys: touched.append(len(list(keys))), lambda: 100.0)
    for _ in range(3):
        decided.take(StatusRecord((), "me"))
    assert len(touched) == 1
