"""Puts candidate policies in place among the existing ones. Pure.

Invariant: each candidate replaces exactly one policy or is added to all of them; an ambiguous
one is an error. Every module has a name for people: the file that it came from, or its id.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Final

import msgspec

from kube_sync.errors import NO_JSON, Broken
from kube_sync.inspect.plan.cluster_changes import named
from kube_sync.inspect.plan.placement_policies import as_active, is_object
from kube_sync.kube.collection import Item
from kube_sync.kube.configmaps import read_configmap
from kube_sync.kube.placementpolicies import read_policy
from kube_sync.kube.policynames import called, policy_key
from kube_sync.kube.staging import CANDIDATE, LABEL, STANDS_FOR, SUFFIX
from kube_sync.objects import ObjectKey
from kube_sync.opa.scratch import Modules
from kube_sync.policies.bundle import digest
from kube_sync.regoversion import V1, by_default
from kube_sync.regoversion import version_of as rego_version_of
from kube_sync.replicator.datamaps import why_no_json

CANDIDATES: Final = (CANDIDATE,)  # the stages that --staged plans with
_NEW: Final = ObjectKey("", "candidates")  # the policy of new modules


@dataclass(frozen=True, slots=True)
class Staged:
    """A staged policy that is part of the plan: its key, and its version."""

    key: ObjectKey
    stands_for: ObjectKey
    modules: str  # the digest of its modules, as the replicator names them


@dataclass(frozen=True, slots=True)
class Candidates:
    """The candidates: policies with their files, files of Rego, and ConfigMaps of JSON data."""

    maps: Sequence[tuple[str, ObjectKey, Modules]] = ()  # file, policy it stands for, and modules
    files: Mapping[str, tuple[str, str]] = field(default_factory=dict)  # relative path, and source
    instead: bool = False  # the candidates replace all other policies
    removed: Sequence[str] = ()  # ConfigMaps to remove, as they were named
    staged: tuple[Staged, ...] = ()  # which of the maps are staged
    rego_version: int = V1  # of files that state none and replace no policy
    data: Sequence[tuple[str, Item]] = ()  # file, and ConfigMap of JSON data
    notes: tuple[str, ...] = ()  # on what is no candidate

    def __bool__(self) -> bool:
        """Whether the policies change; data may."""
        return bool(self.maps or self.files or self.instead or self.removed)


@dataclass(frozen=True, slots=True)
class EditedPolicies:
    """All policies after the edit, the candidates among them, and the names of modules."""

    policies: Mapping[ObjectKey, Modules]
    changed: frozenset[ObjectKey]
    names: Mapping[str, str]  # the files of modules, by id
    staged: tuple[Staged, ...] = ()  # which of them are staged objects


def unstaged(item: Item, stages: Collection[str] = CANDIDATES) -> Item | None:
    """Return a policy of one of these stages as the policy that it stands for, None for others.

    Raises Broken for other kinds than ConfigMap and PlacementPolicy.
    """
    try:
        whole = msgspec.json.decode(item.body)
        metadata = whole["metadata"]
        labels = dict(metadata.get("labels") or {})
        named = (metadata.get("annotations") or {}).get(STANDS_FOR)
    except (*NO_JSON, LookupError, TypeError, ValueError, AttributeError) as error:
        raise Broken([f"{name_of(item)} cannot be read: {error!r}"]) from error
    stage = labels.pop(LABEL, None)
    if is_object(item):
        stage = read_policy(item).stage  # a field or a label may set it; the field wins
        as_active(whole, stages)
    if stage not in stages:
        return None
    name = named or item.key.name.removesuffix(SUFFIX)
    metadata |= {"labels": labels, "name": name}
    key = ObjectKey(item.key.namespace, name)
    return Item(key, item.uid, item.version, msgspec.json.encode(whole))


def name_of(item: Item) -> str:
    """Return kind and name of a possible policy."""
    return called(key_of(item))


def key_of(item: Item) -> ObjectKey:
    """Return the key of a policy among those of both kinds."""
    return policy_key(item.key) if is_object(item) else item.key


def version_of(key: ObjectKey, place: ObjectKey, modules: Modules) -> Staged:
    """Return the version of a staged policy whose modules are named after `place`."""
    own = {f"{key}{policy_id.removeprefix(str(place))}": s for policy_id, s in modules.items()}
    return Staged(key, place, digest(own))


def put(candidates: Candidates, policies: Mapping[ObjectKey, Modules]) -> EditedPolicies:
    """Return the policies with the candidates in place. Raises Broken."""
    edited = {} if candidates.instead else {key: dict(m) for key, m in policies.items()}
    names, changed, problems = dict[str, str](), set[ObjectKey](), list[str]()
    for name in candidates.removed:
        try:
            del edited[named(name, edited, "--remove-policy", "policy")]
        except Broken as error:
            problems.append(str(error))
    for file, key, modules in candidates.maps:
        if key in changed:
            problems.append(f"{file}: another candidate stands for {called(key)} too")
        edited[key] = dict(modules)
        names |= {policy_id: f"{file} ({policy_id})" for policy_id in modules}
        changed.add(key)
    file_by_id = dict[str, str]()
    for file, (path, source) in candidates.files.items():
        try:
            key, policy_id = _place(file, path, edited)
        except Broken as error:
            problems.append(str(error))
            continue
        if policy_id in file_by_id:
            problems.append(f"{file}: {file_by_id[policy_id]} stands for {policy_id} too")
        file_by_id[policy_id] = names[policy_id] = file
        modules = edited.setdefault(key, {})
        replaced = modules.get(policy_id)
        version = candidates.rego_version if replaced is None else rego_version_of(replaced)
        modules[policy_id] = by_default(source, version)
        changed.add(key)
    if problems:
        raise Broken(problems)
    return EditedPolicies(edited, frozenset(changed), names, candidates.staged)


def put_data(candidates: Candidates, configmaps: Iterable[Item]) -> list[Item]:
    """Return ConfigMaps with the candidates of JSON data in place. Raises Broken."""
    found, problems = dict[ObjectKey, Item](), list[str]()
    for file, item in candidates.data:
        if item.key in found:
            problems.append(f"{file}: another candidate stands for ConfigMap {item.key} too")
        found[item.key] = item
        values = read_configmap(item).data
        problems += [
            f"{file}: {name}: {why}" for name in values if (why := why_no_json(values[name]))
        ]
    if problems:
        raise Broken(problems)
    return [*(one for one in configmaps if is_object(one) or one.key not in found), *found.values()]


def _place(
    file: str, path: str, policies: Mapping[ObjectKey, Mapping[str, str]]
) -> tuple[ObjectKey, str]:
    """Return the policy and the id that a file of Rego stands for, by the end of its path."""
    known = {policy_id: key for key, modules in policies.items() for policy_id in modules}
    parts = PurePath(path).parts
    for start in range(max(0, len(parts) - 3), len(parts)):
        end = "/".join(parts[start:])
        fits = [i for i in known if i == end or i.endswith(f"/{end}")]
        if len(fits) == 1:
            return known[fits[0]], fits[0]
        if fits:
            raise Broken([f"{file}: may stand for {_either(fits)}: put it into such a folder"])
    return _NEW, f"{_NEW}/{path}"


def _either(fits: Iterable[str]) -> str:
    return " or ".join(sorted(fits))
