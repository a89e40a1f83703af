"""The demo's own steps, on servers as containers: what the README promises, from the outside."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import pytest

from tools.demo.components import TOLD, start_components
from tools.demo.narrator import Differs, Narrator
from tools.demo.story import tell
from tools.demo.webhook import register_webhook
from tools.demo.world import World
from tools.servers.running import Launcher
from tools.servers.stack import RunningStack, furnished_stack


@pytest.fixture
def empty_stack(launcher: Launcher, tmp_path: Path) -> Iterator[RunningStack]:
    """A stack of its own: the story begins on an empty one, and kills its OPA."""
    with furnished_stack(launcher, tmp_path / "stack") as stack:
        yield stack


def test_every_step_of_the_story_is_seen_as_expected(
    empty_stack: RunningStack, tmp_path: Path
) -> None:
    components = start_components(empty_stack, tmp_path / "components", TOLD)
    told = io.StringIO()
    try:
        register_webhook(empty_stack, components.webhook_url, components.webhook_ca)
        narrator = Narrator(told)
        tell(World(empty_stack), narrator)
    except Differs as error:
        pytest.fail(f"{error}\n{told.getvalue()}")
    finally:
        components.stop()
    assert narrator.told == 19
