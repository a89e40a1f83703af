"""Effective policies: the merged policies of one kind, on each path.

Invariant: policies are merged from the top of a path to its end, and at each node in the order of
precedence; a namespace comes before the first node in it, an object before a section of it that is
on the path without it. A copy of a hub's policy is ignored where a local policy has the same
target. Paths with the same policies share one computation. Identifiers are digests of names alone,
so they are the same in every process and for every order of input.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple

from kube_sync.topology.graph import Path, PathIndex
from kube_sync.topology.merging import Mode, Rules, atomic, patch, without_nulls
from kube_sync.topology.nodes import GroupKind, Locator, Node
from kube_sync.topology.policies import Policy, PolicyKind

_DIGEST_BYTES = 10
_MERGE_TYPES = frozenset({"JSONMerge", "StrategicMerge"})  # Envoy Gateway, MergeType
_NAMESPACE_PREFIX = "namespace:"  # the prefix of the locators of namespaces
_Stack = tuple[Policy, ...]  # least specific first


@dataclass(frozen=True, slots=True, eq=False)
class Combined:
    """Policies merged once, for every path with exactly these."""

    policies: tuple[Policy, ...]  # least specific first
    rules: Rules
    rule_ids: Mapping[str, str]  # of the rules that are shared between paths
    id: str | None  # None: some rule is separate for each path, and so the whole is
    active: frozenset[Locator]  # the policies that any of the rules came from
    removed: Mapping[str, Locator]  # rules that a null removed, and the first policy with it

    def prevailing(self, policy: Policy, rule: str) -> Locator:
        """Return the policy that prevails in a rule of `policy`: itself, or another.

        If no rule of that name is in force the whole policy lost: to what is below it, or else to
        the nearest one above.
        """
        own = policy.node.locator
        if self.rules.has_from(rule, own):
            return own
        by = self.rules.sources.get(rule) or self.removed.get(rule)
        return by or self._nearest_in_force(policy)

    def _nearest_in_force(self, policy: Policy) -> Locator:
        place = self.policies.index(policy)
        below, above = self.policies[:place:-1], self.policies[:place][::-1]
        active = (one for one in (*below, *above) if one.node.locator in self.active)
        overriding = (one for one in above if one.mode is Mode.OVERRIDES)
        return next(chain(active, overriding, below, above, [policy])).node.locator


class EffectivePolicy(NamedTuple):
    """The merged policy of one kind on one path; `combined` is None if no policy applies."""

    path_id: str  # of the kind and the path
    kind: GroupKind
    path: Path
    combined: Combined | None

    @property
    def id(self) -> str | None:
        """The identifier: the path's own, unless every rule is shared between paths."""
        if self.combined is None:
            return None
        return self.combined.id or digest("effective", self.path_id)

    @property
    def rule_ids(self) -> dict[str, str]:
        """The identifier of each rule, by name; equal ones are the same rule, on whatever path."""
        if self.combined is None:
            return {}
        shared = self.combined.rule_ids
        names = self.combined.rules.values
        return {name: shared.get(name) or digest("rule", self.path_id, name) for name in names}

    @property
    def spec(self) -> Mapping[str, Any]:
        """The rules by name, empty if no policy applies."""
        return self.combined.rules.values if self.combined else {}

    @property
    def sources(self) -> Mapping[str, Locator]:
        """The policy that each rule came from."""
        return self.combined.rules.sources if self.combined else {}


