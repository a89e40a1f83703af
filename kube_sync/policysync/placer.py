"""What brings copies of policies to clusters, whichever way.

Level-based: a Placer tells from its own watch what lies where, and does one step when it is asked
to. It neither decides what is wanted (`plan` does) nor tries again (its caller does).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from kube_sync.policysync.copies import Copy, CopyKey, Placed, PolicyId

# Something of that policy's copies has changed: what lies where, or what a cluster says of it.
News = Callable[[PolicyId], None]


class Placer(Protocol):
    """Copies of the hub's policies as clusters have them; every step may be done twice."""

    @property
    def ready(self) -> bool:
        """Whether everything was listed, so that what is not placed is not there."""
        ...

    def policies(self) -> Iterable[PolicyId]:
        """Return every policy that there are copies of, also of one that the hub has no more."""
        ...

    def placed(self, policy: PolicyId) -> Mapping[str, Placed]:
        """Return the copies of a policy by cluster, without those that are on their way out."""
        ...

    async def apply(self, copy: Copy) -> None:
        """Make a copy as wanted, and let it stay; does nothing where it is so.

        Raises SyncError: Conflict when what has its name is somebody else's, Retriable while an
        earlier one is still on its way out.
        """
        ...

    async def leave(self, key: CopyKey, at: float) -> None:
        """Mark a copy: it may be removed from `at` on, in Unix seconds. Raises SyncError."""
        ...

    async def remove(self, key: CopyKey) -> None:
        """Remove a copy; one that is gone is fine. Raises SyncError."""
        ...
