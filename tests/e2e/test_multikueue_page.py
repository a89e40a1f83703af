"""`docs/multikueue.md`, word for word, and with it the demo that the page begins with."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.pages import Reader, steps
from tools.servers.stack import stop_recorded

pytestmark = [pytest.mark.built("kueue"), pytest.mark.slow]

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/multikueue.md"
_OF_THE_READER = (".run", "job.yaml")
_NOT_PASSED_ON = ("KUBE", "MAKE", "MFLAGS", "STACK", "DOCKER")


@pytest.fixture
def reader() -> Iterator[Reader]:
    """A reader in a checkout that shares all but what its reader makes in it."""
    folder = Path(tempfile.mkdtemp(prefix="kube-sync-multikueue-")).resolve()
    for found in ROOT.iterdir():
        if found.name not in _OF_THE_READER:
            (folder / found.name).symlink_to(found)
    passed_on = {k: v for k, v in os.environ.items() if not k.startswith(_NOT_PASSED_ON)}
    own = {"KUBE_SYNC_RUN": str(folder / ".run"), "DOCKER_HOST": f"unix://{folder}/none"}
    host = {"KUBE_SYNC_COMPOSE_HOST": str(folder / ".run/compose")}
    yield Reader(folder, {**passed_on, **own, **host})
    stop_recorded(folder / ".run")
    shutil.rmtree(folder)


@pytest.mark.timeout(400)
@pytest.mark.usefixtures("launcher")  # the programs come out of its images
def test_every_command_of_the_page_prints_what_it_says(reader: Reader) -> None:
    for step in steps(PAGE.read_text(encoding="utf-8")):
        reader.do(step)
