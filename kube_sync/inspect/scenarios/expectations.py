"""Strict reading of a case's `expect`.

Invariant: expectations of a cluster that the case's world does not have, and contradictory ones,
are errors; so is an expectation that would check nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

from kube_sync.inspect.scenarios.placement import FIELDS
from kube_sync.inspect.scenarios.scenario import Expectation, ExpectedMessage
from kube_sync.inspect.scenarios.strict_yaml import Checking
from kube_sync.yamlnodes import Node, plain

KEYS: Final = (
    "clusters",
    "contains",
    "excludes",
    "placement",
    "annotations",
    "labels",
    "reasons",
    "evict",
    "errors",
    "fails",
    "undecided",
    "unchanged",
)
_SILENT: Final = ("fails", "undecided", "unchanged")  # each must be the only expectation
_WRITTEN: Final = ("clusters", "contains", "excludes", "annotations", "labels", "evict")


def wished(
    node: Node, checking: Checking, fleet: Collection[str], others: Collection[str]
) -> Expectation:
    """Return the expectations for this fleet; `others` are clusters that the case removes."""
    found = checking.members(node, KEYS)
    if isinstance(node.value, dict) and not node.value:
        checking.wrong(node, "nothing is expected: an expectation checks something")
    clusters = _Clusters(checking, fleet, others)
    errors, complete = _errors(found["errors"], checking) if "errors" in found else (None, True)
    wanted = Expectation(
        clusters.exactly(found["clusters"]) if "clusters" in found else None,
        clusters.named(found["contains"]) if "contains" in found else (),
        clusters.named(found["excludes"], also=others) if "excludes" in found else (),
        checking.text(found["placement"]) if "placement" in found else None,
        _annotations(found["annotations"], checking) if "annotations" in found else {},
        _labels(found["labels"], checking) if "labels" in found else {},
        clusters.reasons(found["reasons"]) if "reasons" in found else {},
        checking.flag(found["evict"]) if "evict" in found else None,
        errors,
        complete,
        _said(found["fails"], checking, exact=False) if "fails" in found else None,
        _true(found["undecided"], checking) if "undecided" in found else False,
        _true(found["unchanged"], checking) if "unchanged" in found else False,
    )
    _together(found, wanted, checking)
    return wanted


def _together(found: Mapping[str, Node], wanted: Expectation, checking: Checking) -> None:
    """Record contradictory expectations as problems."""
    for key in _SILENT:
        if key in found and len(found) > 1:
            others = ", ".join(other for other in found if other != key)
            checking.wrong(found[key], f"stands alone: no {others} beside it")
            return
    for key in _WRITTEN if wanted.refused else ():
        if key in found:
            checking.wrong(found[key], "nothing is written of a workload that is refused (errors)")
    for key in ("contains", "excludes"):
        if key in found and "clusters" in found:
            checking.wrong(found[key], "`clusters` says all of it already")
    for name in {*wanted.contains} & {*wanted.excludes}:
        checking.wrong(found["excludes"], f"{name} cannot be both contained and excluded")
    if "placement" in found and not wanted.places:
        checking.wrong(found["placement"], "goes with clusters, contains or excludes")


class _Clusters:
    """Reads names of clusters of a given fleet."""

    def __init__(self, checking: Checking, fleet: Collection[str], others: Collection[str]) -> None:
        self._checking = checking
        self._fleet = fleet
        self._gone = frozenset(others) - frozenset(fleet)

    def exactly(self, node: Node) -> Mapping[str, Mapping[str, int]]:
        """Return the clusters that a workload is expected on: names, or names with weights."""
        if isinstance(node.value, list):
            return {name: {} for name in self.named(node)}
        if isinstance(node.value, dict):
            return {name: self._share(n) for name, n in node.value.items() if self._is(n, name)}
        self._checking.expected(node, "a list of clusters, or a mapping of them to weights")
        return {}

    def named(self, node: Node, also: Collection[str] = ()) -> tuple[str, ...]:
        """Return names of existing clusters."""
        names = self._checking.texts(node)
        if not names and node.key.endswith(("contains", "excludes")) and node.value == []:
            self._checking.wrong(node, "it names no cluster, so it checks nothing")
        rows = {item.value: item for item in self._checking.items(node)}
        return tuple(name for name in names if self._is(rows[name], name, also))

    def reasons(self, node: Node) -> dict[str, ExpectedMessage | None]:
        """Return the expected messages by cluster."""
        entries = self._checking.entries(node)
        return {
            name: None if below.value is None else _said(below, self._checking, exact=True)
            for name, below in entries.items()
            if self._is(below, name)
        }

    def _is(self, node: Node, name: str, also: Collection[str] = ()) -> bool:
        if name in self._fleet or name in also:
            return True
        bare = name.rpartition("/")[2]
        if bare in self._fleet and "/" in name:
            why = f"a placement has no namespaces: {bare}"
        elif name in self._gone:
            why = f"the cluster {name} is taken away by `given`"
        else:
            why = f"there is no cluster {name} in this case ({', '.join(sorted(self._fleet))})"
        self._checking.wrong(node, why)
        return False

    def _share(self, node: Node) -> Mapping[str, int]:
        if isinstance(node.value, int):
            found = {"weight": self._number(node)}
        else:
            members = self._checking.members(node, FIELDS)
            found = {key: self._number(member) for key, member in members.items()}
        nothing = found.get("weight") == 0 and not found.get("minReplicas")
        if nothing or found.get("maxReplicas") == 0:
            self._checking.wrong(node, "it would get no replica: leave it out, or exclude it")
        return found

    def _number(self, node: Node) -> int:
        if isinstance(node.value, int) and not isinstance(node.value, bool) and node.value >= 0:
            return node.value
        self._checking.expected(node, "a whole number")
        return 1


def _annotations(node: Node, checking: Checking) -> dict[str, Any]:
    return {key: plain(below) for key, below in _some(node, checking).items()}


def _labels(node: Node, checking: Checking) -> dict[str, str | None]:
    found = _some(node, checking)
    for below in found.values():
        if not isinstance(below.value, str | None):
            checking.expected(below, "a text: put it into quotes")
    return {key: below.value for key, below in found.items() if isinstance(below.value, str | None)}


def _some(node: Node, checking: Checking) -> dict[str, Node]:
    found = checking.entries(node)
    if node.value == {}:
        checking.wrong(node, "it names nothing, so it checks nothing")
    return found


def _errors(node: Node, checking: Checking) -> tuple[tuple[ExpectedMessage, ...], bool]:
    """Return the expected errors, and whether there must be no others."""
    if isinstance(node.value, dict):
        found = checking.members(node, ("contains",), ("contains",))
        parts = checking.one_or_more(found["contains"]) if "contains" in found else ()
        return tuple(ExpectedMessage(part, exact=False) for part in parts), False
    return tuple(map(ExpectedMessage, checking.texts(node))), True


def _said(node: Node, checking: Checking, *, exact: bool) -> ExpectedMessage:
    if isinstance(node.value, dict):
        found = checking.members(node, ("contains",), ("contains",))
        part = checking.text(found["contains"]) if "contains" in found else ""
        return ExpectedMessage(part, exact=False)
    return ExpectedMessage(checking.text(node), exact=exact)


def _true(node: Node, checking: Checking) -> bool:
    if checking.flag(node) is False and node.value is False:
        checking.wrong(node, "only true means something: leave it out, or say what is expected")
    return True
