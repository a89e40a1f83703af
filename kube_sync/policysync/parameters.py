"""Parses the policy sync parameters of GatewayClasses: `policiesToSync`.

The parameters are a JSON text under the key `params` of a ConfigMap that `spec.parametersRef`
names. `experimentalPolicySync`, the earlier name of the list, is read if the other is missing.

Invariant: an invalid entry affects no other entry, and a class no other class. Unreadable
parameters are no empty list: they do not stop the sync of anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from kube_sync.errors import json_errors_as
from kube_sync.objects import GroupVersionResource, ObjectKey
from kube_sync.policysync.ancestors import is_taken
from kube_sync.policysync.copies import FeedbackField
from kube_sync.policysync.feedback_fields import steps
from kube_sync.policysync.naming import is_label, is_subdomain
from kube_sync.topology.raw_json import UNREADABLE, Malformed, items, mapping, reason, text

KEY: Final = "params"
_LISTS: Final = ("policiesToSync", "experimentalPolicySync")
_KIND: Final = ("", "ConfigMap")
_MOST: Final = 20  # status fields of one kind
_NAME: Final = 64  # characters of a status field's name, or of a key that is shown
_KEYS: Final = 10  # keys that are shown


@dataclass(frozen=True, slots=True)
class SyncedKind:
    """A kind of policies to sync, and its feedback fields beside its conditions."""

    gvr: GroupVersionResource
    fields: tuple[FeedbackField, ...] = ()


@dataclass(frozen=True, slots=True)
class Parameters:
    """The kinds that a class lists, and the invalid entries."""

    kinds: tuple[SyncedKind, ...] = ()
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Invalid:
    """The parameters cannot be read; `foreign`: they may be for another controller.

    They are not foreign for a class that is known to be followed: see `HubState`.
    """

    problem: str
    foreign: bool = False


@dataclass(frozen=True, slots=True)
class MergedParameters:
    """The lists of all classes: a kind is synced in one version."""

    kinds: Mapping[GroupVersionResource, Mapping[str, tuple[FeedbackField, ...]]]  # then by class
    refused: Mapping[str, Mapping[GroupVersionResource, str]] = field(default_factory=dict)

    def fields(
        self, gvr: GroupVersionResource, classes: frozenset[str]
    ) -> tuple[FeedbackField, ...]:
        """Return the status fields that these classes want; of one name, the first class's."""
        found: dict[str, FeedbackField] = {}
        for name, fields in sorted(self.kinds.get(gvr, {}).items()):
            for one in fields if name in classes else ():
                found.setdefault(one.name, one)
        return tuple(found[name] for name in sorted(found))


def reference(gateway_class: Mapping[str, Any]) -> ObjectKey | Invalid | None:
    """Return the ConfigMap with the parameters of a class, None if it names none."""
    try:
        ref = mapping(gateway_class, "spec", "parametersRef")
        if not ref:
            return None
        kind = text(ref, "group"), text(ref, "kind")
        namespace, name = text(ref, "namespace"), text(ref, "name")
    except Malformed as error:
        return Invalid(f"spec.parametersRef: {error}")
    if kind != _KIND:
        return Invalid(f"spec.parametersRef: {'/'.join(kind)} is no ConfigMap", foreign=True)
    if not is_label(namespace):
        return Invalid("spec.parametersRef: a ConfigMap needs a namespace")
    if not is_subdomain(name):
        return Invalid("spec.parametersRef: a ConfigMap needs a name")
    return ObjectKey(namespace, name)


def parse_parameters(
    gateway_class: Mapping[str, Any],
    configmap: Callable[[ObjectKey], Mapping[str, Any] | None],
) -> Parameters | Invalid:
    """Return the parameters of a class; without any, an empty list."""
    found = reference(gateway_class)
    if found is None:
        return Parameters()
    if isinstance(found, Invalid):
        return found
    if (body := configmap(found)) is None:
        return Invalid(f"ConfigMap {found} was not found")
    try:
        value = mapping(body, "data").get(KEY)
        if value is None:
            return Invalid(f"ConfigMap {found} has no key {KEY}", foreign=True)
        return _parse(found, _decode(text({KEY: value}, KEY)))
    except UNREADABLE as error:
        return Invalid(f"ConfigMap {found}, key {KEY}: {reason(error)}")


