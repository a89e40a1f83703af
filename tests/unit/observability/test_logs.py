from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
import structlog

from kube_sync.observability.logs import add_to_records, configure_logs


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _as_it_was() -> Iterator[None]:
    yield
    structlog.reset_defaults()


def _caught(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """Take standard error over; in the test itself, since pytest does so after each fixture."""
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    return stream


def test_a_log_line_is_one_json_object_on_standard_error(monkeypatch: pytest.MonkeyPatch) -> None:
    output = _caught(monkeypatch)
    configure_logs()
    structlog.get_logger().info("listed", resource="pods", objects=3)
    (line,) = output.getvalue().splitlines()
    record = json.loads(line)
    assert record.pop("timestamp").endswith("Z")
    assert record == {"event": "listed", "level": "info", "resource": "pods", "objects": 3}


@pytest.mark.parametrize(
    ("level", "told"), [("debug", ["a", "b", "c"]), ("info", ["b", "c"]), ("warning", ["c"])]
)
def test_less_than_the_level_is_not_told(
    monkeypatch: pytest.MonkeyPatch, level: str, told: list[str]
) -> None:
    output = _caught(monkeypatch)
    configure_logs(level)
    log = structlog.get_logger()
    log.debug("a")
    log.info("b")
    log.warning("c")
    assert [json.loads(line)["event"] for line in output.getvalue().splitlines()] == told


@pytest.mark.parametrize(
    "value",
    [
        "a",
        "é\u009b2J\u2028",
        "\ud800",
        1 << 70,
        -0.5,
        [1, {"a": None}],
        {1: "b"},
        ValueError("c"),
        b"d",
        (1, "e"),
        frozenset([1]),
        '\x7f\x00\n"\\',
    ],
    ids=ascii,
)
def test_a_line_is_what_json_makes_of_the_record(
    monkeypatch: pytest.MonkeyPatch, value: object
) -> None:
    output = _caught(monkeypatch)
    configure_logs()
    structlog.get_logger().info("seen", value=value)
    (line,) = output.getvalue().splitlines()
    found = json.loads(line)
    assert json.dumps(found) == line
    assert datetime.fromisoformat(found["timestamp"]).tzinfo == UTC
    assert found["timestamp"].endswith("Z")
    assert line.isascii()
    if isinstance(value, str | int | float | list):
        assert found["value"] == value
    elif isinstance(value, ValueError | bytes):
        assert "c" in str(found["value"]) or found["value"] == "ZA=="


def test_a_failure_stays_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    output = _caught(monkeypatch)
    configure_logs()
    try:
        int("broken")
    except ValueError:
        structlog.get_logger().exception("failed")
    (line,) = output.getvalue().splitlines()
    assert "ValueError: invalid literal" in json.loads(line)["exception"]


def test_a_terminal_gets_lines_for_people(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    configure_logs()
    structlog.get_logger().info("listed")
    assert not stream.getvalue().startswith("{")
    assert "listed" in stream.getvalue()


def test_a_value_that_somebody_else_wrote_does_not_steer_a_terminal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "stderr", stream := Terminal())
    configure_logs()
    structlog.get_logger().warning("refused", name="\x1b]0;owned\x07", errors=["\x1b[2J"])
    assert r"\u001b]0;owned\u0007" in stream.getvalue()
    assert not any(evil in stream.getvalue() for evil in ("\x1b]", "\x1b[2J", "\x07"))


def test_fields_of_a_process_are_in_each_record_also_of_loggers_in_use(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    output = _caught(monkeypatch)
    configure_logs()
    log = structlog.get_logger()
    log.info("a")
    add_to_records(worker=1)
    log.info("b")
    structlog.get_logger().info("c")
    records = [json.loads(line) for line in output.getvalue().splitlines()]
    assert [record.get("worker") for record in records] == [None, 1, 1]
