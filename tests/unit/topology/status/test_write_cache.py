"""Between a write and the watch event that tells of it, the answer counts."""

from __future__ import annotations

from typing import Any

from kube_sync.topology import Locator
from kube_sync.topology.status.write_cache import LatestObjects

NAME = Locator("service:shop/web")


def body(version: Any, said: str = "") -> dict[str, Any]:
    return {"metadata": {"resourceVersion": version}, "said": said}


class World:
    def __init__(self) -> None:
        self.told: dict[Locator, dict[str, Any]] = {NAME: body("1", "told")}
        self.latest = LatestObjects(self.told.get)


def test_what_was_told_counts_and_what_is_gone_is_gone() -> None:
    world = World()
    assert world.latest.get(NAME) == body("1", "told")
    assert world.latest.get(Locator("service:shop/none")) is None


def test_an_answer_counts_until_something_else_is_told() -> None:
    world = World()
    world.latest.record_response(NAME, "1", body("2", "answered"))
    world.latest.prune()
    assert world.latest.get(NAME) == body("2", "answered")
    for later in (body("3", "told"), body("1", "told")):  # no way back
        world.told[NAME] = later
        assert world.latest.get(NAME) == later


def test_an_answer_of_what_is_gone_is_let_go() -> None:
    world = World()
    world.latest.record_response(NAME, "1", body("2"))
    world.told.clear()
    world.latest.prune()
    world.told[NAME] = body("1", "another")
    assert world.latest.get(NAME) == body("1", "another")


def test_the_answer_to_the_last_write_is_known() -> None:
    world = World()
    assert world.latest.response(NAME) is None
    world.latest.record_response(NAME, "1", body("2"))
    assert world.latest.response(NAME) == body("2")


def test_a_version_that_cannot_be_read_is_none_that_was_written_on() -> None:
    world = World()
    world.told[NAME] = body(1)
    world.latest.record_response(NAME, "1", body("2"))
    assert world.latest.get(NAME) == body(1)
