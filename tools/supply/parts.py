"""What the image is made of: Python distributions after the lock, and Go modules inside OPA.

Keeps true: names and versions come from requirements.lock and from the build information in OPA's
own program, never from a list that somebody keeps by hand.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_REQUIREMENT = re.compile(
    r"^(?P<name>[A-Za-z0-9._-]+)==(?P<version>[^\s;\\]+)(?P<rest>[^\n]*)", re.MULTILINE
)
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")
# Go 1.18 and later: a magic, a flag that strings follow inline, then two of them (debug/buildinfo).
_BUILD_INFO, _INLINE_AT, _STRINGS_AT = b"\xff Go buildinf:", 15, 32
_SENTINEL = 16  # bytes before and after the list of modules


@dataclass(frozen=True, slots=True, order=True)
class Part:
    """One thing that is shipped."""

    ecosystem: str  # as package URLs name it: pypi or golang
    name: str
    version: str
    hashes: tuple[str, ...] = ()  # SHA-256 of the files it may come as, in hexadecimal

    @property
    def url(self) -> str:
        """Return its package URL (purl-spec), which also identifies it."""
        return f"pkg:{self.ecosystem}/{self.name}@{self.version}"


def locked(lock: str) -> Iterator[Part]:
    """Yield what the text of a requirements file pins."""
    found = list(_REQUIREMENT.finditer(lock))
    for match, following in zip(found, [*found[1:], None], strict=True):
        text = lock[match.end() : following.start() if following else None]
        hashes = tuple(sorted(_HASH.findall(text)))
        yield Part("pypi", normal(match["name"]), match["version"], hashes)


def go_modules(program: Path) -> Iterator[Part]:
    """Yield the modules that a Go program was built of, itself first. Raises ValueError."""
    data = program.read_bytes()
    start = data.find(_BUILD_INFO)
    if start < 0 or not data[start + _INLINE_AT] & 2:
        msg = f"{program} tells nothing of how it was built"
        raise ValueError(msg)
    _go, after = _string(data, start + _STRINGS_AT)
    listed, _ = _string(data, after)
    for line in listed[_SENTINEL:-_SENTINEL].decode().splitlines():
        kind, *words = line.split("\t")
        if kind in ("mod", "dep"):
            yield Part("golang", words[0], words[1])


def _string(data: bytes, at: int) -> tuple[bytes, int]:
    """Read a string after its length (unsigned varint)."""
    length = shift = 0
    while True:
        byte = data[at]
        at += 1
        length |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:  # noqa: PLR2004 - the last byte of a varint
            return data[at : at + length], at + length


def normal(name: str) -> str:
    """Return a distribution's name as indexes write it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()
