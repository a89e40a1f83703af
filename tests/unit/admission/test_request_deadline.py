from __future__ import annotations

import pytest

from kube_sync.admission.request import duration, seconds_to_answer


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("5s", 5.0),
        ("1m0s", 60.0),
        ("1m30s", 90.0),
        ("500ms", 0.5),
        ("1.5s", 1.5),
        ("1.s", 1.0),
        (".5s", 0.5),
        ("2h", 7200.0),
        ("1h0m1s", 3601.0),
        ("100us", 1e-4),
        ("100µs", 1e-4),
        ("7ns", 7e-9),
        ("0s", 0.0),
    ],
)
def test_a_duration_is_read_as_go_writes_it(text: str, seconds: float) -> None:
    assert duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["soon", "5", "s", "-5s", "5s!", "5 s", "5sec", "1e3s", "٣x"])
def test_what_is_no_duration_is_none(text: str) -> None:
    assert duration(text) is None


@pytest.mark.parametrize(
    ("query", "seconds"),
    [("timeout=1s", 0.8), ("timeout=5s", 4.5), ("timeout=10s", 9.5), ("a=b&timeout=500ms", 0.4)],
)
def test_a_part_of_the_api_servers_time_is_left_for_the_way_back(
    query: str, seconds: float
) -> None:
    assert seconds_to_answer(query) == pytest.approx(seconds)


@pytest.mark.parametrize("query", ["", "timeout=", "timeout=soon", "timeout=0s", "%&=", "timeout"])
def test_where_no_time_is_given_it_is_the_api_servers_default(query: str) -> None:
    assert seconds_to_answer(query) == 9.5


@pytest.mark.parametrize("query", ["timeout=2h", "timeout=9999999999999h"])
def test_nobody_can_have_a_request_held_for_longer_than_the_api_server_could(query: str) -> None:
    assert seconds_to_answer(query) == 29.5