def merge_parameters(classes: Mapping[str, Parameters | Invalid]) -> MergedParameters:
    """Merge the lists of all classes, in order of names; the first determines the version."""
    kinds: dict[GroupVersionResource, dict[str, tuple[FeedbackField, ...]]] = {}
    refused: dict[str, dict[GroupVersionResource, str]] = {}
    versions: dict[tuple[str, str], tuple[str, str]] = {}
    for name, found in sorted(classes.items()):
        for one in found.kinds if isinstance(found, Parameters) else ():
            resource = (one.gvr.group, one.gvr.resource)
            version, first = versions.setdefault(resource, (one.gvr.version, name))
            if version == one.gvr.version:
                kinds.setdefault(one.gvr, {})[name] = one.fields
            else:
                why = f"GatewayClass {first} has it synced in version {version}"
                refused.setdefault(name, {})[one.gvr] = why
    return MergedParameters(kinds, refused)


def _parse(where: ObjectKey, document: Mapping[str, Any]) -> Parameters | Invalid:
    """Parse a document; a document of another controller has neither list."""
    if document and document.keys().isdisjoint(_LISTS):
        problem = f"it has no {_LISTS[0]}; its keys are {_list_keys(document)}"
        return Invalid(f"ConfigMap {where}, key {KEY}: {problem}", foreign=True)
    return _read(document)


def _list_keys(document: Mapping[str, Any]) -> str:
    """Return the keys of a document, as far as they are few and short."""
    keys = sorted(f'"{name}"' if len(name) <= _NAME else f'"{name[:_NAME]}…"' for name in document)
    more = [f"{len(keys) - _KEYS} more"] if len(keys) > _KEYS else []
    return ", ".join([*keys[:_KEYS], *more])


def _decode(value: str) -> Mapping[str, Any]:
    with json_errors_as(Malformed, "no JSON"):
        document = msgspec.json.decode(value)
    if not isinstance(document, dict):
        msg = "expected a JSON object"
        raise Malformed(msg)
    return document


def _read(document: Mapping[str, Any]) -> Parameters:
    name = next((one for one in _LISTS if document.get(one) is not None), _LISTS[0])
    listed = document.get(name, [])
    if not isinstance(listed, list):
        msg = f"{name}: expected a list"
        raise Malformed(msg)
    return _parse_list(name, listed)


def _parse_list(name: str, listed: list[Any]) -> Parameters:
    kinds: dict[tuple[str, str], SyncedKind] = {}
    problems = []
    for index, entry in enumerate(listed):
        place = f"{name}[{index}]"
        try:
            one = _kind(mapping({place: entry}, place))
        except ValueError as error:
            problems.append(f"{place}: {error}".replace(f"{place}: {place}: ", f"{place}: "))
            continue
        first = kinds.setdefault((one.gvr.group, one.gvr.resource), one)
        if first is not one:
            problems.append(f"{place}: {one.gvr} is there already, as {first.gvr}")
    return Parameters(tuple(kinds.values()), tuple(problems))


def _kind(entry: Mapping[str, Any]) -> SyncedKind:
    """Parse an entry. Raises ValueError."""
    group, version, resource = (text(entry, key) for key in ("group", "version", "resource"))
    if not is_subdomain(group) or not is_label(version) or not is_label(resource):
        msg = f'group "{group}", version "{version}", resource "{resource}" name no resource'
        raise Malformed(msg)
    gvr = GroupVersionResource(group, version, resource)
    try:
        return SyncedKind(gvr, tuple(_fields(entry)))
    except ValueError as error:
        msg = f"{gvr}: {error}"
        raise Malformed(msg) from error


def _fields(entry: Mapping[str, Any]) -> Iterator[FeedbackField]:
    seen: set[str] = set()
    for one in items(entry, "statusFields"):
        name, path = text(one, "name"), text(one, "path")
        if not name or len(name) > _NAME or is_taken(name) or name in seen:
            msg = f'statusFields: "{name}" is missing, too long or taken'
            raise Malformed(msg)
        seen.add(name)
        if len(seen) > _MOST:
            msg = f"statusFields: at most {_MOST}"
            raise Malformed(msg)
        try:
            steps(path)
        except ValueError as error:
            msg = f'statusFields: {name}: "{path}": {error}'
            raise Malformed(msg) from error
        yield FeedbackField(name, path)
