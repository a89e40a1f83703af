"""The fast projection: keep only the paths that policies read, and the identifying fields.

Invariant: everything that `kube_sync.opa.analysis.paths.project` keeps of an object is kept, as the
bytes that the API server sent; more may be. Decoding skips the rest: a tree of types is built from
the paths once, so the cost of an object is that of the kept part. An object that does not fit these
types (a number where a path goes on) is traversed by hand, which is slower and exact.

What `projection` omits by default is omitted here too: managedFields, the annotation of kubectl
unless it is named, and a Secret's values unless they are named or allowed as a whole.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from kube_sync.objects import SECRET_VALUES
from kube_sync.opa.analysis.paths import EACH, Key, Path
from kube_sync.replicator.projection import (
    APPLIED,
    MANAGED,
    NAMED,
    Fields,
    Project,
    is_secret,
    project,
    tidy,
    withhold,
)

_ANNOTATIONS: Final = ("metadata", "annotations")
# Characters that msgspec does not accept in a field name.
_ODD = re.compile(r'["\\\x00-\x1f]')
_decoder = msgspec.json.Decoder(Fields)
_elements = msgspec.json.Decoder(list[msgspec.Raw])
_encode = msgspec.json.Encoder().encode


@dataclass(slots=True)
class _Node:
    """What to keep of a value: all of it, the same part of each member, or some members by name."""

    whole: bool = False
    members: dict[Key, _Node] = field(default_factory=dict)

    @property
    def each(self) -> _Node | None:
        return self.members.get(EACH)


def narrowing(paths: Iterable[Path], *, values: bool = False) -> Project:
    """Return a projection to `paths`; it raises msgspec.DecodeError and KeyError.

    With `values`, a Secret's values are kept if all of it is, and not only if they are named.
    """
    wanted = [path for path in paths if path[: len(MANAGED)] != MANAGED]
    tree = _tree(wanted)
    applied = any(path[: len(APPLIED)] == APPLIED for path in wanted)
    values = values or any(path[0] in SECRET_VALUES for path in wanted if path)
    if tree.whole and not applied and not values:
        return project
    narrow = _Narrow(tree)
    if not _keeps_bookkeeping(tree):
        return narrow

    def tidied(body: bytes) -> bytes:
        kept = _decoder.decode(narrow(body))
        secret = is_secret(kept)
        tidy(kept, managed=False, applied=applied and not secret)
        if secret and not values:
            withhold(kept)
        return _encode(kept)

    return tidied


class _Narrow:
    """Projects by types; an object that does not fit them is traversed."""

    def __init__(self, tree: _Node) -> None:
        self._tree = tree
        self._decode = msgspec.json.Decoder(_type(tree)).decode

    def __call__(self, body: bytes) -> bytes:
        try:
            return self._kept(body)
        except RecursionError as error:
            msg = "nested too deeply"
            raise msgspec.DecodeError(msg) from error

    def _kept(self, body: bytes) -> bytes:
        try:
            return _encode(self._decode(body))
        except msgspec.ValidationError:
            return _encode(_members(_decoder.decode(body), self._tree))


def _type(node: _Node) -> Any:  # noqa: ANN401 - a type, made here
    """Return the type that decodes to the kept part of a value."""
    if node.whole:
        return msgspec.Raw
    if node.each is not None:
        inner = _or_null(_type(node.each))
        return list[inner] | dict[str, inner]  # type: ignore[valid-type] # made at run time
    named = [key for key in node.members if key is not None]
    keys = {f"f{number}": key for number, key in enumerate(named)}
    fields = [
        (name, _or_null(_type(node.members[key])) | msgspec.UnsetType, msgspec.UNSET)
        for name, key in keys.items()
    ]
    return msgspec.defstruct("Kept", fields, rename=keys, gc=False)


def _or_null(kind: Any) -> Any:  # noqa: ANN401 - a type, made here
    return kind if kind is msgspec.Raw else kind | None


def _members(found: Fields, node: _Node) -> Fields:
    below = {name: node.each or node.members.get(name) for name in found}
    return {name: _walk(found[name], kept) for name, kept in below.items() if kept is not None}


def _walk(raw: msgspec.Raw, node: _Node) -> msgspec.Raw:
    if node.whole:
        return raw
    match bytes(memoryview(raw)[:1]):
        case b"{":
            return msgspec.Raw(_encode(_members(_decoder.decode(raw), node)))
        case b"[":
            each = node.each
            elements = _elements.decode(raw) if each else []
            return msgspec.Raw(_encode([_walk(element, each) for element in elements if each]))
        case _:
            return raw


def _keeps_bookkeeping(tree: _Node) -> bool:
    metadata = tree.members.get("metadata", tree)
    return metadata.whole or "annotations" in metadata.members


def _tree(paths: Iterable[Path]) -> _Node:
    root = _Node()
    for path in (*NAMED, *paths):
        # kubectl's annotation is omitted by name, so "each annotation" means all of them.
        beyond = path[:2] == _ANNOTATIONS and path[2:3] == (EACH,)
        _grow(root, _ANNOTATIONS if beyond else path).whole = True
    _widen(root)
    return root


def _grow(node: _Node, path: Path) -> _Node:
    for key in path:
        node = node.members.setdefault(key, _Node())
    return node


def _widen(node: _Node) -> None:
    """Let each named member keep also what the node keeps of each member."""
    if node.each is not None:
        for key in [key for key in node.members if key is not EACH]:
            _merge(node.each, node.members.pop(key))
    for member in node.members.values():
        _widen(member)
    node.whole = (
        node.whole
        or (node.each is not None and node.each.whole)
        or any(_ODD.search(key or "") for key in node.members)
    )
    if node.whole:
        node.members.clear()


def _merge(into: _Node, other: _Node) -> None:
    into.whole = into.whole or other.whole
    for key, member in other.members.items():
        _merge(into.members.setdefault(key, _Node()), member)
