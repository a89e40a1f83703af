"""`docs/policy-packs.md`, word for word, on a stack of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.pages import Reader, steps

pytestmark = pytest.mark.slow

PAGE = Path(__file__).resolve().parents[2] / "docs/policy-packs.md"


@pytest.mark.timeout(300)
@pytest.mark.usefixtures("launcher")  # the programs come out of its images
def test_every_command_of_the_page_prints_what_the_page_says(
    checkout: Path, reader: Reader
) -> None:
    for step in steps(PAGE.read_text(encoding="utf-8")):
        reader.do(step)
    assert not (checkout / "packs-try").exists()
