"""Formats an answer for a terminal, and as JSON.

Invariant: the JSON is complete; the text counts what it leaves out.
No text can move a terminal's cursor.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Sized
from typing import Any, Final

from kube_sync.decisions.explaining import Rule
from kube_sync.decisions.inputs import Input
from kube_sync.inspect.plan.extra_documents import InEffect
from kube_sync.inspect.why.builtin_errors import BuiltinError
from kube_sync.inspect.why.change import as_option
from kube_sync.inspect.why.contrast import Against
from kube_sync.inspect.why.explanation import ClusterResult, WhyReport
from kube_sync.inspect.why.search import Search, TurningChange
from kube_sync.policykinds.printing import indented, plain

_RULES, _INPUTS, _CLUSTERS, _AGAINST = 6, 20, 40, 4
_GAP: Final = "  "
_ERRORS: Final = 6
FAILED: Final = "no rule was found that speaks of this cluster on its own, and a builtin failed"
NOTHING: Final = "no rule was found that speaks of this cluster on its own"


def as_text(told: WhyReport, width: int) -> str:
    """Format the answer for a terminal with `width` columns."""
    asked = [_short(_standings(told), width), _errors(told.builtin_errors), _search(told)]
    why = [
        _short(rules_of(told.rules, told.rules_failure), width),
        _short(inputs_of(told.inputs, told.inputs_failure), width),
    ]
    # The answer to a question about one cluster begins with that cluster.
    blocks = [_short(_decision(told), width), *([*asked, *why] if told.search else [*why, *asked])]
    return _joined(blocks, told.notes)


def laid_out(blocks: Iterable[Iterable[str]], notes: Iterable[str], width: int) -> str:
    """Join blocks of lines, each cut to `width` columns, and uncut notes."""
    return _joined((_short(block, width) for block in blocks), notes)


def as_json(told: WhyReport) -> str:
    """Format the whole answer for programs."""
    whole = {
        "v": 1,
        "object": {
            "resource": told.resource,
            "namespace": told.key.namespace,
            "name": told.key.name,
        },
        "decision": told.outcome.decision,
        "failure": told.outcome.failure,
        "decided": told.decided,
        "canary": None if told.canary is None else _canary(told.canary),
        "has": told.has,
        "pending": told.pending,
        "rules": told.rules,
        "rules_failure": told.rules_failure,
        "inputs": told.inputs,
        "inputs_failure": told.inputs_failure,
        "clusters": [_standing(standing) for standing in told.standings],
        "compared": told.compared,
        "search": None if told.search is None else _searched(told, told.search),
        "notes": told.notes,
        "builtin_errors": told.builtin_errors,
    }
    return indented(whole)


def _decision(told: WhyReport) -> Iterator[str]:
    yield f"{told.resource} {told.key}"
    decision = told.outcome.decision
    if told.outcome.failure is not None:
        yield f"  failed   {_first_line(told.outcome.failure)}"
    elif decision is None:
        yield "  decided  nothing"
    elif decision.errors:
        yield from (f"  refused  {_first_line(error)}" for error in decision.errors)
    else:
        yield f"  decided  {_names(told.decided)}"
        yield from (f"           label {k}: {v}" for k, v in decision.labels.items())
    if told.canary is not None:
        yield f"  by       {told.canary}"
    yield f"  has      {_names(told.has)}"
    yield f"  so       {told.pending or 'it is as decided'}"


def _canary(canary: InEffect) -> dict[str, Any]:
    return {
        "configmap": str(canary.policy.key),
        "stands_for": str(canary.place),
        "share": canary.side.share,
        "namespaces": sorted(canary.side.namespaces),
    }


def rules_of(rules: Iterable[Rule], failure: str | None) -> Iterator[str]:
    """Yield the rules that made a decision, or why they are unknown."""
    if failure is not None:
        yield f"rules: {failure}"
        return
    applied = [rule for rule in rules if rule.applied]
    if applied:
        yield "rules that made it"
        yield from (f"  {r.file}:{r.row}{_GAP}{r.text or r.name}" for r in applied[:_RULES])
        yield from more(applied, _RULES, "rules")


def inputs_of(inputs: Sequence[Input], failure: str | None) -> Iterator[str]:
    """Yield the fields of the object that were read, or why they are unknown."""
    if failure is not None:
        yield f"inputs: {failure}"
    elif inputs:
        yield "inputs that it read"
        for read in inputs[:_INPUTS]:
            yield f"  {read.path}{_GAP}{'(absent)' if read.value is None else read.value}"
        yield from more(inputs, _INPUTS, "inputs")


def _standings(told: WhyReport) -> Iterator[str]:
    if not told.standings:
        return
    yield "clusters"
    wide = max(len(str(s.cluster)) for s in told.standings[:_CLUSTERS])
    for standing in told.standings[:_CLUSTERS]:
        said = "; ".join(
            filter(None, ["chosen" if standing.chosen else "not chosen", standing.said])
        )
        yield f"  {str(standing.cluster).ljust(wide)}{_GAP}{said}"
        for against in standing.against[:_AGAINST]:
            yield from (f"    {line}" for line in _against(against))
        yield from (f"    {line}" for line in more(standing.against, _AGAINST, "reasons"))
        if not (standing.chosen or standing.said or standing.against):
            yield f"    {FAILED if told.builtin_errors else NOTHING}"
    yield from more(told.standings, _CLUSTERS, "clusters")
    if told.compared:
        yield f"  ({told.compared})"


def _errors(errors: Sequence[BuiltinError]) -> Iterator[str]:
    if errors:
        yield "builtins that failed, so that what depends on them is undefined"
        yield from (f"  {e.file}:{e.row}{_GAP}{_one_line(e.message)}" for e in errors[:_ERRORS])
        yield from more(errors, _ERRORS, "errors")


def _against(against: Against) -> Iterator[str]:
    verb = "holds" if against.holds else "does not hold"
    yield f"{against.file}:{against.row}"
    yield f"  {verb}: {_one_line(against.text)}"
    # A value derived from a whole object says more than the object.
    plain = [seen for seen in against.saw if not (seen.value or "").startswith("{")]
    for seen in plain or against.saw:
        is_there = "is not there" if seen.value is None else f"is {seen.value}"
        yield f"    {_one_line(seen.term)} {is_there}"


def _search(told: WhyReport) -> Iterator[str]:
    if told.search is None:
        return
    (standing,) = told.standings
    cluster, found = standing.cluster, told.search.found
    if not found:
        yield f"no single change that was tried puts it on {cluster.name} ({_tried(told.search)})"
        return
    yield f"smallest change that puts it on {cluster.name} ({_tried(told.search)}, evaluated anew)"
    for number, turn in enumerate(found):
        if number == 1:
            yield "others that do"
        yield f"  {_whose(told, standing, turn)}"
        yield f"    {turn.change}"
        yield from (f"    {line}" for line in _effect(standing, turn))


def _effect(standing: ClusterResult, turn: TurningChange) -> Iterator[str]:
    yield f"then decided: {_names(turn.decided)}"
    if (option := _option(standing, turn)) is not None:
        yield f"what else it moves: kube-sync what-if {option}"


def _option(standing: ClusterResult, turn: TurningChange) -> str | None:
    of_cluster = turn.change.of == "cluster"
    return as_option(turn.change, standing.cluster.name) if of_cluster else None


def _whose(told: WhyReport, standing: ClusterResult, turn: TurningChange) -> str:
    if turn.change.of == "cluster":
        return f"cluster {standing.cluster}"
    return f"{told.resource} {told.key}"


def _tried(search: Search) -> str:
    tried = f"{search.tried} changes tried"
    left = search.possible - search.tried
    return f"{tried}, {left} more are beyond --tries" if left else f"{tried}, all there are"


def _searched(told: WhyReport, search: Search) -> dict[str, Any]:
    (standing,) = told.standings
    return {
        "tried": search.tried,
        "possible": search.possible,
        "found": [
            {
                **turn.change.document(),
                "decided": turn.decided,
                "what_if": _option(standing, turn),
            }
            for turn in search.found
        ],
    }


def _standing(standing: ClusterResult) -> dict[str, Any]:
    return {
        "namespace": standing.cluster.namespace,
        "name": standing.cluster.name,
        "chosen": standing.chosen,
        "said": standing.said,
        "against": standing.against,
    }


def more(what: Sized, shown: int, name: str) -> Iterable[str]:
    """Return the number of entries beyond those shown, nothing if all are shown."""
    left = len(what) - shown
    return [f"  … and {left} more {name} (-o json)"] if left > 0 else []


def _names(names: Sequence[str]) -> str:
    return ", ".join(names) or "no cluster"


def _first_line(text: str) -> str:
    return text.partition("\n")[0]


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _joined(blocks: Iterable[Iterable[str]], notes: Iterable[str]) -> str:
    whole = [*blocks, (f"note: {note}" for note in notes)]
    texts = ("\n".join(plain(line, keep="") for line in block) for block in whole)
    return "\n\n".join(text for text in texts if text)


def _short(lines: Iterable[str], width: int) -> Iterator[str]:
    return (line if len(line) <= width else line[: width - 1] + "…" for line in lines)