class EffectivePolicies:
    """The effective policies of one kind, by the node that their paths end at."""

    def __init__(
        self, kind: PolicyKind, nodes: Mapping[Locator, Node], path_index: PathIndex
    ) -> None:
        self.kind = kind
        self._name = str(kind.id)
        self._nodes = nodes
        self._path_index = path_index
        self._attached: dict[Locator, _Stack] = {}
        self._conflicted: dict[Locator, _Stack] = {}  # by target: conflicting ones, without merges
        self._replaced: dict[Locator, _Stack] = {}  # by target: synced ones that local ones replace
        self._known: dict[Locator, tuple[EffectivePolicy, ...]] = {}
        self._combined: dict[_Stack, Combined] = {}
        self._namespaces: dict[str, Locator] = {}  # namespaces that policies are attached to

    def attached(self, target: Locator) -> tuple[Policy, ...]:
        """Return the policies in force at a target, in the order of precedence."""
        return self._attached.get(target, ())

    def attach(self, target: Locator, policies: Iterable[Policy]) -> None:
        """Set the policies of a target; the caller invalidates affected nodes by `invalidate`."""
        found = tuple(sorted(policies, key=lambda policy: policy.precedence))
        before = self._attached.pop(target, ())
        self._conflicted.pop(target, None)
        self._replaced.pop(target, None)
        native = tuple(policy for policy in found if not policy.synced)
        if native and native != found:
            self._replaced[target] = tuple(policy for policy in found if policy.synced)
            found = native
        if not self.kind.merges and found[1:]:
            self._conflicted[target] = found[1:]
        self._namespaces.pop(target.removeprefix(_NAMESPACE_PREFIX), None)
        if found:
            self._attached[target] = found if self.kind.merges else found[:1]
            if target.startswith(_NAMESPACE_PREFIX):
                self._namespaces[target.removeprefix(_NAMESPACE_PREFIX)] = target
        gone = set(before) - set(self.attached(target))
        if gone:
            self._combined = {s: c for s, c in self._combined.items() if gone.isdisjoint(s)}

    def conflicted(self) -> Iterator[tuple[Locator, Policy]]:
        """Yield each policy that is not in force at a target, because an earlier one is."""
        for target, policies in sorted(self._conflicted.items()):
            for policy in policies:
                yield target, policy

    def replaced(self) -> Iterator[tuple[Locator, Policy]]:
        """Yield each synced policy that is not in force at a target, because local ones are."""
        for target, policies in sorted(self._replaced.items()):
            for policy in policies:
                yield target, policy

    def targets(self) -> list[Locator]:
        """Return the targets that policies are attached to."""
        return sorted(self._attached)

    def at(self, end: Locator) -> tuple[EffectivePolicy, ...]:
        """Return the effective policies at a node, one for each path to it."""
        found = self._known.get(end)
        if found is None:
            found = self._known[end] = tuple(self._of(path) for path in self._paths(end))
        return found

    def invalidate(self, nodes: Iterable[Locator]) -> None:
        """Invalidate cached results of nodes, after a change above them or at them."""
        for node in nodes:
            self._known.pop(node, None)

    def _paths(self, end: Locator) -> Iterator[Path]:
        origins = self.kind.origins
        for path in self._path_index.to(end):
            if not origins or self._nodes[path[0]].kind in origins:
                yield path

    def _of(self, path: Path) -> EffectivePolicy:
        stack = tuple(self._stack(path)) if self._attached else ()
        combined = self._combine(stack) if stack else None
        return EffectivePolicy(digest(self._name, *path), self.kind.id, path, combined)

    def _stack(self, path: Path) -> Iterator[Policy]:
        """Yield the policies on a path; those of a node's namespace and owner before its own."""
        entered: set[str] = set()
        for locator in path:
            node = self._nodes[locator]
            if node.namespace in self._namespaces and node.namespace not in entered:
                entered.add(node.namespace)
                yield from self._attached.get(self._namespaces[node.namespace], ())
            if node.owner in self._attached and node.owner not in path:
                yield from self._attached[node.owner]
            if locator in self._attached:
                yield from self._attached[locator]

    def _combine(self, stack: _Stack) -> Combined:
        found = self._combined.get(stack)
        if found is None:
            found = self._combined[stack] = combine(self.kind, stack)
        return found


def combine(kind: PolicyKind, policies: tuple[Policy, ...]) -> Combined:
    """Merge policies, least specific first."""
    rules = _merged(kind, policies) if kind.merges else _nearest(kind, policies)
    names = [name for name, value in rules.values.items() if kind.shared(value)]
    # With their sources: the same rule may have another value in another policy.
    owned = {name: _rule_id(kind, name, _sources_of(rules, name)) for name in names}
    whole = len(owned) == len(rules.values)
    own = digest("effective", str(kind.id), *owned.values()) if whole else None
    scopes = {policy.node.locator: policy.scope for policy in policies}
    shared = owned
    if any(scope != locator for locator, scope in scopes.items()):
        shared = {name: _rule_id(kind, name, _within(scopes, rules, name)) for name in names}
    parts = {by for known in rules.parts.values() for by in known.values()}
    active = frozenset({*rules.sources.values(), *parts})
    return Combined(policies, rules, shared, own, active, _removed(policies, rules))


def _removed(policies: _Stack, rules: Rules) -> dict[str, Locator]:
    found: dict[str, Locator] = {}
    for policy in policies:
        for name, value in policy.rules.values.items():
            if value is None and name not in rules.values:
                found.setdefault(name, policy.node.locator)
    return found


def _nearest(kind: PolicyKind, policies: _Stack) -> Rules:
    """Return the rules of the most specific policy, merged with those above if it says so."""
    *above, last = policies
    if not above or not kind.merge_type or last.strategy not in _MERGE_TYPES:
        return last.rules
    return without_nulls(patch(above[-1].rules, last.rules, Mode.DEFAULTS))


def _merged(kind: PolicyKind, policies: _Stack) -> Rules:
    *higher, last = policies
    # Overrides that patch remove values below; if nothing is below, they are still a patch.
    alone = last.mode is Mode.OVERRIDES and kind.strategies.get(last.strategy) is patch
    rules = patch(last.rules, Rules(), last.mode) if alone else last.rules
    for policy in reversed(higher):
        # An unknown strategy is atomic, as is none.
        strategy = kind.strategies.get(policy.strategy, atomic)
        rules = strategy(policy.rules, rules, policy.mode)
    return without_nulls(rules)


def digest(*parts: str) -> str:
    """Return an identifier of texts that contain no line feed."""
    return hashlib.blake2b("\n".join(parts).encode(), digest_size=_DIGEST_BYTES).hexdigest()


def _rule_id(kind: PolicyKind, name: str, within: Iterable[str]) -> str:
    return digest("rule", str(kind.id), name, *within)


def _within(scopes: Mapping[Locator, str], rules: Rules, name: str) -> Iterable[str]:
    """Return what distinguishes rules of one name: scopes, without duplicates."""
    return dict.fromkeys(scopes[source] for source in _sources_of(rules, name))


def _sources_of(rules: Rules, name: str) -> list[Locator]:
    return [rules.sources[name], *sorted(set(rules.parts.get(name, {}).values()))]
