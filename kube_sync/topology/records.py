"""A topology as records by key, the shape of OPA's data, with the changes of each update.

Invariant: the sum of all changes equals `all`, for any history; a record that did not change is not
emitted again. What many paths have in common, the merged policies, is one record (`merged`), so
that another value in one policy is another value in one place. The shape is records.schema.json;
fields may be added, none is removed or changes its meaning.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec

from kube_sync.topology.effective import Combined, EffectivePolicy, digest
from kube_sync.topology.nodes import Locator, Role
from kube_sync.topology.raw_json import is_same
from kube_sync.topology.route_matches import RouteMatches
from kube_sync.topology.topology import Topology

NODES, EFFECTIVE, MERGED, TARGETABLES = "nodes", "effective", "merged", "targetables"
_ORDER = (MERGED, EFFECTIVE, TARGETABLES, NODES)
_SLICE = 20  # nodes, each of which may have dozens of paths


class NodeRecord(msgspec.Struct, frozen=True):
    """An object, or a section of one, with its neighbours."""

    kind: str
    group: str
    namespace: str
    name: str
    role: Role
    parents: Sequence[str]
    children: Sequence[str]  # of a policy: its targets
    policies: Sequence[str]  # that target it, in force or not


class EffectiveRecord(msgspec.Struct, frozen=True):
    """What the policies of one kind come to on one path."""

    id: str  # equal ones are the same policy, on whatever path
    kind: str  # `Kind.group`
    path: Sequence[str]
    hostnames: Sequence[str]  # of both the listener and the route, `*` if there are none
    matches: Sequence[Any]  # of the rule, as in the route
    rules: Mapping[str, str]  # the identifier of each
    merged: str  # name of the record with the rules


class MergedRecord(msgspec.Struct, frozen=True):
    """Policies put together, for every path that has just these."""

    kind: str  # `Kind.group`
    policies: Sequence[str]  # least specific first
    spec: Mapping[str, Any]
    sources: Mapping[str, str]  # the policy that each rule came from
    parts: Mapping[str, Mapping[str, str]]  # of patched rules: fields from another policy


class AppliedRecord(msgspec.Struct, frozen=True):
    """What applies on one path to a targetable: keys of the two others, or null for none."""

    path: Sequence[str]
    effective: str | None
    merged: str | None


class Data(msgspec.Struct, frozen=True):
    """All records, by section and name."""

    nodes: Mapping[str, NodeRecord]
    effective: Mapping[str, EffectiveRecord]
    merged: Mapping[str, MergedRecord]
    targetables: Mapping[str, Mapping[str, Sequence[AppliedRecord]]]  # by `Kind.group`


Record = NodeRecord | EffectiveRecord | MergedRecord | Mapping[str, Sequence[AppliedRecord]]


class Key(NamedTuple):
    """The key of a record."""

    section: str
    name: str


@dataclass(slots=True)
class Changes:
    """The records that were added or changed, and those that were removed."""

    records: dict[Key, Record] = field(default_factory=dict)
    removed: set[Key] = field(default_factory=set)

    def in_order(self) -> Iterator[tuple[Key, Record | None]]:
        """Yield each change, None for a removed record.

        A record is added before those that refer to it, and removed after them.
        """
        rank = _ORDER.index
        yield from sorted(self.records.items(), key=lambda found: rank(found[0].section))
        for where in sorted(self.removed, key=lambda key: rank(key.section), reverse=True):
            yield where, None


class Records:
    """The records of one topology, or of successive ones."""

    def __init__(self) -> None:
        self._of: dict[Locator, dict[Key, Record]] = {}  # without the merged ones
        self._merged: dict[str, MergedRecord] = {}
        self._uses: Counter[str] = Counter()  # references to merged ones, by effective ones
        self._matches = RouteMatches()

    def all(self) -> Iterator[tuple[Key, Record]]:
        """Yield every record, section by section."""
        for section in (NODES, EFFECTIVE, TARGETABLES):
            for records in self._of.values():
                yield from (found for found in records.items() if found[0].section == section)
        for name, record in self._merged.items():
            yield Key(MERGED, name), record

    def replace(self, topology: Topology) -> Iterator[Changes]:
        """Load a topology that was rebuilt, or the first one, in slices.

        The iterator must be exhausted before the topology changes again.
        """
        self._matches = RouteMatches()
        yield from self._update(topology, {n.locator for n in topology.nodes()} | self._of.keys())

    def update(self, topology: Topology, touched: Iterable[Locator]) -> Iterator[Changes]:
        """Apply an update of a topology in slices, as `replace` does.

        `touched` are the nodes that the update returned, and the objects that it was given.
        """
        with_sections = {part for locator in touched for part in _with_sections(topology, locator)}
        changed = self._matches.update(topology, with_sections)
        yield from self._update(topology, with_sections | topology.targetables.below(changed))

    def _update(self, topology: Topology, touched: set[Locator]) -> Iterator[Changes]:
        builder = _RecordBuilder(topology, self._matches)
        neighbours = {
            n for locator in touched for n in self._neighbours(topology, locator)
        } - touched
        for slice_ in _sliced(sorted(touched)):
            changes = Changes()
            for locator in slice_:
                self._set_records(locator, builder.records(locator), changes)
            self._add_merged(builder, changes)
            yield changes
        yield self._finish(builder, neighbours)

    def _finish(self, builder: _RecordBuilder, neighbours: Iterable[Locator]) -> Changes:
        """Update the neighbours of changed nodes, and remove unreferenced merged records."""
        changes = Changes()
        for locator in sorted(neighbours):
            # Only the neighbours differ, not the policies that apply.
            key = Key(NODES, locator)
            others = {k: r for k, r in self._of.get(locator, {}).items() if k != key}
            self._set_records(locator, {key: builder.node(locator)} | others, changes)
        for name in [name for name, uses in self._uses.items() if not uses]:
            del self._uses[name], self._merged[name]
            changes.removed.add(Key(MERGED, name))
        return changes

    def _neighbours(self, topology: Topology, locator: Locator) -> Iterator[Locator]:
        """Yield the nodes that had an edge to this one or have one now."""
        old = self._of.get(locator, {}).get(Key(NODES, locator))
        if isinstance(old, NodeRecord):
            found = (Locator(name) for name in (*old.parents, *old.policies))
            yield from (parent for parent in found if parent in topology)
        if locator in topology:
            yield from topology.all.parents(locator)

    def _set_records(self, locator: Locator, new: dict[Key, Record], changes: Changes) -> None:
        old = self._of.pop(locator, {})
        if new:
            self._of[locator] = new
        for key, record in new.items():
            self._count_uses(record, 1)
            if not _unchanged(old.get(key), record):
                changes.records[key] = record
        for key, record in old.items():
            self._count_uses(record, -1)
            if key not in new:
                changes.removed.add(key)

    def _count_uses(self, record: Record, number: int) -> None:
        if isinstance(record, EffectiveRecord):
            self._uses[record.merged] += number

    def _add_merged(self, builder: _RecordBuilder, changes: Changes) -> None:
        while builder.merged:
            name, record = builder.merged.popitem()
            if not _unchanged(self._merged.get(name), record):
                self._merged[name] = changes.records[Key(MERGED, name)] = record


class _RecordBuilder:
    """Computes the records of nodes for one state of a topology."""

    def __init__(self, topology: Topology, matches: RouteMatches) -> None:
        self._topology = topology
        self._matches = matches
        self._names: dict[Combined, str] = {}
        self.merged: dict[str, MergedRecord] = {}  # not emitted yet

    def records(self, locator: Locator) -> dict[Key, Record]:
        """Return the records of a node, none if there is no such node."""
        if locator not in self._topology:
            return {}
        found: dict[Key, Record] = {Key(NODES, locator): self.node(locator)}
        applied: dict[str, Sequence[AppliedRecord]] = {}
        for kind in sorted(self._topology.policy_kinds):
            effective = self._topology.effective_at(kind, locator)
            if effective is not None:
                applied[str(kind)] = [self._applied(one, found) for one in effective]
        if applied:
            found[Key(TARGETABLES, locator)] = applied
        return found

    def node(self, locator: Locator) -> NodeRecord:
        """Return the record of an existing node."""
        node, graph = self._topology[locator], self._topology.all
        parents = graph.parents(locator)
        policies = [p for p in parents if self._topology[p].role is Role.POLICY]
        return NodeRecord(
            node.kind.kind,
            node.kind.group,
            node.namespace,
            node.name,
            node.role,
            [parent for parent in parents if parent not in policies] if policies else parents,
            graph.children(locator),
            policies,
        )

    def _applied(self, one: EffectivePolicy, found: dict[Key, Record]) -> AppliedRecord:
        if one.combined is None:
            return AppliedRecord(one.path, None, None)
        merged = self._merged(one, one.combined)
        hostnames, matches = self._matches.of_path(self._topology, one.path)
        rules = one.combined.rule_ids if one.combined.id else one.rule_ids
        found[Key(EFFECTIVE, one.path_id)] = EffectiveRecord(
            one.id or "", str(one.kind), one.path, hostnames, matches, rules, merged
        )
        return AppliedRecord(one.path, one.path_id, merged)

    def _merged(self, one: EffectivePolicy, combined: Combined) -> str:
        """Return the name of merged policies, a digest of their locators."""
        name = self._names.get(combined)
        if name is None:
            policies = [policy.node.locator for policy in combined.policies]
            name = self._names[combined] = digest("merged", str(one.kind), *policies)
            kind, rules = self._topology.policy_kinds[one.kind], combined.rules
            self.merged[name] = MergedRecord(
                str(one.kind), policies, kind.spec(rules.values), rules.sources, rules.parts
            )
        return name


def encoded(record: Record) -> bytes:
    """Return a record as JSON: equal ones give equal bytes."""
    return msgspec.json.encode(record, order="deterministic")


def schema() -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of all records together."""
    found = msgspec.json.schema(Data)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **found}


def _unchanged(old: Record | None, new: Record) -> bool:
    """Return whether a record is unchanged; values from objects are compared as JSON."""
    if old != new:
        return False
    if isinstance(old, MergedRecord) and isinstance(new, MergedRecord):
        return is_same(old.spec, new.spec)
    if isinstance(old, EffectiveRecord) and isinstance(new, EffectiveRecord):
        return is_same(old.matches, new.matches)
    return True


def _sliced(names: Sequence[Locator]) -> Iterator[Sequence[Locator]]:
    for start in range(0, len(names), _SLICE):
        yield names[start : start + _SLICE]


def _with_sections(topology: Topology, locator: Locator) -> Iterator[Locator]:
    yield locator
    if locator in topology:
        children = topology.all.children(locator)
        yield from (child for child in children if topology[child].owner == locator)
