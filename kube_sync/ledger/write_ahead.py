"""The write-ahead file beside the ledger: entries that are not in the ledger yet.

Invariant: an entry that `flush` reports as written outlives this process, so the publisher need not
wait for the database, which another thread writes. The file is read back in order, the frames of
one flush completely or not at all, and none after a torn one. The ledger stores its position in
this file, in the transaction that adds the entries; once it has all, the file is begun anew, as
another generation. While the file cannot be written, or is too large, or another process has it
locked, it takes nothing, and the publisher waits for the ledger instead. It belongs to one
thread.
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
_LARGE = 256 << 10  # bytes; a smaller file is not begun anew each time the ledger has all of it
_HEAD = struct.Struct("<IIQ")  # length and CRC-32 of the frame, the number of its first item
_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(list[msgspec.Raw])
_MAGIC = b"kube-sync ledger, ahead of it: 1"  # the first frame, whose number is the generation


class FileState(NamedTuple):
    """The content of a file: its generation (0: none), its items by number, whether it is intact.

    It is not intact if a complete frame fails its checksum. A frame that is cut off was never
    reported as written: its process was killed in between.
    """

    generation: int
    items: tuple[tuple[int, msgspec.Raw], ...]
    size: int  # of the usable part, in bytes
    is_whole: bool


def left_in(body: bytes) -> FileState:
    """Parse a file. Raises msgspec.DecodeError if its frames are of an unknown format."""
    found = [*_frames(body)]
    size = sum(_HEAD.size + len(payload) for _, payload in found)
    is_whole = _is_cut_off(body[size:])
    if not found or found[0][1] != _MAGIC:
        return FileState(0, (), 0, is_whole and not found)
    return FileState(found[0][0], tuple(_items(found[1:])), size, is_whole)


class Ahead:
    """The write-ahead file, open for writing, if possible."""

    def __init__(self, path: Path | None) -> None:
        """Open the file of an earlier process, or create it; nothing is appended to what it left.

        None: there is no such file, and nothing is written ahead.
        """
        self.generation = 0  # of the file, 0: there is none
        self.left: tuple[tuple[int, msgspec.Raw], ...] = ()  # from an earlier process, by number
        self.is_whole = True  # these items are intact
        self._items: list[object] = []  # not written yet
        self._last = 0
        self._size = 0
        self._keeps = False
        self._file: int | None = None
        if path is not None:
            with suppress(OSError, msgspec.DecodeError):
                self._open(path)

    def add(self, item: object) -> int:
        """Buffer an item that MessagePack can encode; return its number, 0: it is not accepted."""
        if not self._keeps:
            return 0
        self._items.append(item)
        self._last += 1
        return self._last

    def flush(self) -> bool:
        """Write the buffer; return whether all accepted items are written."""
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
        """Drop all frames, now in the ledger, if there are many, or none can be appended."""
        if self._file is not None and (self._size > _LARGE or not self._keeps):
            try:
                os.ftruncate(self._file, 0)
                self._begin(self._file)
            except OSError:
                self._give_up()

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            os.close(self._file)
            self._file, self._keeps = None, False

    def _open(self, path: Path) -> None:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            with suppress(PermissionError):  # the file of another account
                os.fchmod(file, 0o600)  # an older version may have left another mode
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self.is_whole = False  # set to true below:
            found = left_in(path.read_bytes())
            self.is_whole = found.is_whole
            if found.generation:
                self._size = found.size
                os.ftruncate(file, self._size)  # a torn frame is none
                os.lseek(file, 0, os.SEEK_END)
                # Nothing is appended to it: the items its process could not write had numbers too.
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
        """Accept nothing until begun anew; the written part of the last frame is cut off."""
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
    """Return whether the rest after the last frame is empty, or a frame without its end."""
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
