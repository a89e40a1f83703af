from __future__ import annotations

import pytest

from kube_sync.runtime.foreignpages import foreign


@pytest.mark.parametrize(
    "host",
    ["localhost", "localhost:9400", "127.0.0.1:9400", "127.3.2.1", "[::1]:9400", "LOCALHOST:1"],
)
def test_names_of_this_machine_may_be_called_without_a_token(host: str) -> None:
    assert foreign({"Host": host}, open_to_all=True) is None


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:9400",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "10.0.0.1",
        "",
        "[::1",
        "[::2]:9400",
        "localhost@evil.example:1/",
    ],
)
def test_other_names_may_not_since_they_may_be_rebound(host: str) -> None:
    assert "name of this machine" in str(foreign({"Host": host}, open_to_all=True))
    assert foreign({"Host": host}, open_to_all=False) is None


def test_programs_that_say_nothing_notice_nothing() -> None:
    assert foreign({}, open_to_all=True) is None
    assert foreign({}, open_to_all=False) is None


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_pages_of_other_sites_may_not_ask_but_may_have_a_link(site: str) -> None:
    told = {"Host": "localhost", "Sec-Fetch-Site": site, "Sec-Fetch-Mode": "no-cors"}
    assert foreign(told, open_to_all=True) == "a page of another site asks"
    assert foreign(told | {"Sec-Fetch-Mode": "navigate"}, open_to_all=True) is None
    assert foreign(told | {"Sec-Fetch-Site": "same-origin"}, open_to_all=True) is None


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://[", "http://r:9401"])
def test_another_origin_may_not_ask(origin: str) -> None:
    told = {"Host": "r:9400", "Origin": origin}
    assert foreign(told, open_to_all=False) == "a page of another origin asks"
    assert foreign(told | {"Origin": "http://R:9400"}, open_to_all=False) is None
