"""Finds the policy modules, and the objects that contain them, behind an evaluation error. Pure.

OPA names a module by its id, `<namespace>/<policy>/<key>`, with the bundle's name as prefix if it
came in one and with `.rego` appended to a key without it. For two values of one rule OPA 1.22 names
both places in its message; for an OPA that names one, the other is searched in the modules that the
webhook knows: those of the same package that define a rule of that name.

Values are left out: they contain data that the policy reads.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from kube_sync.kube.policynames import called
from kube_sync.objects import ObjectKey
from kube_sync.opa.client import OpaError
from kube_sync.opa.modules import plain_package

_CONFLICT = "eval_conflict_error"
_RULE = re.compile(r"\A(?P<rule>(?:rule|function) .+?) produced conflicting values")
_PLACE = re.compile(r" at (?P<file>\S+):(?P<row>[0-9]{1,9})$", re.MULTILINE)
_HEAD = re.compile(r"(?:default\s+)?(?P<name>[A-Za-z_]\w*)")


def describe(error: OpaError, modules: Mapping[str, str]) -> str:
    """Describe in one line which policies failed and in which objects; `modules`: all known."""
    for cause in error.errors:
        if isinstance(cause, dict) and cause.get("code") == _CONFLICT:
            return _conflict(cause, modules)
    return _failure(error, modules)


def _conflict(cause: Mapping[str, object], modules: Mapping[str, str]) -> str:
    message = str(cause.get("message", ""))
    rule = _RULE.search(message)
    stated = [(found["file"], int(found["row"])) for found in _PLACE.finditer(message)]
    places = [(_id_of(file, modules), row) for file, row in stated or _located(cause)]
    if len(places) == 1:
        places += [(other, 0) for other in _others(*places[0], modules)]
    about = f"the {rule['rule']}" if rule else "one rule"
    named = " and ".join(_named(module, row, modules) for module, row in places)
    return f"policies give {about} different values: {named or 'OPA does not say where'}"


def _failure(error: OpaError, modules: Mapping[str, str]) -> str:
    """Return OPA's message for the first cause, with the policy that contains it."""
    cause = error.errors[0] if error.errors else None
    located = _located(cause) if isinstance(cause, dict) else []
    held = "".join(f" ({_named(_id_of(file, modules), row, modules)})" for file, row in located)
    return f"the policy failed: {error}{held}"


def _located(cause: Mapping[str, object]) -> list[tuple[str, int]]:
    location = cause.get("location")
    if not isinstance(location, dict) or not location.get("file"):
        return []
    row = location.get("row")
    return [(str(location["file"]), row if isinstance(row, int) else 0)]


def _id_of(file: str, modules: Mapping[str, str]) -> str:
    """Return the id of the module that OPA calls `file`, or `file` if it is not known."""
    parts = file.strip("/").split("/")
    for start in range(max(0, len(parts) - 2)):
        name = "/".join(parts[start:])
        for candidate in (name, name.removesuffix(".rego")):
            if candidate in modules:
                return candidate
    return file


def _others(module: str, row: int, modules: Mapping[str, str]) -> Iterator[str]:
    """Yield the other modules of the same package that define the rule in that row."""
    lines = modules.get(module, "").splitlines()
    head = _HEAD.match(lines[row - 1]) if 0 < row <= len(lines) else None
    package = plain_package(modules.get(module, ""))
    if head is None or package is None:
        return
    defines = re.compile(rf"^(?:default\s+)?{head['name']}\b", re.MULTILINE)
    for other, source in modules.items():
        if other != module and plain_package(source) == package and defines.search(source):
            yield other


def _named(module: str, row: int, modules: Mapping[str, str]) -> str:
    where = f" row {row}" if row else ""
    if module not in modules:  # OPA was started with it
        return f"{module}{where}"
    namespace, name, key = module.split("/", 2)
    return f"{key}{where} of {called(ObjectKey(namespace, name))}"
