from __future__ import annotations

from collections.abc import Iterable

import pytest

from kube_sync.decisions.decision import PLACEMENT, Decision
from kube_sync.decisions.printing import DecisionPrinter, Request
from kube_sync.decisions.records import (
    BookmarkRecord,
    DecisionRecord,
    DeletedRecord,
    Record,
    Source,
    Stale,
    StatusRecord,
    Target,
)
from kube_sync.decisions.subscription import SENDING
from kube_sync.kube.naming import reference

BOOKMARK = BookmarkRecord(1, "me")
FREE = StatusRecord((), "me")


def _target(name: str, resource: str = "replicasets") -> Target:
    return Target("apps", "v1", resource, name, "shop")


def _placed(clusters: str) -> Decision:
    return Decision({PLACEMENT: '{"clusters": {' + clusters + "}}"})


def _on(*names: str) -> Decision:
    return _placed(", ".join(f'"{name}": {{"weight": 1}}' for name in names))


def _record(
    name: str,
    decision: Decision | None,
    *,
    resource: str = "replicasets",
    cause: str = "data",
    failure: str | None = None,
    source: Source | None = None,
) -> DecisionRecord:
    return DecisionRecord(
        _target(name, resource),
        "u",
        decision,
        1,
        cause,
        "ab12cd34",
        failure=failure,
        source=source,
        last_good=failure is not None and decision is not None,
    )


def _printer(request: Request | None = None) -> DecisionPrinter:
    return DecisionPrinter(request or Request(), lambda: "12:03:04")


def _lines(printer: DecisionPrinter, *records: Record | None) -> list[str]:
    return [line for record in records for line in printer.handle(record)]


def _table(*records: Record) -> list[str]:
    return _lines(_printer(), None, *records, BOOKMARK)


def _shown(*records: Record) -> DecisionPrinter:
    printer = _printer()
    _lines(printer, None, *records, BOOKMARK)
    return printer


def test_the_table_comes_with_the_bookmark_in_order_of_the_names() -> None:
    assert _table(_record("web", _on("c2", "c1")), _record("app", _on("c1"), cause="load")) == [
        "OBJECT    DECISION  CAUSE  POLICY",
        "shop/app  c1        load   ab12cd",
        "shop/web  c1,c2     data   ab12cd",
    ]


def test_nothing_known_is_no_table() -> None:
    printer = _printer()
    assert _lines(printer, None, BOOKMARK) == []
    assert printer.is_empty
    assert printer.is_shown


def test_kinds_are_named_where_there_are_several() -> None:
    lines = _table(_record("web", _on("c1")), _record("web", _on("c1"), resource="deployments"))
    assert [line.split("  ")[0] for line in lines[1:]] == [
        "deployments.v1.apps shop/web",
        "replicasets.v1.apps shop/web",
    ]


@pytest.mark.parametrize(
    ("decision", "text"),
    [
        (_on(), "no cluster"),
        (_placed('"c1": {"weight": 2}, "c2": {"weight": 0}'), "c1=2,c2=0"),
        (_placed('"c1": {}, "c2": {"minReplicas": 1}'), "c1,c2"),
        (_placed('"c1": 3'), '{"clusters": {"c1": 3}}'),
        (Decision({PLACEMENT: "everywhere"}), "everywhere"),
        (Decision({"example.com/zone": "eu", PLACEMENT: '{"clusters": {}}'}), "no cluster zone=eu"),
        (Decision({"a": "x" * 99}), "a=" + "x" * 59 + "…"),
        (Decision(labels={"tier": "gold"}), "tier=gold"),
        (Decision(), "nothing"),
        (Decision(errors=("no", "never")), "refused: no; never"),
    ],
)
def test_a_decision_is_told_by_its_clusters_or_else_by_what_is_written(
    decision: Decision, text: str
) -> None:
    _, row = _table(_record("web", decision, cause="load"))
    assert row == f"shop/web  {text}  load   ab12cd".replace(text, text.ljust(len("DECISION")), 1)


@pytest.mark.parametrize(
    ("decision", "text"),
    [(None, "failed: conflict (stands: -)"), (_on("c1"), "failed: conflict (stands: c1)")],
)
def test_a_failure_tells_what_stands(decision: Decision | None, text: str) -> None:
    _, row = _table(_record("web", decision, failure="conflict"))
    assert row.startswith(f"shop/web  {text}  data")


def test_what_a_policy_says_cannot_steer_a_terminal() -> None:
    _, row = _table(_record("web", Decision(errors=("\x1b[2J\n\u202eno",))))
    assert row.startswith("shop/web  refused: �[2J �no  data")


