"""What the policies of a world are warned of, as the replicator would write it into their statuses.

Builtins that fail are not among it: they depend on the objects that are decided on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from kube_sync.config import Settings
from kube_sync.inspect.plan.offline_opa import analysis, authored
from kube_sync.opa.analysis.result import Collection
from kube_sync.opa.scratch import Modules, ScratchOpa
from kube_sync.policies.linter import known_of
from kube_sync.policies.linting import lint
from kube_sync.policies.policywarning import PolicyWarning, without
from kube_sync.policies.reading import Reading


async def warned(
    modules: Modules,
    names: Mapping[str, str],
    settings: Settings,
    places: Mapping[str, Collection],
    scratch: ScratchOpa,
    reading: Reading | None = None,
) -> tuple[PolicyWarning, ...]:
    """Return the warnings on the modules of authors, with files as `names` calls modules.

    `reading` may have analysed these modules already. Raises SyncError.
    """
    reading = reading or analysis(scratch, settings.placement.path, places)
    known = known_of(settings, {name: place.namespaced for name, place in places.items()})
    read = await reading.modules(modules)
    found = await lint(read, authored(settings, modules), known, scratch)
    kept = without(found, settings.policies.warnings)
    return tuple(replace(one, file=names.get(one.file, one.file)) for one in kept)
