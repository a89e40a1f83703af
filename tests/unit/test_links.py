"""Links between the pages: each leads to a file that is there, and to a heading in it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    *ROOT.glob("*.md"),
    *(ROOT / "docs").rglob("*.md"),
    *(ROOT / "rego").rglob("*.md"),
]
DOCS = ROOT / "docs"
OWN = sorted(page.name for page in DOCS.glob("*.md") if page.name != "index.md")
# A line of text, then an item or a row; what is indented belongs to an item.
_GLUED = re.compile(r"^(?!- |\||#|\d+\. | |$).*\n(?=- |\| |\d+\. )", re.MULTILINE)
_FENCE = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"\]\(([^)\s]+)\)")


def anchors(page: Path) -> set[str]:
    """Return the anchors that GitHub makes of a page's headings."""
    text = _FENCE.sub("", page.read_text(encoding="utf-8"))
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    plain = (re.sub(r"\]\([^)]*\)|[^\w\s-]", "", heading.lower()) for heading in headings)
    return {heading.strip().replace(" ", "-") for heading in plain}


def broken(page: Path) -> list[str]:
    """Return the links of a page that lead nowhere."""
    found = []
    for link in _LINK.findall(_FENCE.sub("", page.read_text(encoding="utf-8"))):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            found.append(link)
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    assert broken(page) == []


def test_a_link_that_leads_nowhere_is_found(tmp_path: Path) -> None:
    (tmp_path / "b.md").write_text("# Two words, `code`\n")
    page = tmp_path / "a.md"
    page.write_text(
        "[a](b.md) [b](b.md#two-words-code) [c](b.md#three) [d](c.md) [e](https://example.com)"
    )
    assert broken(page) == ["b.md#three", "c.md"]


def test_every_page_is_in_one_place_of_the_navigation() -> None:
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").split("\nnav:\n")[1]
    named = re.findall(r"^ +- (?:.+: )?(\S+\.md)$", text, re.MULTILINE)
    assert sorted(named) == sorted(str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md"))


def test_the_readme_leads_to_the_index_and_the_index_to_every_page() -> None:
    assert "(docs/index.md)" in (ROOT / "README.md").read_text(encoding="utf-8")
    index = (DOCS / "index.md").read_text(encoding="utf-8")
    assert [name for name in OWN if f"({name})" not in index] == []


@pytest.mark.parametrize("name", OWN)
def test_the_first_sentence_says_what_the_page_is_for(name: str) -> None:
    _, _, text = (DOCS / name).read_text(encoding="utf-8").partition("\n")
    assert text.lstrip().startswith(("This page ", "This tutorial "))


def test_the_glossary_has_at_most_forty_terms_in_their_order() -> None:
    text = (DOCS / "glossary.md").read_text(encoding="utf-8")
    terms = [line.split(" | ")[0] for line in text.splitlines() if line.startswith("| ")][1:]
    assert terms == sorted(terms, key=str.lower)
    assert len(terms) <= 40


@pytest.mark.parametrize("page", sorted(DOCS.rglob("*.md")), ids=lambda page: page.name)
def test_lists_and_tables_begin_after_an_empty_line(page: Path) -> None:
    """GitHub does without it, the site shows one paragraph."""
    text = _FENCE.sub("```", page.read_text(encoding="utf-8"))
    assert _GLUED.findall(text) == []
