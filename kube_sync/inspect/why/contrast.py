"""Finds the expressions that speak against a cluster, by comparison with other clusters. Pure.

The purpose of a rule is unknown: some choose, some exclude. So a cluster that is not chosen is
compared with those that are (or with itself after a change that turns the decision): an expression
that does not hold for it and does for them speaks against it, and so does one that holds for it
and for none of them, if the rest of its body holds as well.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from kube_sync.inspect.why.probes import Note, Probed, ProbedBody, noted_terms

ANY_CLUSTER = ""  # a point that was reached for no particular cluster


@dataclass(frozen=True, slots=True)
class ObservedValue:
    """A value that an expression read, as JSON text; None: it is undefined."""

    term: str
    value: str | None


@dataclass(frozen=True, slots=True)
class Objection:
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
            for cluster in (*(note.clusters[0] if note.clusters else ()), ANY_CLUSTER):
                at.setdefault(cluster, note.saw)
        return found

    def at(self, point: int) -> Mapping[str, list[str | None]]:
        """Return the clusters that reached a point."""
        return self.reached.get(point, {})


def objections_to(
    cluster: str,
    paths: EvaluationPaths,
    other_paths: EvaluationPaths,
    chosen: Collection[str],
    probed: Probed,
) -> tuple[Objection, ...]:
    """Return the expressions against a cluster, compared with `chosen` ones."""
    found: dict[tuple[str, int, str, bool], Objection] = {}
    for watched in probed.watched:
        for one in _diverging(cluster, paths, other_paths, chosen, watched, probed):
            found.setdefault((one.file, one.row, one.text, one.holds), one)
    # A missing property says more than an excluding one, and values say more than none.
    return tuple(sorted(found.values(), key=lambda a: (not a.saw, a.holds)))


def failing(cluster: str, paths: EvaluationPaths, probed: Probed) -> tuple[Objection, ...]:
    """Return the expressions at which the bodies fail that read a cluster by itself."""
    return tuple(dict.fromkeys(_ends(cluster, paths, probed, probed.watched)))


def by_name(name: str, paths: EvaluationPaths, probed: Probed) -> tuple[Objection, ...]:
    """Return the expressions at which rules that name a cluster fail, for any cluster."""
    naming = [watched for watched in probed.watched if name in watched.body.texts]
    return tuple(dict.fromkeys(_ends(ANY_CLUSTER, paths, probed, naming)))


def gates(paths: EvaluationPaths, probed: Probed) -> tuple[Objection, ...]:
    """Return the expressions at which placing rules fail, whichever the cluster."""
    placing = [w for w in probed.watched if w.body.alone and w.body.rule.startswith("annotations")]
    return tuple(dict.fromkeys(_ends(ANY_CLUSTER, paths, probed, placing)))


def _ends(
    cluster: str, paths: EvaluationPaths, probed: Probed, bodies: Iterable[ProbedBody]
) -> Iterator[Objection]:
    for watched in bodies:
        last = _last(cluster, paths, watched)
        if last is not None and last < len(watched.body.expressions):
            yield _against(cluster, paths, watched, last, probed, holds=False)


def _diverging(
    cluster: str,
    paths: EvaluationPaths,
    other_paths: EvaluationPaths,
    chosen: Collection[str],
    watched: ProbedBody,
    probed: Probed,
) -> Iterator[Objection]:
    last, length = _last(cluster, paths, watched), len(watched.body.expressions)
    if last is None:
        return
    if last < length:
        if any(one in other_paths.at(watched.first + last + 1) for one in chosen):
            yield _against(cluster, paths, watched, last, probed, holds=False)
        return
    reached = [n for one in chosen if (n := _last(one, other_paths, watched)) is not None]
    if reached and max(reached) < length:
        yield _against(cluster, paths, watched, max(reached), probed, holds=True)


def _last(cluster: str, paths: EvaluationPaths, watched: ProbedBody) -> int | None:
    """Return how many expressions of a body held in a row, at best, None: it was not entered."""
    found = None
    for number in range(len(watched.body.expressions) + 1):
        if cluster in paths.at(watched.first + number):
            found = number
    return found


def _against(
    cluster: str,
    paths: EvaluationPaths,
    watched: ProbedBody,
    number: int,
    probed: Probed,
    *,
    holds: bool,
) -> Objection:
    place = watched.body.expressions[number].place
    terms = noted_terms(watched.body, number, probed.visible)
    values = paths.at(watched.first + number).get(cluster, [])
    saw = tuple(ObservedValue(t, v) for t, v in zip(terms, values, strict=False))
    return Objection(watched.file, place.row, watched.body.rule, place.text, holds, saw)
