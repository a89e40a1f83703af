"""Roles that grant the use of SchedulingPolicies in an API group in which there are none.

The design document has the group `extensions`: a role as it prints it is valid, and grants nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from kube_sync.policykinds.kinds import SCHEDULING
from kube_sync.policykinds.reports import Report

_GROUPS: Final = frozenset({SCHEDULING.gvr.group, "*"})

Json = Mapping[str, Any]


def rights_of_other_groups(data: Mapping[str, Json]) -> dict[str, Report]:
    """Return a finding for each such role, by its kind and name; `data` is by collection."""
    found: dict[str, Report] = {}
    for name, role in _roles(data):
        if findings := tuple(_findings(role)):
            found[name] = Report((), findings)
    return found


def _roles(data: Mapping[str, Json]) -> Iterator[tuple[str, Any]]:
    for name, role in data.get("clusterroles", {}).items():
        yield f"ClusterRole {name}", role
    for namespace, roles in data.get("roles", {}).items():
        for name, role in roles.items():
            yield f"Role {namespace}/{name}", role


def _findings(role: Any) -> Iterator[str]:  # noqa: ANN401 - any JSON
    rules = role.get("rules")
    for index, rule in enumerate(rules if isinstance(rules, list) else ()):
        groups = _texts(rule, "apiGroups")
        if (
            groups
            and _GROUPS.isdisjoint(groups)
            and SCHEDULING.gvr.resource in _texts(rule, "resources")
            and "use" in _texts(rule, "verbs")
        ):
            yield (
                f"rules[{index}]: grants the use of {SCHEDULING.gvr.resource} of the API group"
                f" {', '.join(groups)}, not of {SCHEDULING.gvr.group}"
            )


def _texts(rule: Any, field: str) -> list[str]:  # noqa: ANN401 - any JSON
    found = rule.get(field) if isinstance(rule, dict) else None
    return [str(one) for one in found] if isinstance(found, list) else []
