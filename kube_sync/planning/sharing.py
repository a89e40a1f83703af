"""Which workloads share a decision, and what OPA has to hold to make each of them once. Pure.

Keeps true: a decision over what is held is the decision over all objects, by what the policies were
found to read (`analysis`); where that is not known everything is held, and decided one by one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from kube_sync.decisions.classes import Classify, shares
from kube_sync.errors import NO_JSON
from kube_sync.objects import ObjectKey
from kube_sync.replicator.classes import classifier
from kube_sync.replicator.extent import WHOLE, Form, Need
from kube_sync.replicator.narrowing import narrowing

Bodies = Mapping[str, Mapping[ObjectKey, bytes]]  # by collection
Group = Sequence[ObjectKey]  # the first one is asked about


class Sharing:
    """Finds classes, once for worlds that read the same of the same objects."""

    def __init__(self, targets: Collection[str]) -> None:
        """`targets` are the collections that decisions are about."""
        self._targets = targets
        self._known: list[tuple[Mapping[ObjectKey, bytes], object, list[Group]]] = []

    def groups(self, bodies: Bodies, need: Need) -> dict[str, list[Group]]:
        """Return the classes of each target collection."""
        return {name: self._groups(bodies.get(name, {}), need) for name in self._targets}

    def _groups(self, objects: Mapping[ObjectKey, bytes], need: Need) -> list[Group]:
        paths = need.reads.input.paths if shares(need.reads) else None
        for held, by, groups in self._known:
            if held is objects and by == paths:
                return groups
        groups = grouped(objects, None if paths is None else classifier(paths))
        self._known.append((objects, paths, groups))
        return groups


def grouped(objects: Mapping[ObjectKey, bytes], classify: Classify | None) -> list[Group]:
    """Return the objects in classes; without a way to tell, each is one by itself."""
    if classify is None:
        return [(key,) for key in objects]
    found: dict[bytes | ObjectKey, list[ObjectKey]] = {}
    for key, body in objects.items():
        found.setdefault(_class(classify, body) or key, []).append(key)
    return [*found.values()]


def needed(
    bodies: Bodies, need: Need, groups: Mapping[str, Sequence[Group]], chosen: Collection[str] = ()
) -> Bodies:
    """Return what of all objects the decisions over one of each group read.

    Of workloads that no policy looks at but as its input, that is one of each group. Of collections
    whose fields somebody has `chosen` the objects are left as they are.
    """
    return {
        name: _narrowed(
            objects,
            _keys(objects, groups.get(name, ()), read=_is_read(name, need)),
            WHOLE if name in chosen else need.of(name, target=name in groups),
        )
        for name, objects in bodies.items()
    }


def _keys(
    objects: Mapping[ObjectKey, bytes], groups: Sequence[Group], *, read: bool
) -> Iterable[ObjectKey]:
    return objects if read else (group[0] for group in groups)


def _is_read(name: str, need: Need) -> bool:
    """Tell whether policies read a collection as data, whichever object they decide on."""
    sides = (need.reads, need.reads.beside)
    return any(
        reads.gave_up is not None or name not in reads.resources or reads.resources[name].used
        for reads in sides
        if reads is not None
    )


def _narrowed(
    objects: Mapping[ObjectKey, bytes], keys: Iterable[ObjectKey], form: Form
) -> Mapping[ObjectKey, bytes]:
    if form == WHOLE:
        return {key: objects[key] for key in keys}
    narrow = narrowing(form.paths, values=True)  # which OPA would not get are left out already
    # Paths begin at an object's place: what lies elsewhere is kept whole.
    inside = form.namespaced
    return {k: narrow(objects[k]) if bool(k.namespace) == inside else objects[k] for k in keys}


def _class(classify: Classify, body: bytes) -> bytes | None:
    try:
        return classify(body)
    except NO_JSON:
        return None
