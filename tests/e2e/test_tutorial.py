"""`docs/tutorial.md`, word for word, in a checkout of its own, beside whatever a person runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.pages import Reader, steps
from tools.servers.pids import ProcessId
from tools.servers.processes import recorded

pytestmark = pytest.mark.slow

PAGE = Path(__file__).resolve().parents[2] / "docs/tutorial.md"


@pytest.mark.timeout(300)
@pytest.mark.usefixtures("launcher")  # the programs come out of its images
def test_every_command_of_the_tutorial_prints_what_the_page_says(
    checkout: Path, reader: Reader
) -> None:
    started: set[ProcessId] = set()
    for step in steps(PAGE.read_text(encoding="utf-8")):
        reader.do(step)
        started |= {process for process, _ in recorded(checkout / ".run")}
    assert len(started) == 7  # three servers, three services, the stand-in for a kubelet
    assert not [process for process in started if process.alive()]
    assert not (checkout / "tutorial").exists()
