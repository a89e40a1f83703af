"""CustomResourceDefinitions as other projects release them, read from their Go modules."""

from __future__ import annotations

from functools import cache
from typing import Any

import yaml

from tools.servers.thirdparty import ensure_kinds

Object = dict[str, Any]


@cache
def released(project: str) -> tuple[Object, ...]:
    """Return the definitions of a project, one of `tools.servers.thirdparty`."""
    text = ensure_kinds(project).read_text(encoding="utf-8")
    return tuple(body for body in yaml.load_all(text, Loader=yaml.CSafeLoader) if body)


def released_kind(project: str, kind: str) -> Object:
    """Return the definition of one kind."""
    return next(body for body in released(project) if body["spec"]["names"]["kind"] == kind)


def with_targets(project: str) -> tuple[Object, ...]:
    """Return the definitions whose objects have a targetRef or targetRefs."""
    return tuple(body for body in released(project) if _has_target(body))


def _has_target(body: Object) -> bool:
    for version in body["spec"]["versions"]:
        schema = version["schema"]["openAPIV3Schema"]
        spec = schema.get("properties", {}).get("spec", {}).get("properties", {})
        if not spec.keys().isdisjoint({"targetRef", "targetRefs"}):
            return True
    return False
