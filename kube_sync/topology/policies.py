"""Parses policies: targets, rules, merge strategy, and their order of precedence.

Invariant: an invalid policy stays a node and takes no effect; its `problem` gives the reason. The
order is that of GEP-713: the older one first, then by `namespace/name`; one without a creation
time, as in a file, is last. A copy of a hub's policy has the creation time of that one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from functools import partial
from typing import Any, Literal

from kube_sync.topology.conditions import ENFORCED, PROGRAMMED, Effect
from kube_sync.topology.merging import STRATEGIES, Mode, Rules, Strategy
from kube_sync.topology.nodes import Body, GroupKind, Kind, Locator, Node, Role, locator
from kube_sync.topology.raw_json import Malformed, is_same, items, mapping, text
from kube_sync.topology.rulemaps import Identity, identity_of, rule_maps, scope
from kube_sync.topology.synced_policies import Origin, origin_of

_NOT_YET = datetime.max.replace(tzinfo=UTC)
_STRATEGY = "strategy"
_KUADRANT = "kuadrant.io"
_NO_RULES = frozenset({"targetRef", "targetRefs", _STRATEGY, *Mode})


def is_shared(rule: object) -> bool:
    """Return whether a rule is shared between paths: `identity: PerPath` makes it separate."""
    return not (isinstance(rule, Mapping) and rule.get("identity") == "PerPath")


@dataclass(frozen=True, slots=True)
class PolicyKind:
    """A kind of policies: where they take effect and how they are merged.

    Effective policies are those of the paths that begin at a root of `origins` (empty: any root)
    and end at a node of `level`, the lowest kinds that the policies take effect at (empty: at
    whatever they target). Without `merges`, the first policy of each target is in force there and
    the others are in conflict with it.
    """

    id: GroupKind
    level: frozenset[GroupKind] = frozenset()
    origins: frozenset[GroupKind] = frozenset()
    merges: bool = True
    strategies: Mapping[str, Strategy] = field(default_factory=lambda: STRATEGIES)
    rules: tuple[str, ...] = ("rules",)  # maps of named rules by path; (): each field is a rule
    no_rules: frozenset[str] = frozenset()  # fields of the spec that are no rules
    merge_type: str = ""  # the field by which a policy without merges is merged with the one above
    all_apply: bool = False  # no policy replaces another: each is a rule by itself
    shared: Callable[[object], bool] = is_shared
    identity: Identity = Identity.POLICY  # unless a policy sets another
    # Targets in other namespaces: with a ReferenceGrant, never, or always.
    across: Literal["granted", "never", "free"] = "granted"
    cluster_scoped_targets: bool = False  # policies of a namespace may target e.g. GatewayClasses
    effect: Effect | None = None  # condition of one in force; None: that of its group

    def spec(self, rules: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return rules in the shape of a policy's spec."""
        return rules if self.all_apply else rule_maps(self.rules).spec(rules)

    @property
    def in_force(self) -> Effect:
        """The condition that reports whether a policy of the kind is in force."""
        return self.effect or (ENFORCED if self.id.group == _KUADRANT else PROGRAMMED)

    @property
    def node_kind(self) -> Kind:
        """The kind of its nodes."""
        return Kind(self.id, Role.POLICY)


@dataclass(frozen=True, slots=True)
class TargetRef:
    """A target reference of a policy."""

    kind: GroupKind
    namespace: str  # "" for that of the policy, or none
    name: str
    section: str

    def resolve(self, kinds: Mapping[GroupKind, Kind], namespace: str) -> Locator:
        """Return the locator of the target of a policy in a namespace."""
        known = kinds.get(self.kind)
        inside = "" if known and not known.namespaced else self.namespace or namespace
        return locator(self.kind, inside, self.name, self.section)


@dataclass(frozen=True, slots=True, eq=False)
class Policy:
    """One policy, parsed as far as it is valid."""

    node: Node
    refs: tuple[TargetRef, ...]  # none, without a problem: it selects by means not known here
    mode: Mode
    strategy: str
    rules: Rules
    created: datetime
    deleting: bool  # it is being deleted
    problem: str = ""  # why it is invalid
    synced: bool = False  # a copy of a hub's policy: a local one for the same target replaces it
    remark: str = ""  # what is wrong with it, although it is valid
    scope: str = ""  # rules with the same name and scope are the same rule

    def equals(self, other: Policy) -> bool:
        """Return whether it equals another version of it in all that counts."""
        return is_same(self.rules.values, other.rules.values) and all(
            getattr(self, name) == getattr(other, name) for name in _COUNTS
        )

    @property
    def precedence(self) -> tuple[datetime, str]:
        """The sort key of policies of one target."""
        return self.created, f"{self.node.namespace}/{self.node.name}"


_COUNTS = [one.name for one in fields(Policy) if one.name != "node"]


