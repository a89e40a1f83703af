"""Finds the expressions that speak against a cluster, by comparison with other clusters. Pure.

The purpose of a rule is unknown: some choose, some exclude. So a cluster that is not chosen is
compared with those that are (or with itself after a change that turns the decision): an expression
that does not hold for it and does for them speaks against it, and so does one that holds for it
and for none of them, if the rest of its body holds as well.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from kube_sync.inspect.why.probes import Note, Probed, Watched, shown

ANYBODY = ""  # a point that was reached for no particular cluster


@dataclass(frozen=True, slots=True)
class ObservedValue:
    """A value that an expression read, as JSON text; None: it is undefined."""

    term: str
    value: str | None


@dataclass(frozen=True, slots=True)
class Against:
    """An expression of a rule that speaks against a cluster: by not holding, or by holding."""

    file: str
    row: int
    rule: str
    text: str
    holds: bool
    saw: tuple[ObservedValue, ...] = ()


@dataclass(slots=True)
class EvaluationPaths:
    """The points that each cluster reached, and the values that the next expression read."""

    reached: dict[int, dict[str, list[str | None]]] = field(default_factory=dict)

    @classmethod
    def of(cls, notes: Iterable[Note]) -> EvaluationPaths:
        """Build the paths from notes; of several notes of a cluster at a point the first counts."""
        found = cls()
        for note in notes:
            at = found.reached.setdefault(note.point, {})
            for cluster in (*(note.clusters[0] if note.clusters else ()), ANYBODY):
                at.setdefault(cluster, note.saw)
        return found

    def at(self, point: int) -> Mapping[str, list[str | None]]:
        """Return the clusters that reached a point."""
        return self.reached.get(point, {})


def against(
    cluster: str,
    ways: EvaluationPaths,
    others: EvaluationPaths,
    chosen: Collection[str],
    probed: Probed,
) -> tuple[Against, ...]:
    """Return the expressions against a cluster, compared with `chosen` ones on paths `others`."""
    found: dict[tuple[str, int, str, bool], Against] = {}
    for watched in probed.watched:
        for one in _diverging(cluster, ways, others, chosen, watched, probed):
            found.setdefault((one.file, one.row, one.text, one.holds), one)
    # A missing property says more than an excluding one, and values say more than none.
    return tuple(sorted(found.values(), key=lambda a: (not a.saw, a.holds)))


def failing(cluster: str, ways: EvaluationPaths, probed: Probed) -> tuple[Against, ...]:
    """Return the expressions at which the bodies fail that read a cluster by itself."""
    return tuple(dict.fromkeys(_ends(cluster, ways, probed, probed.watched)))


def by_name(name: str, ways: EvaluationPaths, probed: Probed) -> tuple[Against, ...]:
    """Return the expressions at which rules that name a cluster fail, for any cluster."""
    naming = [watched for watched in probed.watched if name in watched.body.texts]
    return tuple(dict.fromkeys(_ends(ANYBODY, ways, probed, naming)))


def gates(ways: EvaluationPaths, probed: Probed) -> tuple[Against, ...]:
    """Return the expressions at which placing rules fail, whichever the cluster."""
    placing = [w for w in probed.watched if w.body.alone and w.body.rule.startswith("annotations")]
    return tuple(dict.fromkeys(_ends(ANYBODY, ways, probed, placing)))


def _ends(
    who: str, ways: EvaluationPaths, probed: Probed, bodies: Iterable[Watched]
) -> Iterator[Against]:
    for watched in bodies:
        last = _last(who, ways, watched)
        if last is not None and last < len(watched.body.expressions):
            yield _against(who, ways, watched, last, probed, holds=False)


def _diverging(
    cluster: str,
    ways: EvaluationPaths,
    others: EvaluationPaths,
    chosen: Collection[str],
    watched: Watched,
    probed: Probed,
) -> Iterator[Against]:
    last, length = _last(cluster, ways, watched), len(watched.body.expressions)
    if last is None:
        return
    if last < length:
        if any(one in others.at(watched.first + last + 1) for one in chosen):
            yield _against(cluster, ways, watched, last, probed, holds=False)
        return
    theirs = [n for one in chosen if (n := _last(one, others, watched)) is not None]
    if theirs and max(theirs) < length:
        yield _against(cluster, ways, watched, max(theirs), probed, holds=True)


def _last(cluster: str, ways: EvaluationPaths, watched: Watched) -> int | None:
    """Return how many expressions of a body held in a row, at best, None: it was not entered."""
    found = None
    for number in range(len(watched.body.expressions) + 1):
        if cluster in ways.at(watched.first + number):
            found = number
    return found


def _against(
    cluster: str,
    ways: EvaluationPaths,
    watched: Watched,
    number: int,
    probed: Probed,
    *,
    holds: bool,
) -> Against:
    place = watched.body.expressions[number].place
    terms = shown(watched.body, number, probed.visible)
    values = ways.at(watched.first + number).get(cluster, [])
    saw = tuple(ObservedValue(t, v) for t, v in zip(terms, values, strict=False))
    return Against(watched.file, place.row, watched.body.rule, place.text, holds, saw)
