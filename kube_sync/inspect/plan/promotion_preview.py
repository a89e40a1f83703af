"""What a promotion would move, for the person who is asked whether to promote.

The plan is that of `kube-sync plan --staged --candidate`, of a policy of any stage.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Final

from kube_sync.config import Settings
from kube_sync.errors import SyncError
from kube_sync.inspect.plan.command import planned
from kube_sync.inspect.plan.plan import Plan
from kube_sync.inspect.plan.report import counted, names
from kube_sync.inspect.plan.request import Request
from kube_sync.inspect.survey.progress import Progress
from kube_sync.kube.staging import CANDIDATE
from kube_sync.objects import ObjectKey
from kube_sync.observability.printing import plain
from kube_sync.opa.lanes import LANES

_ROWS: Final = 10


async def preview(
    settings: Settings, policy: ObjectKey, complain: Callable[[str], None]
) -> list[str]:
    """Return how many workloads would be decided otherwise, and the first of them, line by line.

    Where it cannot be told, the reason is the only line.
    """
    request = Request(staged=True, candidates=(str(policy),), stages=(CANDIDATE, *LANES))
    try:
        plan = await planned(request, settings, Progress(complain), time.time())
    except SyncError as error:
        return [f"what would move cannot be told: {plain(str(error))}"]
    return [*map(plain, lines(plan))]


def lines(plan: Plan) -> Iterator[str]:
    """Yield what a plan changes: the numbers, and the first workloads."""
    yield counted(plan)
    changed = [one for one in plan.ordered if not one.pending]
    for one in changed[:_ROWS]:
        yield f"  {one.resource} {one.key}  {names(one.before)} -> {names(one.after)}  ({one.kind})"
    if left := len(changed) - _ROWS if len(changed) > _ROWS else 0:
        yield f"  … and {left} more"
