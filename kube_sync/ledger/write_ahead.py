"""What was said and is not in the ledger yet: in a file beside it, written at once.

Keeps true: what `flush` says is written outlives this process, so whoever tells it on need not wait
for a database that another thread writes. It is read back in its order, the frames of what was
written at once as they were or not at all, and none after one that is torn. Up to which number the
ledger has it is for the ledger to say, in the transaction that takes it in: the file is begun anew,
as another generation, once it has all. While the file cannot be written, or is too large, or
another process has it, nothing is kept here, and who tells waits for the ledger as if there were no
such file. It belongs to one thread.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import struct
import zlib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

MOST_BYTES: Final = 16 << 20
_LARGE = 256 << 10  # bytes; a smaller one is not begun anew each time that the ledger has all
_HEAD = struct.Struct("<IIQ")  # length and CRC-32 of what follows, the number of what is first
_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(list[msgspec.Raw])
_MAGIC = b"kube-sync ledger, ahead of it: 1"  # the first frame, whose number is the generation


class FileState(NamedTuple):
    """What a file has: its generation (0: none), what was written by number, whether it is whole.

    It is not where a frame that is all there is not what was written. One that is cut off was never
    told to anybody: its process was killed in between.
    """

    generation: int
    items: tuple[tuple[int, msgspec.Raw], ...]
    size: int  # of what can be used, in bytes
    is_whole: bool


def left_in(body: bytes) -> FileState:
    """Read such a file. Raises msgspec.DecodeError where its frames were made by nobody we know."""
    found = [*_frames(body)]
    size = sum(_HEAD.size + len(payload) for _, payload in found)
    is_whole = _is_cut_off(body[size:])
    if not found or found[0][1] != _MAGIC:
        return FileState(0, (), 0, is_whole and not found)
    return FileState(found[0][0], tuple(_items(found[1:])), size, is_whole)


class Ahead:
    """The file, open for writing, if it can be."""

    def __init__(self, path: Path | None) -> None:
        """Open what an earlier process left, or begin it; nothing is added to what was left.

        None: there is no such file, and nothing is kept.
        """
        self.generation = 0  # of the file, 0: there is none
        self.left: tuple[tuple[int, msgspec.Raw], ...] = ()  # what was there, by number
        self.is_whole = True  # what was there is what was written
        self._items: list[object] = []  # not written yet
        self._last = 0
        self._size = 0
        self._keeps = False
        self._file: int | None = None
        if path is not None:
            with suppress(OSError, msgspec.DecodeError):
                self._open(path)

    def add(self, item: object) -> int:
        """Take something in that MessagePack can say; returns its number, 0: it is not taken."""
        if not self._keeps:
            return 0
        self._items.append(item)
        self._last += 1
        return self._last

    def flush(self) -> bool:
        """Write all of it; returns whether all that was taken in is written."""
        if self._items and self._file is not None:
            body = _encoder.encode(self._items)
            first, self._items = self._last - len(self._items) + 1, []
            try:
                self._write(self._file, _frame(first, body))
            except OSError:
                self._give_up()
            else:
                self._keeps = self._size < MOST_BYTES
        return self.generation != 0

    def begin_anew(self) -> None:
        """Forget all frames, which the ledger has, where they are many, or none can be added."""
        if self._file is not None and (self._size > _LARGE or not self._keeps):
            try:
                os.ftruncate(self._file, 0)
                self._begin(self._file)
            except OSError:
                self._give_up()

    def close(self) -> None:
        """Let go of the file."""
        if self._file is not None:
            os.close(self._file)
            self._file, self._keeps = None, False

    def _open(self, path: Path) -> None:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            with suppress(PermissionError):  # the file of another account
                os.fchmod(file, 0o600)  # one that an older version left
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self.is_whole = False  # or else:
            found = left_in(path.read_bytes())
            self.is_whole = found.is_whole
            if found.generation:
                self._size = found.size
                os.ftruncate(file, self._size)  # what is torn is no frame
                os.lseek(file, 0, os.SEEK_END)
                # Nothing comes behind it: what its process could not write had numbers too.
                self.generation, self.left = found.generation, found.items
            else:
                os.ftruncate(file, 0)
                self._begin(file)
        except (OSError, msgspec.DecodeError):
            os.close(file)
            self.generation, self._keeps = 0, False
            raise
        self._file = file

    def _begin(self, file: int) -> None:
        os.lseek(file, 0, os.SEEK_SET)
        self._items, self._size, self._last = [], 0, 0
        generation = secrets.randbits(62) + 1
        self._write(file, _frame(generation, _MAGIC))
        self.generation, self._keeps = generation, True

    def _write(self, file: int, body: bytes) -> None:
        rest = memoryview(body)
        while rest:
            rest = rest[os.write(file, rest) :]
        self._size += len(body)

    def _give_up(self) -> None:
        """Keep nothing until it is begun anew; what is written of the last frame is none."""
        self.generation, self._keeps, self._items = 0, False, []
        if self._file is not None:
            with suppress(OSError):
                os.ftruncate(self._file, self._size)
                os.lseek(self._file, 0, os.SEEK_END)


def _frame(number: int, payload: bytes) -> bytes:
    return _HEAD.pack(len(payload), _checked(number, payload), number) + payload


def _checked(number: int, payload: bytes) -> int:
    return zlib.crc32(payload, zlib.crc32(number.to_bytes(8)))


def _items(frames: Iterable[tuple[int, bytes]]) -> Iterator[tuple[int, msgspec.Raw]]:
    for first, payload in frames:
        yield from enumerate(_decoder.decode(payload), first)


def _is_cut_off(rest: bytes) -> bool:
    """Tell whether what comes after the last frame is nothing, or one whose end is missing."""
    return len(rest) < _HEAD.size or len(rest) - _HEAD.size < _HEAD.unpack_from(rest)[0]


def _frames(body: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while len(body) - at >= _HEAD.size:
        length, checked, number = _HEAD.unpack_from(body, at)
        at += _HEAD.size
        payload = body[at : at + length]
        if len(payload) < length or _checked(number, payload) != checked:
            return
        yield number, payload
        at += length
