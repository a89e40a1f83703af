"""`docs/argocd.md`, word for word, and the act of the demo that Argo CD is in."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.pages import Commands, Reader, steps

pytestmark = [pytest.mark.built("argocd"), pytest.mark.timeout(600)]

PAGE = Path(__file__).resolve().parents[2] / "docs/argocd.md"


@pytest.mark.usefixtures("launcher")  # the programs come out of its images
def test_every_command_of_the_page_prints_what_the_page_says(
    checkout: Path, reader: Reader
) -> None:
    for step in steps(PAGE.read_text(encoding="utf-8")):
        reader.do(step)
    assert not (checkout / "argocd-try").exists()


@pytest.mark.usefixtures("launcher")
def test_the_demo_tells_of_argo_cd_where_it_is_asked_to(reader: Reader) -> None:
    reader.do(Commands(("make demo WITH=argocd | tail -n 12",), None))
    reader.do(Commands(("make down",), None))
