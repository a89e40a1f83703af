"""Load kubernetes_asyncio's kubeconfig and service account readers, without its models.

Importing the whole package costs every process 0.5 s of CPU and about 50 MB for the model classes,
none of which is used here. Its configuration readers need two names of `kubernetes_asyncio.client`,
one of them for a function that this project does not call. During the import, empty packages with
just these names replace the two large ones, and a module that imports urllib3 when it is used
replaces that: the readers use no part of it. If a release of the library has another layout, the
package is imported whole.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from types import ModuleType
from typing import Any

_PACKAGE, _CLIENT = "kubernetes_asyncio", "kubernetes_asyncio.client"
_UNUSED = "urllib3"  # imported by the client's configuration, for a method that is not called
_CONFIG_MODULE = "configuration"  # the module of the client that the readers need


@cache
def config_modules() -> tuple[Any, Any]:
    """Return the modules `kube_config` and `incluster_config` of `kubernetes_asyncio.config`."""
    if _CLIENT in sys.modules:
        return _modules()
    try:
        with _without_models():
            return _modules()
    except (ImportError, AttributeError):
        return _modules()


def _modules() -> tuple[Any, Any]:
    return (
        importlib.import_module(f"{_PACKAGE}.config.kube_config"),
        importlib.import_module(f"{_PACKAGE}.config.incluster_config"),
    )


@contextmanager
def _without_models() -> Iterator[None]:
    """Replace the large packages by empty ones, and remove those afterwards for other importers."""
    before = set(sys.modules)
    try:
        sys.modules.setdefault(_UNUSED, _deferred(_UNUSED))
        _stub_package(_PACKAGE)
        client: Any = _stub_package(_CLIENT)
        configuration = importlib.import_module(f"{_CLIENT}.{_CONFIG_MODULE}")
        client.Configuration, client.ApiClient = configuration.Configuration, None
        yield
    finally:
        for name in set(sys.modules) - before:
            if name.partition(".")[0] in (_PACKAGE, _UNUSED):
                del sys.modules[name]


def _deferred(name: str) -> ModuleType:
    """Return a module that imports the one of this name when an attribute is asked for."""
    module = ModuleType(name)

    def imported(attribute: str) -> object:
        if sys.modules.get(name) is module:
            del sys.modules[name]
        return getattr(importlib.import_module(name), attribute)

    vars(module)["__getattr__"] = imported  # as PEP 562 has it
    return module


def _stub_package(name: str) -> ModuleType:
    """Replace the package of this name by an empty one; its submodules can still be imported."""
    if (spec := find_spec(name)) is None:
        raise ModuleNotFoundError(name=name)
    module = ModuleType(name)
    module.__path__ = list(spec.submodule_search_locations or ())
    sys.modules[name] = module
    return module
