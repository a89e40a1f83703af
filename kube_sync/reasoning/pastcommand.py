"""`kube-sync why --at`, from what is asked for to what is printed: the ledger is read, no cluster.

Wired here and not in `app`, as `why` is.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from kube_sync.ledger.reading import reading
from kube_sync.opa.scratch import ScratchOpa
from kube_sync.policykinds.printing import Answer
from kube_sync.reasoning.past import past
from kube_sync.reasoning.pastreport import past_as_json, past_as_text
from kube_sync.reasoning.pastrules import derived
from kube_sync.reasoning.recalled import Recalled
from kube_sync.settings import Settings


async def run(asked: Recalled, settings: Settings) -> Answer:
    """Return what to print. Raises SyncError: there is no answer."""
    with reading(Path(asked.file)) as ledger:
        found = past(ledger, asked)
    rules = await derived(found, settings, lambda: ScratchOpa.of(settings))
    if asked.form == "json":
        return Answer(past_as_json(found, rules), 0)
    return Answer(past_as_text(found, rules, shutil.get_terminal_size((100, 40)).columns), 0)
