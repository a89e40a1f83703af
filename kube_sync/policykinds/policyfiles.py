"""Reads the objects in the files of `--policies`; each one is used or named in an error.

Invariant: no document is ignored silently, since a result without it would look like one with it.
`--ignore-other-kinds` ignores other kinds, but never what looks like a policy of the command's own
kind: the spelling of the design document, another apiVersion, a misspelt kind.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any, Final

import msgspec

from kube_sync.errors import Misconfigured, NotFound, Terminal
from kube_sync.kube.client import KubeClient
from kube_sync.kube.collection import KubeCollection
from kube_sync.kube.manifests import Document, read_files
from kube_sync.kube.reflector import items_of
from kube_sync.objects import GroupVersionResource, ObjectKey
from kube_sync.policykinds.kinds import GROUP, METADATA, SCHEDULING, PolicyKind

_OPTION: Final = "--policies"
_SHOWN: Final = 20  # documents in one error
_NEARLY: Final = 0.85  # similarity of a misspelt kind, of 1.0
_OF_THE_PROPOSAL: Final = frozenset({"extensions/valpha1", "extensions/v1alpha1"})
_OF_THE_GROUP: Final = frozenset({SCHEDULING.kind, METADATA.kind, "PlacementPolicy"})
_IGNORE: Final = "--ignore-other-kinds passes over other kinds"
_BUILT: Final = "pass what `kubectl kustomize` makes of its folder"


@dataclass(frozen=True, slots=True)
class Expected:
    """What one command reads: its kind of policy, and every kind by name (with the policy's).

    `is_spec` recognizes the spec of such a policy, for a document without a kind.
    """

    policy: PolicyKind
    kinds: Mapping[str, GroupVersionResource]
    is_spec: Callable[[Any], bool]

    def version(self, kind: str) -> str:
        """Return the apiVersion that objects of a kind must have."""
        return self.kinds[kind].api_version


def read_policies(
    paths: Iterable[str], expected: Expected, *, ignore_others: bool = False
) -> list[Document]:
    """Return the objects of all expected kinds, at least one policy among them.

    Raises Misconfigured, which names each document that cannot be read, and why.
    """
    named = list(paths)
    documents = read_files(named, objects_only=not ignore_others)
    wanted = [one for one in documents if _is_wanted(one, expected)]
    others = [one for one in documents if not _is_wanted(one, expected)]
    if ignore_others:
        others = [one for one in others if _must_be_read(one, expected)]
    complaints = [f"{one.where}: {_complaint(one, expected)}" for one in others]
    complaints += _twice(wanted)
    if complaints:
        raise Misconfigured(_listed(complaints))
    if not any(one.kind == expected.policy.kind for one in wanted):
        msg = f"{_OPTION}: {', '.join(named)}: there is no {expected.policy.kind} in it"
        raise Misconfigured(msg)
    return wanted


def looks_like(document: Document, expected: Expected) -> bool:
    """Return whether an object is meant as a policy of the command's kind, however misspelt."""
    return _looks_like(document.object, expected)


def mistakes(document: Document, policy: PolicyKind) -> list[str]:
    """Return what has to be corrected before such an object is a policy of this kind."""
    whole, version = document.object, policy.gvr.api_version
    found = []
    if "kind" not in whole and (other := _misspelt(whole, "kind")):
        found.append(f'"{other}" has to be written "kind"')
    if (kind := _kind(whole)) != policy.kind:
        found.append(f"kind has to be {policy.kind}, {_instead(kind)}")
    if (given := _text(whole, "apiVersion")) != version or "apiVersion" not in whole:
        found.append(f"apiVersion has to be {version}, {_instead(given)}")
    if not document.metadata.get("name"):
        found.append("metadata.name is missing")
    return found


def _is_wanted(document: Document, expected: Expected) -> bool:
    return document.kind in expected.kinds and document.object.get(
        "apiVersion"
    ) == expected.version(document.kind)


def _must_be_read(document: Document, expected: Expected) -> bool:
    """Return whether a document must not be ignored: a policy, or a role in another version."""
    gvr = expected.kinds.get(_kind(document.object))
    group, slash, _ = _text(document.object, "apiVersion").partition("/")
    return looks_like(document, expected) or (
        gvr is not None and (group if slash else "") in ("", gvr.group)
    )


def _complaint(document: Document, expected: Expected) -> str:
    if looks_like(document, expected):
        what = f"it looks like a {expected.policy.kind}, but is not one"
        return f"{what}: {'; '.join(mistakes(document, expected.policy))}"
    if not document.kind:
        other = _misspelt(document.object, "kind")
        hint = f', but "{other}"' if other else ""
        return f"it has no kind{hint} ({_IGNORE})"
    if document.kind in expected.kinds and document.api_group in ("", _group(document, expected)):
        given = _text(document.object, "apiVersion")
        wanted = expected.version(document.kind)
        return f"apiVersion of a {document.kind} has to be {wanted}, {_instead(given)}"
    hint = _BUILT if document.kind == "Kustomization" else _IGNORE
    what = f"{document.kind} ({document.object.get('apiVersion') or 'no apiVersion'})"
    return f"{what} is none of {', '.join(expected.kinds)} ({hint})"


def _group(document: Document, expected: Expected) -> str:
    return expected.kinds[document.kind].group


def _looks_like(whole: Mapping[str, Any], expected: Expected) -> bool:
    kind, version, items = _kind(whole), _text(whole, "apiVersion"), whole.get("items")
    if kind in _OF_THE_GROUP - {expected.policy.kind}:
        return False
    return (
        _is_nearly(kind, expected.policy)
        or version in _OF_THE_PROPOSAL
        or version.partition("/")[0] == GROUP
        or (not kind and expected.is_spec(whole.get("spec")))
        or (isinstance(items, list) and any(_is_item(item, expected) for item in items))
    )


def _is_item(item: object, expected: Expected) -> bool:
    return isinstance(item, dict) and _looks_like(item, expected)


def _is_nearly(kind: str, policy: PolicyKind) -> bool:
    given, name = re.sub("[^a-z]", "", kind.lower()), policy.kind.lower()
    if given in (name, policy.gvr.resource, f"{name}list"):
        return True
    return SequenceMatcher(None, given, name).ratio() >= _NEARLY


def _kind(whole: Mapping[str, Any]) -> str:
    return _text(whole, "kind")


def _text(whole: Mapping[str, Any], field: str) -> str:
    """Return a field, whatever its upper and lower case; empty if there is none."""
    found = whole.get(field, whole.get(_misspelt(whole, field)))
    return "" if found is None else str(found)


def _misspelt(whole: Mapping[str, Any], field: str) -> str:
    """Return the key that differs from the field in case only, empty if there is none."""
    return next((key for key in whole if key != field and key.lower() == field.lower()), "")


def _instead(given: str) -> str:
    return f"not {given}" if given else "which is missing"


def _twice(documents: Sequence[Document]) -> list[str]:
    """Return the objects given more than once with different content: one would be lost."""
    found: dict[tuple[str, str, str], Document] = {}
    complaints = []
    for one in documents:
        key = (one.kind, str(one.metadata.get("namespace") or ""), one.name())
        first = found.setdefault(key, one)
        if first.object != one.object:
            complaints.append(f"{one.where}: another {one.kind} {key[2]} is in {first.where}")
    return complaints


def _listed(complaints: Sequence[str]) -> str:
    if len(complaints) == 1:
        return f"{_OPTION}: {complaints[0]}"
    lines = [f"  {line}" for line in complaints[:_SHOWN]]
    if len(complaints) > _SHOWN:
        lines.append(f"  and {len(complaints) - _SHOWN} more")
    return "\n".join([f"{_OPTION}: {len(complaints)} documents cannot be read:", *lines])


async def listed(
    client: KubeClient, gvr: GroupVersionResource, namespace: str | None = None
) -> list[tuple[ObjectKey, Any]]:
    """Return the objects of one namespace, or of all. Raises SyncError."""
    source = KubeCollection(client, gvr, namespace=namespace)
    try:
        return [(item.key, msgspec.json.decode(item.body)) async for item in items_of(source)]
    except NotFound as error:
        msg = f"{client.server} does not know {gvr} (is manifests/crds installed?)"
        raise Terminal(msg) from error
