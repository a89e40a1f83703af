from __future__ import annotations

import json
from collections import Counter

from tools.soak.classes.judging import Difference, Sample
from tools.soak.classes.report import Report


def test_difference_of_either_kind_is_counted_shown_and_written() -> None:
    report = Report(reviews=10, seed=1, verifying={"agreed": 8, "differed": 1, "asked": 3})
    report.giving = {"reused": 5, "asked": 1}
    report.witnessed = Counter({"agreed": 4, "differed": 2})
    found = Difference(
        "app-1", Sample(10.0, 10.2, "b"), (Sample(8.5, 8.6, "a"), Sample(10.3, 10.4, "a"))
    )
    report.differences = [found]
    report.changes = Counter({"cluster": 3})
    assert (report.verified, report.differed) == (9, 3)
    text = report.text()
    assert text.splitlines()[-1] == (
        "9 verified, 8 agreed, 3 differed, 5 reused, 6 witnessed, 4 asked, 0 unconfirmed, "
        "0 unshared, 3 changes, 0 faults"
    )
    assert "DIFFERED app-1: within 0.200 s: b; OPA:\n  -1.500 to -1.400 s: a" in text
    document = json.loads(json.dumps(report.document()))
    assert document["witnessed"] == {"agreed": 4, "differed": 2}
    assert document["differences"][0]["webhook"]["answer"] == "b"
