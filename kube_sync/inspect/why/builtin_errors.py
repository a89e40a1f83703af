"""Quotes the errors of builtins in one decision, since OPA takes a call that fails for undefined.

Invariant: nothing of the answer depends on it: where the errors cannot be found, none are quoted.
Where Secrets are replicated with their values, an error names its builtin alone, since OPA quotes
the values that a builtin does not take.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from kube_sync.config import CLUSTERS
from kube_sync.errors import SyncError
from kube_sync.inspect.plan.snapshot import document
from kube_sync.inspect.why.case import Case
from kube_sync.kube.collection import Item
from kube_sync.opa.paths import reference
from kube_sync.opa.scratch import ScratchOpa
from kube_sync.policies.builtin_errors import BUILTIN_ERROR

_CHARACTERS = 500  # of a message


@dataclass(frozen=True, slots=True)
class BuiltinError:
    """OPA's error of a call, in the file by its name for people."""

    file: str
    row: int
    message: str


async def builtin_errors(
    case: Case, scratch: ScratchOpa, about: Item | None = None
) -> tuple[BuiltinError, ...]:
    """Return the errors in the decision, or those that one cluster (`about`) alone causes."""
    settings, world = case.settings, case.world
    bodies = world.bodies
    if about is not None and CLUSTERS in bodies:
        bodies = {**bodies, CLUSTERS: {about.key: bodies[CLUSTERS][about.key]}}
    data = document(settings.replicate.root, bodies, world.documents)
    asked = msgspec.Raw(world.input_of(case.subject.resource.name, case.subject.key))
    decision = reference(settings.placement.path.split("/"))
    try:
        causes = await scratch.builtin_errors(
            world.modules, msgspec.json.decode(data, type=dict[str, msgspec.Raw]), asked, decision
        )
    except SyncError:
        return ()
    whole = not any(r.holds_secrets and r.secrets for r in settings.replicate.resources)
    found = (_error(case, cause, whole=whole) for cause in causes)
    return tuple(dict.fromkeys(error for error in found if error is not None))


def _error(case: Case, cause: Mapping[str, Any], *, whole: bool) -> BuiltinError | None:
    if cause.get("code") != BUILTIN_ERROR:
        return None
    location, message = cause.get("location") or {}, str(cause.get("message", ""))
    if not whole:
        message = f"{message.partition(':')[0]} failed"
    file = case.world.file_name(str(location.get("file", "")))
    return BuiltinError(file, int(location.get("row", 0)), message[:_CHARACTERS])
