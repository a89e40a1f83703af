"""The demo of policy sync, on API servers as containers: what its page promises, from outside."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import pytest

from tools.demo.narrator import Differs, Narrator
from tools.demo.sync.estate import Estate, running_estate
from tools.demo.sync.story import tell
from tools.demo.sync.world import World
from tools.servers.running import Launcher

pytestmark = pytest.mark.slow


@pytest.fixture
def estate(launcher: Launcher, tmp_path: Path) -> Iterator[Estate]:
    """A hub and spokes of its own: the story begins on empty ones, and kills its controller."""
    with running_estate(launcher, tmp_path) as estate:
        yield estate


@pytest.mark.timeout(590)
def test_every_step_of_the_story_of_policy_sync_is_seen_as_expected(estate: Estate) -> None:
    told = io.StringIO()
    narrator = Narrator(told)
    try:
        tell(World(estate), narrator)
    except Differs as error:
        pytest.fail(f"{error}\n{told.getvalue()}")
    assert narrator.told == 9
