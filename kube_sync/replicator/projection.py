"""What of an object goes into OPA: everything but two parts that no policy reads, or named fields.

`metadata.managedFields` and the annotation `kubectl.kubernetes.io/last-applied-configuration`
are bookkeeping, larger together than the rest: they come through only when they are named
themselves. Only the levels on the way to what is left out are decoded; all else passes through as
the bytes that the API server sent. Secrets keep names, not values, unless the configuration of
their resource allows values and asks for them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from kube_sync.config import Resource
from kube_sync.decisions.decision import REQUESTED
from kube_sync.objects import SECRET_VALUES

Path = tuple[str, ...]  # the keys on the way to a field; arrays on the way have none
Project = Callable[[bytes], bytes]

MANAGED: Path = ("metadata", "managedFields")
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
APPLIED: Path = ("metadata", "annotations", _LAST_APPLIED)
NOTE: Path = ("metadata", "annotations", REQUESTED)
# Without them a policy could not say what it is about, nor a decision what it was made on.
NAMED: tuple[Path, ...] = (
    ("apiVersion",),
    ("kind",),
    ("metadata", "name"),
    ("metadata", "namespace"),
    ("metadata", "uid"),
)
Fields = dict[str, msgspec.Raw]
_Tree = dict[str, "_Tree | None"]  # None: all that is here
_decoder = msgspec.json.Decoder(Fields)
_elements = msgspec.json.Decoder(list[msgspec.Raw])
_encode = msgspec.json.Encoder().encode


def project(body: bytes) -> bytes:
    """Return the JSON of an object as OPA gets it by default. Raises msgspec.DecodeError."""
    whole = _decoder.decode(body)
    tidy(whole, managed=False, applied=False)
    if is_secret(whole):
        withhold(whole)
    return _encode(whole)


def with_values(body: bytes) -> bytes:
    """Return the same with a Secret's values. Raises msgspec.DecodeError."""
    whole = _decoder.decode(body)
    tidy(whole, managed=False, applied=False)
    return _encode(whole)


def configured(resource: Resource) -> Project:
    """Return the projection that the configuration of a resource asks for, `auto` being all."""
    if resource.paths is not None:
        return keeping(resource.paths)
    return with_values if resource.secrets else project


def verbatim(body: bytes) -> bytes:
    """Return the JSON of a record of our own making, which has nothing to leave out."""
    return body


def keeping(paths: Iterable[Path]) -> Project:
    """Return a projection to what lies at `paths`, and what names an object.

    An array on the way stays one: the rest of the path applies to each of its elements. Where a
    path meets anything else before its end there is nothing to keep.
    """
    named = tuple(paths)
    note = (NOTE,) if _names(named, NOTE[:-1]) else ()  # decisions put back what it says
    tree = _tree((*NAMED, *named, *note))
    managed, applied = _names(named, MANAGED), _names(named, APPLIED)

    def kept(body: bytes) -> bytes:
        try:
            whole = _members(_decoder.decode(body), tree)
        except RecursionError as error:  # arrays in arrays in arrays …
            msg = "nested too deeply"
            raise msgspec.DecodeError(msg) from error
        # kubectl repeats the values of a Secret there.
        tidy(whole, managed=managed, applied=applied and not is_secret(whole))
        return _encode(whole)

    return kept


def keeps_version(projection: Project) -> bool:
    """Tell whether `metadata.resourceVersion` comes through."""
    kept = _decoder.decode(projection(b'{"metadata":{"resourceVersion":"1"}}'))
    return "resourceVersion" in _decoder.decode(kept.get("metadata", b"{}"))


def tidy(whole: Fields, *, managed: bool, applied: bool) -> None:
    """Take the bookkeeping out, each part unless it is wanted."""
    metadata = _decoder.decode(whole["metadata"])
    if not managed:
        metadata.pop("managedFields", None)
    if not applied and _LAST_APPLIED.encode() in bytes(metadata.get("annotations", b"")):
        annotations = _decoder.decode(metadata["annotations"])
        annotations.pop(_LAST_APPLIED, None)
        metadata["annotations"] = msgspec.Raw(_encode(annotations))
    whole["metadata"] = msgspec.Raw(_encode(metadata))


def withhold(secret: Fields) -> None:
    """Take the values out of a Secret."""
    for name in SECRET_VALUES:
        secret.pop(name, None)


def is_secret(whole: Fields) -> bool:
    """Tell whether these are the members of a Secret."""
    # As bytes: a Raw never equals bytes.
    return bytes(whole.get("kind", b"")) == b'"Secret"'


def _names(paths: Iterable[Path], field: Path) -> bool:
    return any(path[: len(field)] == field for path in paths)


def _tree(paths: Iterable[Path]) -> _Tree:
    tree: _Tree = {}
    for path in sorted(paths, key=len):  # so that the shorter of two that overlap wins
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
