"""An OPA that does not say how long an evaluation took."""

from __future__ import annotations


class Untimed:
    """Whoever waits for its answers measures that."""

    async def query(self, path: str, body: bytes) -> bytes | None:
        raise NotImplementedError

    async def timed_query(self, path: str, body: bytes) -> tuple[bytes | None, float | None]:
        return await self.query(path, body), None