def policy_of(kind: PolicyKind, node: Node, kinds: Mapping[GroupKind, Kind]) -> Policy:
    """Parse a policy; `kinds` are those of what it may target."""
    created, deleting, origin = _NOT_YET, False, Origin()
    make = partial(Policy, node)
    try:
        created = _time(text(node.body, "metadata", "creationTimestamp"))
        deleting = bool(text(node.body, "metadata", "deletionTimestamp"))
        origin = origin_of(node.body)
        created = origin.created or created
        refs = tuple(_refs(mapping(node.body, "spec"), needed=not kind.no_rules))
    except Malformed as error:
        return make((), Mode.DEFAULTS, "", Rules(), created, deleting, str(error))
    try:
        mode, path, values = _parse_block(mapping(node.body, "spec"), kind)
        rules, strategy = _rules(kind, values, node), _strategy(kind, node.body, path)
        own, identity_problem = identity_of(node.body)
    except Malformed as error:
        return make(refs, Mode.DEFAULTS, "", Rules(), created, deleting, str(error), origin.synced)
    remark = "; ".join(part for part in (origin.remark, identity_problem) if part)
    targets = [ref.resolve(kinds, node.namespace) for ref in refs]
    within = scope(own or kind.identity, node, targets)
    return make(refs, mode, strategy, rules, created, deleting, "", origin.synced, remark, within)


def _refs(spec: Body, *, needed: bool) -> Iterator[TargetRef]:
    """Yield the target references; not `needed`: it may select by other means alone."""
    if not needed and spec.get("targetRef") is None and spec.get("targetRefs") is None:
        return
    if spec.get("targetRef") is not None and spec.get("targetRefs") is not None:
        msg = "spec.targetRef: not together with spec.targetRefs"
        raise Malformed(msg)
    if spec.get("targetRefs") is not None:
        found = [(f"spec.targetRefs[{n}]", ref) for n, ref in enumerate(_target_refs(spec))]
    else:
        found = [("spec.targetRef", mapping({"spec": spec}, "spec", "targetRef"))]
    if not found:
        msg = "spec.targetRefs: a policy needs a target"
        raise Malformed(msg)
    for path, ref in found:
        yield _ref(path, ref)


def _target_refs(spec: Body) -> Iterator[Body]:
    yield from items({"spec": spec}, "spec", "targetRefs")


def _ref(path: str, ref: Body) -> TargetRef:
    kind, name = text({path: ref}, path, "kind"), text({path: ref}, path, "name")
    for part, value in (("kind", kind), ("name", name)):
        if not value:
            msg = f"{path}.{part}: a target needs one"
            raise Malformed(msg)
    group = GroupKind(text({path: ref}, path, "group"), kind)
    namespace = text({path: ref}, path, "namespace")
    return TargetRef(group, namespace, name, text({path: ref}, path, "sectionName"))


def _parse_block(spec: Body, kind: PolicyKind) -> tuple[Mode, str, dict[str, Any]]:
    """Return the mode of the one block that a policy has, its path, and all rules by name."""
    maps = rule_maps(kind.rules)
    bare = {name: value for name, value in spec.items() if _is_rule(name, value, kind)}
    block = _block_of(spec, bare.keys() & maps.fields if maps.fields else bare.keys())
    if block is None:
        # A bare policy is atomic defaults (GEP-713): it has no strategy of its own.
        return Mode.DEFAULTS, "spec", maps.read(bare, "spec")
    path = f"spec.{block}"
    inside = mapping({path: spec[block]}, path)
    found = maps.read({name: v for name, v in inside.items() if name != _STRATEGY}, path)
    beside = maps.read(bare, "spec")
    for name in sorted(found.keys() & beside.keys()):
        msg = f"spec{name}: not together with {path}{name}"
        raise Malformed(msg)
    return block, path, found | beside


def _is_rule(name: str, value: object, kind: PolicyKind) -> bool:
    others = name in _NO_RULES or name in kind.no_rules or name == kind.merge_type
    return value is not None and not others


def _block_of(spec: Body, rivals: Iterable[str]) -> Mode | None:
    """Return the block that a policy has its rules in, None if they are bare."""
    blocks = [mode for mode in Mode if spec.get(mode) is not None]
    present = [*blocks, *sorted(rivals)]
    if blocks and present[1:]:
        msg = f"spec.{present[0]}: not together with spec.{present[1]}"
        raise Malformed(msg)
    return blocks[0] if blocks else None


def _rules(kind: PolicyKind, values: Mapping[str, Any], node: Node) -> Rules:
    if kind.all_apply:
        values = {node.full_name: values}
    return Rules(dict(sorted(values.items())), dict.fromkeys(sorted(values), node.locator))


def _strategy(kind: PolicyKind, body: Body, path: str) -> str:
    if kind.all_apply:
        return "merge"
    if kind.merge_type:
        return text(body, "spec", kind.merge_type)
    return "" if path == "spec" else text(body, *path.split("."), _STRATEGY)


def _time(value: str) -> datetime:
    if not value:
        return _NOT_YET
    try:
        time = datetime.fromisoformat(value)
    except ValueError as error:
        msg = f'metadata.creationTimestamp: "{value}" is no time'
        raise Malformed(msg) from error
    return time if time.tzinfo else time.replace(tzinfo=UTC)
