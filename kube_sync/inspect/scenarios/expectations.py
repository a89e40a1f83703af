"""Strict reading of a case's `expect`.

Invariant: expectations of a cluster that the case's world does not have, and contradictory ones,
are errors; so is an expectation that would check nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

from kube_sync.inspect.scenarios.format import Expect, Part, Parts, Share, keys
from kube_sync.inspect.scenarios.scenario import Expectation, ExpectedMessage
from kube_sync.inspect.scenarios.strict_yaml import StrictReader
from kube_sync.yamlnodes import Node, plain

KEYS: Final = keys(Expect)
_SILENT: Final = ("fails", "undecided", "unchanged")  # each must be the only expectation
_WRITTEN: Final = ("clusters", "contains", "excludes", "annotations", "labels", "evict")


def read_expectation(
    node: Node, reader: StrictReader, fleet: Collection[str], others: Collection[str]
) -> Expectation:
    """Return the expectations for this fleet; `others` are clusters that the case removes."""
    found = reader.members(node, KEYS)
    if isinstance(node.value, dict) and not node.value:
        reader.add_problem(node, "nothing is expected: an expectation checks something")
    clusters = _Clusters(reader, fleet, others)
    errors, complete = _errors(found["errors"], reader) if "errors" in found else (None, True)
    wanted = Expectation(
        clusters.read_exact(found["clusters"]) if "clusters" in found else None,
        clusters.read_names(found["contains"]) if "contains" in found else (),
        clusters.read_names(found["excludes"], also=others) if "excludes" in found else (),
        reader.text(found["placement"]) if "placement" in found else None,
        _annotations(found["annotations"], reader) if "annotations" in found else {},
        _labels(found["labels"], reader) if "labels" in found else {},
        clusters.read_reasons(found["reasons"]) if "reasons" in found else {},
        reader.flag(found["evict"]) if "evict" in found else None,
        errors,
        complete,
        _message(found["fails"], reader, exact=False) if "fails" in found else None,
        _only_true(found["undecided"], reader) if "undecided" in found else False,
        _only_true(found["unchanged"], reader) if "unchanged" in found else False,
    )
    _check_contradictions(found, wanted, reader)
    return wanted


def _check_contradictions(
    found: Mapping[str, Node], wanted: Expectation, reader: StrictReader
) -> None:
    """Record contradictory expectations as problems."""
    for key in _SILENT:
        if key in found and len(found) > 1:
            others = ", ".join(other for other in found if other != key)
            reader.add_problem(found[key], f"stands alone: no {others} beside it")
            return
    for key in _WRITTEN if wanted.refused else ():
        if key in found:
            reader.add_problem(
                found[key], "nothing is written of a workload that is refused (errors)"
            )
    for key in ("contains", "excludes"):
        if key in found and "clusters" in found:
            reader.add_problem(found[key], "`clusters` says all of it already")
    for name in {*wanted.contains} & {*wanted.excludes}:
        reader.add_problem(found["excludes"], f"{name} cannot be both contained and excluded")
    if "placement" in found and not wanted.places:
        reader.add_problem(found["placement"], "goes with clusters, contains or excludes")


class _Clusters:
    """Reads names of clusters of a given fleet."""

    def __init__(
        self, reader: StrictReader, fleet: Collection[str], others: Collection[str]
    ) -> None:
        self._reader = reader
        self._fleet = fleet
        self._gone = frozenset(others) - frozenset(fleet)

    def read_exact(self, node: Node) -> Mapping[str, Mapping[str, int]]:
        """Return the clusters that a workload is expected on: names, or names with weights."""
        if isinstance(node.value, list):
            return {name: {} for name in self.read_names(node)}
        if isinstance(node.value, dict):
            return {
                name: self._share(n) for name, n in node.value.items() if self._is_known(n, name)
            }
        self._reader.add_unexpected(node, "a list of clusters, or a mapping of them to weights")
        return {}

    def read_names(self, node: Node, also: Collection[str] = ()) -> tuple[str, ...]:
        """Return names of existing clusters."""
        names = self._reader.texts(node)
        if not names and node.key.endswith(("contains", "excludes")) and node.value == []:
            self._reader.add_problem(node, "it names no cluster, so it checks nothing")
        rows = {item.value: item for item in self._reader.items(node)}
        return tuple(name for name in names if self._is_known(rows[name], name, also))

    def read_reasons(self, node: Node) -> dict[str, ExpectedMessage | None]:
        """Return the expected messages by cluster."""
        entries = self._reader.entries(node)
        return {
            name: None if below.value is None else _message(below, self._reader, exact=True)
            for name, below in entries.items()
            if self._is_known(below, name)
        }

    def _is_known(self, node: Node, name: str, also: Collection[str] = ()) -> bool:
        if name in self._fleet or name in also:
            return True
        bare = name.rpartition("/")[2]
        if bare in self._fleet and "/" in name:
            why = f"a placement has no namespaces: {bare}"
        elif name in self._gone:
            why = f"the cluster {name} is taken away by `given`"
        else:
            why = f"there is no cluster {name} in this case ({', '.join(sorted(self._fleet))})"
        self._reader.add_problem(node, why)
        return False

    def _share(self, node: Node) -> Mapping[str, int]:
        if isinstance(node.value, int):
            found = {"weight": self._number(node)}
        else:
            members = self._reader.members(node, keys(Share))
            found = {key: self._number(member) for key, member in members.items()}
        nothing = found.get("weight") == 0 and not found.get("minReplicas")
        if nothing or found.get("maxReplicas") == 0:
            self._reader.add_problem(node, "it would get no replica: leave it out, or exclude it")
        return found

    def _number(self, node: Node) -> int:
        if isinstance(node.value, int) and not isinstance(node.value, bool) and node.value >= 0:
            return node.value
        self._reader.add_unexpected(node, "a whole number")
        return 1


def _annotations(node: Node, reader: StrictReader) -> dict[str, Any]:
    return {key: plain(below) for key, below in _some_entries(node, reader).items()}


def _labels(node: Node, reader: StrictReader) -> dict[str, str | None]:
    found = _some_entries(node, reader)
    for below in found.values():
        if not isinstance(below.value, str | None):
            reader.add_unexpected(below, "a text: put it into quotes")
    return {key: below.value for key, below in found.items() if isinstance(below.value, str | None)}


def _some_entries(node: Node, reader: StrictReader) -> dict[str, Node]:
    found = reader.entries(node)
    if node.value == {}:
        reader.add_problem(node, "it names nothing, so it checks nothing")
    return found


def _errors(node: Node, reader: StrictReader) -> tuple[tuple[ExpectedMessage, ...], bool]:
    """Return the expected errors, and whether there must be no others."""
    if isinstance(node.value, dict):
        found = reader.members(node, keys(Parts), keys(Parts))
        parts = reader.one_or_more(found["contains"]) if "contains" in found else ()
        return tuple(ExpectedMessage(part, exact=False) for part in parts), False
    return tuple(map(ExpectedMessage, reader.texts(node))), True


def _message(node: Node, reader: StrictReader, *, exact: bool) -> ExpectedMessage:
    if isinstance(node.value, dict):
        found = reader.members(node, keys(Part), keys(Part))
        part = reader.text(found["contains"]) if "contains" in found else ""
        return ExpectedMessage(part, exact=False)
    return ExpectedMessage(reader.text(node), exact=exact)


def _only_true(node: Node, reader: StrictReader) -> bool:
    if reader.flag(node) is False and node.value is False:
        reader.add_problem(node, "only true means something: leave it out, or say what is expected")
    return True
