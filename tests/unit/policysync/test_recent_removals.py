from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from kube_sync.policysync.copies import CopyKey
from kube_sync.policysync.recent_removals import decode, encode
from tests.fakes.copies import policy

NOW = 1_800_000_000.0
WEB = frozenset(["Gateway shop/web"])


def key(cluster: str, name: str = "login") -> CopyKey:
    return CopyKey(policy(name), cluster)


def test_what_was_let_go_is_read_as_it_was_written_and_not_for_shorter() -> None:
    let = {
        key("east"): (NOW - 10.5, WEB),
        key("west"): (NOW - 7.0, WEB),
        key("east", "gone"): (NOW - 60, frozenset[str]()),
    }
    assert decode(encode(let), NOW) == {
        key("east"): (NOW - 7, WEB),
        key("west"): (NOW - 7, WEB),
        key("east", "gone"): (NOW - 60, frozenset()),
    }


def test_nothing_is_no_text_and_the_same_is_the_same_text() -> None:
    assert encode({}) == ""
    assert decode("", NOW) == {}
    let = {key(c, n): (NOW, WEB) for c in ("a", "b") for n in ("x", "y")}
    assert encode(let) == encode(dict(reversed(let.items())))


def test_what_says_that_it_is_of_the_future_is_of_now() -> None:
    assert decode(encode({key("east"): (NOW + 1e6, WEB)}), NOW) == {key("east"): (NOW, WEB)}


@pytest.mark.parametrize("text", ["x", "{}", "[[1]]", '[["1",[],[],[]]]', "[" * 5000])
def test_what_is_malformed_tells_nothing_and_is_logged(text: str) -> None:
    with capture_logs() as logs:
        assert decode(text, NOW) == {}
    assert [one["event"] for one in logs] == ["let_go_unreadable"]


def test_of_more_than_there_is_room_for_the_latest_is_kept_which_is_logged() -> None:
    let = {key("c" * 60, f"p{n}"): (NOW - n, WEB) for n in range(2000)}
    with capture_logs() as logs:
        text = encode(let)
    assert len(text) <= 128 * 1024
    kept = decode(text, NOW)
    assert min(at for at, _ in kept.values()) == NOW - len(kept) + 1
    assert logs[0]["kept"] == len(kept) > 500
