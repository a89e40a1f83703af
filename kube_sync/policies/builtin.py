"""The built-in policy systems, as modules that are part of every set.

Invariant: they are delivered like the generated modules, whatever ConfigMaps do. They count as
nobody's policy, and no faulty ConfigMap unloads them. Their configuration is among them. Pure but
for reading the files of this installation.
"""

from __future__ import annotations

import msgspec

from kube_sync.config import Settings, chosen
from kube_sync.opa.modules import plain_package
from kube_sync.opa.paths import DataPath
from kube_sync.opa.scratch import Modules
from kube_sync.opa.system_modules import builtin_modules, config_modules
from kube_sync.policies.bundle import roots


def built_in(settings: Settings) -> Modules:
    """Return the built-in modules, source by id. Raises Misconfigured."""
    config = {s.name: msgspec.to_builtins(s.section(settings)) for s in chosen(settings)}
    return {**builtin_modules(settings.builtin), **config_modules(config)}


def packages(modules: Modules) -> list[DataPath]:
    """Return the packages that only built-in modules may declare, without nested ones."""
    declared = (plain_package(source) for source in modules.values())
    return roots(package for package in declared if package is not None)
