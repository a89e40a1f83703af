"""Placements that are two at once: the clusters that a workload has, and those that it is to have.

Pure. The text of a union has the form of its annotation, and every entry of the present placement
as it is: weights and bounds of the clusters that stay differ only once the old ones are taken away.
A cluster that only the other placement has comes with its entry there. A union is computed again
from its own text without a difference, so writing it twice is writing it once.

There is none of a selector (labels select the clusters, and two lists of requirements cannot be
either), of `*` (the clusters have no names), nor where a whole annotation comes or goes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import msgspec

from kube_sync.guard.placements import Clusters, Placements

_sorted = msgspec.json.Encoder(order="sorted")


def united(
    placements: Placements, has: Mapping[str, str], wanted: Mapping[str, str]
) -> dict[str, str] | None:
    """Return the values that have the clusters of both, by annotation, or None if there are none.

    Both are all annotations of an object; the values are those of the placements that differ.
    """
    found = dict[str, str]()
    for key, form in placements.forms.items():
        before, after = has.get(key), wanted.get(key)
        if before == after:
            continue
        unite = _UNITE.get(form)
        if unite is None or before is None or after is None:
            return None
        sets = placements.read({key: before})[key], placements.read({key: after})[key]
        if any(clusters is None or clusters.open for clusters in sets):
            return None
        found[key] = unite(before, after, _names(sets[0]))
    return found


def reduced(placements: Placements, has: Mapping[str, str], gone: frozenset[str]) -> dict[str, str]:
    """Return the values without the clusters `gone`, by annotation, of those that name some.

    An annotation whose clusters cannot be named is left as it is.
    """
    found = dict[str, str]()
    for key, clusters in placements.read(has).items():
        reduce = _REDUCE.get(placements.forms[key])
        if reduce and clusters and not clusters.open and clusters.names & gone:
            found[key] = reduce(has[key], gone)
    return found


def named(placements: Placements, annotations: Mapping[str, str]) -> frozenset[str]:
    """Return every cluster that the placements name; those that cannot be named are left out."""
    found = frozenset[str]()
    for key, clusters in placements.read(annotations).items():
        if placements.forms[key] in _UNITE and clusters and not clusters.open:
            found |= clusters.names
    return found


def _names(clusters: Clusters | None) -> frozenset[str]:
    return frozenset() if clusters is None else clusters.names


def _united_preferences(before: str, after: str, placed: frozenset[str]) -> str:
    old, new = _document(before), _document(after)
    stays = {name: entry for name, entry in old["clusters"].items() if name in placed}
    # An entry that gets no replica is no place: the other one's counts.
    clusters = {**old["clusters"], **new["clusters"], **stays}
    return _text({**old, "clusters": clusters})


def _reduced_preferences(text: str, gone: frozenset[str]) -> str:
    document = _document(text)
    clusters = {name: e for name, e in document["clusters"].items() if name not in gone}
    return _text({**document, "clusters": clusters})


def _united_names(before: str, after: str, _placed: frozenset[str]) -> str:
    return _listed(before, dict.fromkeys([*_names_in(before), *_names_in(after)]))


def _reduced_names(text: str, gone: frozenset[str]) -> str:
    return _listed(text, (name for name in _names_in(text) if name not in gone))


def _names_in(text: str) -> list[str]:
    listed: list[str] = msgspec.json.decode(text) if _is_list(text) else text.split(",")
    return [name.strip() for name in listed if name.strip()]


def _listed(like: str, names: Iterable[str]) -> str:
    """Return the names as the annotation has them: a JSON list, or with commas between them."""
    return _text([*names]) if _is_list(like) else ",".join(names)


def _is_list(text: str) -> bool:
    return text.lstrip()[:1] == "["


def _document(text: str) -> dict[str, Any]:
    document: dict[str, Any] = msgspec.json.decode(text)
    return document


def _text(value: object) -> str:
    return _sorted.encode(value).decode()


_UNITE: Final[Mapping[str, Callable[[str, str, frozenset[str]], str]]] = {
    "preferences": _united_preferences,
    "names": _united_names,
}
_REDUCE: Final[Mapping[str, Callable[[str, frozenset[str]], str]]] = {
    "preferences": _reduced_preferences,
    "names": _reduced_names,
}
