"""Read a page of documentation as its reader does: write its files, run its commands, compare.

Keeps true: no fenced block is passed over. One in `sh` is commands, a line each, joined by a
backslash; `text` right below it is their output; any other is a file, named at the end of the line
above it. In an output `…` is any part of a line, and on a line of its own any lines.

A reader repeats a command that only reads until the output is as the page says; so does this, for
the commands of that kind that end a block. All others run once.
"""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

_READING = (
    "kubectl get ",
    "kube-sync decisions",
    "kube-sync remediate status",
    "kube-sync history",
)
_FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_NAMED = re.compile(r"`([\w./-]+)`:\n+\Z")
_REFUSED = "Error from server"
_PATIENCE, _PAUSE = 60.0, 0.1  # seconds


class Unlike(Exception):
    """The page says something else than what happens."""


@dataclass(frozen=True, slots=True)
class Document:
    """A file that the reader is to write."""

    path: str
    text: str


@dataclass(frozen=True, slots=True)
class Commands:
    """Commands, and what they print (None: the page does not say)."""

    lines: tuple[str, ...]
    output: str | None


def steps(page: str) -> Iterator[Document | Commands]:
    """Yield what a reader does, in order. Raises ValueError for a block that means nothing."""
    blocks, end = list(_FENCED.finditer(page)), 0
    for at, block in enumerate(blocks):
        before, end = page[end : block.start()], block.end()
        language, text = block.groups()
        if language == "sh":
            follows = page[end : blocks[at + 1].start()] if blocks[at + 1 :] else None
            has_output = follows == "\n" and blocks[at + 1][1] == "text"
            yield Commands(_commands(text), blocks[at + 1][2] if has_output else None)
        elif language != "text":
            if (named := _NAMED.search(before)) is None:
                msg = f"a block that is neither commands nor a file: {text[:60]!r}"
                raise ValueError(msg)
            yield Document(named[1], text)
        elif at == 0 or before != "\n" or blocks[at - 1][1] != "sh":
            msg = f"an output of no commands: {text[:60]!r}"
            raise ValueError(msg)


def _commands(text: str) -> tuple[str, ...]:
    return tuple(re.split(r"(?<!\\)\n", text.rstrip("\n")))


def alike(output: str, printed: str) -> bool:
    """Tell whether a page's output is what was printed, but for spaces at the ends of lines."""
    lines = [
        r"(?:.*\n)*" if line == "…" else r".*".join(map(re.escape, line.split("…"))) + r"\n"
        for line in output.splitlines()
    ]
    plain = "".join(f"{line.rstrip()}\n" for line in printed.splitlines())
    return re.fullmatch("".join(lines), plain) is not None


class Reader:
    """Whoever sits before one shell: what a block exports, the next one finds."""

    def __init__(
        self, folder: Path, environment: Mapping[str, str], patience: float = _PATIENCE
    ) -> None:
        """`folder` is where the page's commands run; `patience` in seconds."""
        self._folder = folder
        self._patience = patience
        self._exported = dict(environment)

    def do(self, step: Document | Commands) -> None:
        """Do one step. Raises Unlike."""
        if isinstance(step, Document):
            (self._folder / step.path).write_text(step.text, encoding="utf-8")
        else:
            self._compare(step)

    def _compare(self, step: Commands) -> None:
        lines, reading = list(step.lines), list[str]()
        while lines and lines[-1].startswith(_READING):
            reading.insert(0, lines.pop())
        refused = step.output is not None and step.output.startswith(_REFUSED)
        printed = self._run(lines, refused=refused)
        deadline = time.monotonic() + self._patience
        while not self._is_said(step, whole := printed + self._run(reading)):
            if not reading or time.monotonic() > deadline:
                commands = "\n".join(step.lines)
                msg = f"{commands}\n-- the page says:\n{step.output}-- printed:\n{whole}"
                raise Unlike(msg)
            time.sleep(_PAUSE)

    def _is_said(self, step: Commands, printed: str) -> bool:
        return step.output is None or alike(step.output, printed)

    def _run(self, lines: list[str], *, refused: bool = False) -> str:
        """Return what commands print; those that are refused fail, and no others."""
        if not lines:
            return ""
        kept = self._folder / ".exported"
        script = "\n".join([*lines, f"env --null > {kept.name}"])
        ran = subprocess.run(
            ["/bin/bash", "-euo", "pipefail", "-c", script],
            cwd=self._folder,
            env=self._exported,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        if (ran.returncode != 0) is not refused:
            msg = f"{script}\n-- ended with {ran.returncode}:\n{ran.stdout}"
            raise Unlike(msg)
        if not refused:
            pairs = kept.read_text(encoding="utf-8").rstrip("\0").split("\0")
            self._exported = dict(pair.split("=", 1) for pair in pairs)
        return ran.stdout
