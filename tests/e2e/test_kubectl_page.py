"""What `docs/kubectl.md` has to try, word for word, in a checkout of its own."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.e2e.pages import Reader, steps

pytestmark = pytest.mark.slow

PAGE = (Path(__file__).resolve().parents[2] / "docs/kubectl.md").read_text(encoding="utf-8")


@pytest.mark.timeout(300)
@pytest.mark.usefixtures("launcher")  # the programs come out of its images
def test_plugin_finds_the_stack_that_the_page_starts(reader: Reader) -> None:
    (section,) = re.findall(r"^## Try it\n(.*?)(?=^## )", PAGE, re.DOTALL | re.MULTILINE)
    found = [*steps(section)]
    assert len(found) == 2
    for step in found:
        reader.do(step)
