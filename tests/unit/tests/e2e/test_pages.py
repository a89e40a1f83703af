"""The reader of documentation that the tutorial's test uses: what it refuses to take for right."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.pages import Commands, Document, Reader, Unlike, alike, steps

PATH = {"PATH": "/usr/bin:/bin"}


def read(page: str, folder: Path, patience: float = 0.0) -> None:
    reader = Reader(folder, PATH, patience)
    for step in steps(page):
        reader.do(step)


def program(folder: Path, name: str, script: str) -> None:
    (folder / name).write_text(f"#!/bin/bash\n{script}\n", encoding="utf-8")
    (folder / name).chmod(0o755)


def test_files_commands_and_outputs_are_found_in_order() -> None:
    page = (
        "Write `a/b.rego`:\n```rego\nx\n```\n```sh\none \\\n  more\ntwo\n```\n```text\nout\n```\n"
    )
    page += "Then\n```sh\nthree\n```\n"
    assert list(steps(page)) == [
        Document("a/b.rego", "x\n"),
        Commands(("one \\\n  more", "two"), "out\n"),
        Commands(("three",), None),
    ]


@pytest.mark.parametrize(
    "page",
    [
        "A file of no name\n```yaml\nx\n```\n",
        "```text\nout\n```\n",
        "```sh\none\n```\nprose\n```text\nout\n```\n",
    ],
)
def test_block_that_means_nothing_is_an_error(page: str) -> None:
    with pytest.raises(ValueError, match=r"a block that|an output of"):
        list(steps(page))


@pytest.mark.parametrize(
    ("output", "printed", "is_alike"),
    [
        ("a\n", "a\n", True),
        ("a\n", "a  \n", True),
        ("a\n", "a\nb\n", False),
        ("a\nb\n", "a\n", False),
        ("a.c\n", "abc\n", False),
        ("a…c\n", "abbc\n", True),
        ("a…c\n", "ab\nc\n", False),
        ("…\nc\n", "a\nb\nc\n", True),
        ("…\nc\n", "c\n", True),
        ("…\nc\n", "a\nb\n", False),
    ],
)
def test_output_is_alike_line_by_line(output: str, printed: str, *, is_alike: bool) -> None:
    assert alike(output, printed) is is_alike


def test_what_a_block_exports_is_there_in_the_next(tmp_path: Path) -> None:
    page = "`env`:\n```ini\nexport A='1 2'\n```\n```sh\n. ./env\n```\n```sh\necho $A\n```\n"
    read(page + "```text\n1 2\n```\n", tmp_path)


def test_output_that_differs_is_told_with_both(tmp_path: Path) -> None:
    with pytest.raises(Unlike, match=r"page says:\ntwo\n-- printed:\none\n"):
        read("```sh\necho one\n```\n```text\ntwo\n```\n", tmp_path)


def test_command_that_fails_ends_the_page_though_nothing_is_said_of_its_output(
    tmp_path: Path,
) -> None:
    with pytest.raises(Unlike, match="ended with 1"):
        read("```sh\nfalse | cat\necho on\n```\n", tmp_path)


def test_command_that_is_said_to_be_refused_has_to_fail(tmp_path: Path) -> None:
    refused = "```sh\necho Error from server; exit {}\n```\n```text\nError from server\n```\n"
    read(refused.format(1), tmp_path)
    with pytest.raises(Unlike, match="ended with 0"):
        read(refused.format(0), tmp_path)


def test_only_commands_that_read_are_repeated(tmp_path: Path) -> None:
    program(tmp_path, "kubectl", 'echo x >> gets; wc -l < "$2"')
    page = (
        "```sh\necho x >> writes\n./kubectl get gets\nkubectl get gets\nkubectl get writes\n```\n"
    )
    reader = Reader(tmp_path, {"PATH": f"{tmp_path}:/usr/bin:/bin"}, patience=20.0)
    for step in steps(page + "```text\n1\n4\n1\n```\n"):
        reader.do(step)
    assert (tmp_path / "writes").read_text(encoding="utf-8") == "x\n"
