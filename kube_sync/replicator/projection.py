"""The projection of an object for OPA: all but two parts that no policy reads, or named fields.

`metadata.managedFields` and the annotation `kubectl.kubernetes.io/last-applied-configuration` are
bookkeeping, larger together than the rest: they are kept only if they are named themselves. Only
the levels above an omitted part are decoded; all else passes through as the bytes that the API
server sent. Secrets keep names, not values, unless the configuration of their resource allows
values and asks for them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from kube_sync.config import Resource
from kube_sync.decisions.decision import REQUESTED
from kube_sync.objects import SECRET_VALUES

Path = tuple[str, ...]  # the keys from the root to a field; arrays on the way have none
Project = Callable[[bytes], bytes]

MANAGED: Path = ("metadata", "managedFields")
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
APPLIED: Path = ("metadata", "annotations", _LAST_APPLIED)
NOTE: Path = ("metadata", "annotations", REQUESTED)
# The fields that identify an object, and the state that a decision was made on.
NAMED: tuple[Path, ...] = (
    ("apiVersion",),
    ("kind",),
    ("metadata", "name"),
    ("metadata", "namespace"),
    ("metadata", "uid"),
)
Fields = dict[str, msgspec.Raw]
_Tree = dict[str, "_Tree | None"]  # None: keep the whole value
_decoder = msgspec.json.Decoder(Fields)
_elements = msgspec.json.Decoder(list[msgspec.Raw])
_encode = msgspec.json.Encoder().encode


def project(body: bytes) -> bytes:
    """Return the default projection of an object's JSON. Raises msgspec.DecodeError."""
    whole = _decoder.decode(body)
    tidy(whole, managed=False, applied=False)
    if is_secret(whole):
        withhold(whole)
    return _encode(whole)


def with_values(body: bytes) -> bytes:
    """Return the default projection with a Secret's values. Raises msgspec.DecodeError."""
    whole = _decoder.decode(body)
    tidy(whole, managed=False, applied=False)
    return _encode(whole)


def configured(resource: Resource) -> Project:
    """Return the projection that a resource is configured for; `auto` keeps all."""
    if resource.paths is not None:
        return keeping(resource.paths)
    return with_values if resource.secrets else project


def verbatim(body: bytes) -> bytes:
    """Return the JSON of a record made by kube-sync unchanged."""
    return body


def keeping(paths: Iterable[Path]) -> Project:
    """Return a projection to `paths` and the identifying fields.

    An array on the way stays an array: the rest of the path applies to each of its elements. If a
    path meets another value before its end, nothing is kept.
    """
    named = tuple(paths)
    note = (NOTE,) if _names(named, NOTE[:-1]) else ()  # it records annotations to restore
    tree = _tree((*NAMED, *named, *note))
    managed, applied = _names(named, MANAGED), _names(named, APPLIED)

    def kept(body: bytes) -> bytes:
        try:
            whole = _members(_decoder.decode(body), tree)
        except RecursionError as error:  # deeply nested arrays
            msg = "nested too deeply"
            raise msgspec.DecodeError(msg) from error
        # kubectl repeats a Secret's values there.
        tidy(whole, managed=managed, applied=applied and not is_secret(whole))
        return _encode(whole)

    return kept


def keeps_version(projection: Project) -> bool:
    """Return whether a projection keeps `metadata.resourceVersion`."""
    kept = _decoder.decode(projection(b'{"metadata":{"resourceVersion":"1"}}'))
    return "resourceVersion" in _decoder.decode(kept.get("metadata", b"{}"))


def tidy(whole: Fields, *, managed: bool, applied: bool) -> None:
    """Remove bookkeeping fields that are not wanted."""
    metadata = _decoder.decode(whole["metadata"])
    if not managed:
        metadata.pop("managedFields", None)
    if not applied and _LAST_APPLIED.encode() in bytes(metadata.get("annotations", b"")):
        annotations = _decoder.decode(metadata["annotations"])
        annotations.pop(_LAST_APPLIED, None)
        metadata["annotations"] = msgspec.Raw(_encode(annotations))
    whole["metadata"] = msgspec.Raw(_encode(metadata))


def withhold(secret: Fields) -> None:
    """Remove the values of a Secret."""
    for name in SECRET_VALUES:
        secret.pop(name, None)


def is_secret(whole: Fields) -> bool:
    """Return whether these are the members of a Secret."""
    # As bytes: a Raw never equals bytes.
    return bytes(whole.get("kind", b"")) == b'"Secret"'


def _names(paths: Iterable[Path], field: Path) -> bool:
    return any(path[: len(field)] == field for path in paths)


def _tree(paths: Iterable[Path]) -> _Tree:
    tree: _Tree = {}
    for path in sorted(paths, key=len):  # the shorter of two overlapping paths wins
        level = tree
        for part in path[:-1]:
            if (below := level.setdefault(part, {})) is None:
                break
            level = below
        else:
            level[path[-1]] = None
    return tree


def _members(found: Fields, tree: _Tree) -> Fields:
    kept: Fields = {}
    for name, raw in found.items():
        if name in tree and (part := _part(raw, tree[name])) is not None:
            kept[name] = part
    return kept


def _part(raw: msgspec.Raw, tree: _Tree | None) -> msgspec.Raw | None:
    if tree is None:
        return raw
    match bytes(memoryview(raw)[:1]):
        case b"{":
            return msgspec.Raw(_encode(_members(_decoder.decode(raw), tree)))
        case b"[":
            elements = (_part(element, tree) for element in _elements.decode(raw))
            return msgspec.Raw(_encode([element for element in elements if element is not None]))
        case _:
            return None
