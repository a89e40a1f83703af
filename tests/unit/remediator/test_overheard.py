from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

from kube_sync.decisions.records import BookmarkRecord, Record
from kube_sync.remediator.overheard import Overheard


class Stream:
    def __init__(self) -> None:
        self.closed = False

    async def records(self) -> AsyncGenerator[Record | None]:
        try:
            yield None
            yield BookmarkRecord(1, "me")
            yield BookmarkRecord(2, "me")
        finally:
            self.closed = True


async def test_both_hear_the_same_until_one_reads_no_more() -> None:
    stream, heard = Stream(), list[Record | None]()
    read = []
    async with aclosing(Overheard(stream, heard.append).records()) as records:
        async for record in records:
            read.append(record)
            assert heard == read
            if record is not None:
                break
    assert read == [None, BookmarkRecord(1, "me")]
    assert stream.closed


async def test_a_stream_that_ends_ends_for_both() -> None:
    heard = list[Record | None]()
    read = [record async for record in Overheard(Stream(), heard.append).records()]
    assert read == heard == [None, BookmarkRecord(1, "me"), BookmarkRecord(2, "me")]