def test_a_change_is_one_line_with_what_caused_it() -> None:
    printer = _shown(_record("web", _on("c1", "c2")))
    change = _record("web", _on("c1"), source=Source("clusters", "fleet/c2"))
    assert _lines(printer, change, BOOKMARK) == [
        "12:03:04 shop/web  c1,c2 -> c1  (data: clusters fleet/c2; policy ab12cd)"
    ]


def test_of_several_causes_the_first_is_named_and_the_others_are_counted() -> None:
    change = _record("web", _on("c1"), source=Source("clusters", "fleet/c2", 3))
    (line,) = _lines(_shown(), change)
    assert line.endswith("- -> c1  (data: clusters fleet/c2 and 2 more; policy ab12cd)")


def test_a_change_in_nothing_that_is_shown_is_no_line() -> None:
    assert _lines(_shown(_record("web", _on("c1"))), _record("web", _on("c1"))) == []


@pytest.mark.parametrize(
    ("record", "line"),
    [
        (_record("web", None), "12:03:04 shop/web  c1 -> -  (data; policy ab12cd)"),
        (DeletedRecord(_target("web"), 2), "12:03:04 shop/web  gone"),
    ],
)
def test_the_end_of_a_decision_is_told_once(record: Record, line: str) -> None:
    printer = _shown(_record("web", _on("c1")))
    assert _lines(printer, record, DeletedRecord(_target("web"), 3)) == [line]
    assert printer.is_empty


def test_a_stream_that_begins_afresh_tells_only_what_differs() -> None:
    printer = _shown(_record("a", _on("c1")), _record("b", _on("c1")), _record("c", _on("c1")))
    again: list[Record] = [_record("a", _on("c1")), _record("b", _on("c2")), BOOKMARK]
    assert _lines(printer, None, *again) == [
        "12:03:04 shop/b  c1 -> c2  (data; policy ab12cd)",
        "12:03:04 shop/c  gone",
    ]


@pytest.mark.parametrize(
    ("request_", "names"),
    [
        (Request(of=(reference("a"),)), ["a"]),
        (Request(namespace="shop"), ["a", "b"]),
        (Request(namespace="other"), []),
        (Request(namespace="other", of=(reference("a"),)), []),
    ],
)
def test_only_what_was_asked_for_is_shown(request_: Request, names: Iterable[str]) -> None:
    printer = _printer(request_)
    lines = _lines(printer, None, *(_record(name, _on("c1")) for name in "ab"), BOOKMARK)
    assert [line.split()[0] for line in lines[1:]] == [f"shop/{name}" for name in names]
    assert _lines(printer, _record("x", _on("c1")), DeletedRecord(_target("y"), 1)) == [
        "12:03:04 shop/x  - -> c1  (data; policy ab12cd)"
    ] * (request_ == Request(namespace="shop"))


def test_holds_and_notes_are_told_when_they_change() -> None:
    held = StatusRecord(("OPA is being loaded", "more"), "me", ("p: wrong",))
    assert _lines(
        _printer(),
        StatusRecord((SENDING,), "me"),
        FREE,
        held,
        held,
        StatusRecord((SENDING,), "me", ("p: wrong",)),  # of the next stream
        StatusRecord((), "me", ("p: wrong",)),
        FREE,
    ) == [
        "12:03:04 -- p: wrong",
        "12:03:04 -- held: OPA is being loaded; more",
        "12:03:04 -- no longer held",
        "12:03:04 -- nothing is wrong any more",
    ]


def test_what_is_not_current_is_told_when_it_begins_and_ends() -> None:
    def late(*sources: str, seconds: float = 1.0) -> StatusRecord:
        stale = tuple(Stale(source, seconds, "503\x1b") for source in sources)
        return StatusRecord((), "me", (), stale)

    assert _lines(
        _printer(), FREE, late("clusters"), late("clusters", "nodes", seconds=2.0), late("nodes")
    ) == [
        "12:03:04 -- not current: clusters: 503\N{REPLACEMENT CHARACTER}",
        "12:03:04 -- not current: nodes: 503\N{REPLACEMENT CHARACTER}",
        "12:03:04 -- current again: clusters",
    ]


def test_wide_table_has_all_that_identifies_an_object() -> None:
    printer = _printer(Request(form="wide"))
    lines = [
        line for record in (_record("a", _on("c1")), BOOKMARK) for line in printer.handle(record)
    ]
    assert lines[0].split() == ["TYPE", "OBJECT", "DECISION", "CAUSE", "POLICY", "UID", "DATA"]
    assert lines[1].split() == ["replicasets.v1.apps", "shop/a", "c1", "data", "ab12cd34", "u", "0"]
