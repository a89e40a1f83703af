"""The built-in policy systems as modules that are part of every set.

Keeps true: they come and stay with whatever ConfigMaps do, since they are delivered as the
generated modules are: they count as no policy of anybody's, and no ConfigMap at fault takes them
with it. Their configuration is among them. Pure but for the files of this installation.
"""

from __future__ import annotations

import msgspec

from kube_sync.config import Settings, chosen
from kube_sync.opa.builtin import builtin_modules, config_modules
from kube_sync.opa.modules import plain_package
from kube_sync.opa.paths import DataPath
from kube_sync.opa.scratch import Modules
from kube_sync.policies.bundle import roots


def built_in(settings: Settings) -> Modules:
    """Return the modules of what is built in, source by id. Raises Misconfigured."""
    config = {s.name: msgspec.to_builtins(s.section(settings)) for s in chosen(settings)}
    return {**builtin_modules(settings.builtin), **config_modules(config)}


def packages(modules: Modules) -> list[DataPath]:
    """Return the packages that nobody else may add to, none of them within another."""
    declared = (plain_package(source) for source in modules.values())
    return roots(package for package in declared if package is not None)
