"""Formats an answer for a terminal, and as JSON.

Invariant: the JSON is complete; the text counts what it leaves out.
No text can move a terminal's cursor.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Sized
from typing import Any, Final

from kube_sync.decisions.explaining import Rule
from kube_sync.decisions.input_values import Input
from kube_sync.inspect.plan.extra_documents import CanaryInEffect
from kube_sync.inspect.why.builtin_errors import BuiltinError
from kube_sync.inspect.why.change import as_option
from kube_sync.inspect.why.contrast import Objection
from kube_sync.inspect.why.explanation import ClusterResult, WhyReport
from kube_sync.inspect.why.search import DecisiveChange, Search
from kube_sync.observability.printing import cut, indented, joined, plain

_RULES, _INPUTS, _CLUSTERS, _AGAINST = 6, 20, 40, 4
_GAP: Final = "  "
_ERRORS: Final = 6
FAILED: Final = "no rule was found that speaks of this cluster on its own, and a builtin failed"
NOTHING: Final = "no rule was found that speaks of this cluster on its own"


def as_text(report: WhyReport, width: int) -> str:
    """Format the answer for a terminal with `width` columns."""
    cluster_blocks = [
        _short(_cluster_lines(report), width),
        _errors(report.builtin_errors),
        _search(report),
    ]
    reasons = [
        _short(rules_of(report.rules, report.rules_failure), width),
        _short(inputs_of(report.inputs, report.inputs_failure), width),
    ]
    # The answer to a question about one cluster begins with that cluster.
    blocks = [
        _short(_decision(report), width),
        *([*cluster_blocks, *reasons] if report.search else [*reasons, *cluster_blocks]),
    ]
    return _joined(blocks, report.notes)


def laid_out(blocks: Iterable[Iterable[str]], notes: Iterable[str], width: int) -> str:
    """Join blocks of lines, each cut to `width` columns, and uncut notes."""
    return _joined((_short(block, width) for block in blocks), notes)


def as_json(report: WhyReport) -> str:
    """Format the whole answer for programs."""
    whole = {
        "v": 1,
        "object": {
            "resource": report.resource,
            "namespace": report.key.namespace,
            "name": report.key.name,
        },
        "decision": report.outcome.decision,
        "failure": report.outcome.failure,
        "decided": report.decided,
        "canary": None if report.canary is None else _canary_document(report.canary),
        "has": report.has,
        "pending": report.pending,
        "move": report.move,
        "trace": report.trace or None,
        "rules": report.rules,
        "rules_failure": report.rules_failure,
        "inputs": report.inputs,
        "inputs_failure": report.inputs_failure,
        "clusters": [_cluster_document(result) for result in report.cluster_results],
        "compared": report.compared,
        "search": None if report.search is None else _search_document(report, report.search),
        "notes": report.notes,
        "builtin_errors": report.builtin_errors,
    }
    return indented(whole)


def _decision(report: WhyReport) -> Iterator[str]:
    yield f"{report.resource} {report.key}"
    decision = report.outcome.decision
    if report.outcome.failure is not None:
        yield f"  failed   {_first_line(report.outcome.failure)}"
    elif decision is None:
        yield "  decided  nothing"
    elif decision.errors:
        yield from (f"  refused  {_first_line(error)}" for error in decision.errors)
    else:
        yield f"  decided  {_names(report.decided)}"
        yield from (f"           label {k}: {v}" for k, v in decision.labels.items())
    if report.canary is not None:
        yield f"  by       {report.canary}"
    yield f"  has      {_names(report.has)}"
    yield f"  so       {report.pending or 'it is as decided'}"
    if report.move:
        yield f"  move     {report.move}"
    if report.trace:
        yield f"  trace    {report.trace}"


def _canary_document(canary: CanaryInEffect) -> dict[str, Any]:
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


def _cluster_lines(report: WhyReport) -> Iterator[str]:
    if not report.cluster_results:
        return
    yield "clusters"
    width = max(len(str(s.cluster)) for s in report.cluster_results[:_CLUSTERS])
    for result in report.cluster_results[:_CLUSTERS]:
        text = "; ".join(filter(None, ["chosen" if result.chosen else "not chosen", result.reason]))
        yield f"  {str(result.cluster).ljust(width)}{_GAP}{text}"
        for objection in result.objections[:_AGAINST]:
            yield from (f"    {line}" for line in _objection_lines(objection))
        yield from (f"    {line}" for line in more(result.objections, _AGAINST, "reasons"))
        if not (result.chosen or result.reason or result.objections):
            yield f"    {FAILED if report.builtin_errors else NOTHING}"
    yield from more(report.cluster_results, _CLUSTERS, "clusters")
    if report.compared:
        yield f"  ({report.compared})"


def _errors(errors: Sequence[BuiltinError]) -> Iterator[str]:
    if errors:
        yield "builtins that failed, so that what depends on them is undefined"
        yield from (f"  {e.file}:{e.row}{_GAP}{_one_line(e.message)}" for e in errors[:_ERRORS])
        yield from more(errors, _ERRORS, "errors")


def _objection_lines(objection: Objection) -> Iterator[str]:
    verb = "holds" if objection.holds else "does not hold"
    yield f"{objection.file}:{objection.row}"
    yield f"  {verb}: {_one_line(objection.text)}"
    # A value derived from a whole object says more than the object.
    plain = [seen for seen in objection.saw if not (seen.value or "").startswith("{")]
    for seen in plain or objection.saw:
        is_there = "is not there" if seen.value is None else f"is {seen.value}"
        yield f"    {_one_line(seen.term)} {is_there}"


def _search(report: WhyReport) -> Iterator[str]:
    if (search := report.search) is None:
        return
    (result,) = report.cluster_results
    cluster, found = result.cluster, search.found
    if not found:
        yield f"no single change that was tried puts it on {cluster.name} ({_tries(search)})"
        return
    yield f"smallest change that puts it on {cluster.name} ({_tries(search)}, evaluated anew)"
    for number, decisive in enumerate(found):
        if number == 1:
            yield "others that do"
        yield f"  {_owner(report, result, decisive)}"
        yield f"    {decisive.change}"
        yield from (f"    {line}" for line in _effect(result, decisive))


def _effect(result: ClusterResult, decisive: DecisiveChange) -> Iterator[str]:
    yield f"then decided: {_names(decisive.decided)}"
    if (option := _what_if_option(result, decisive)) is not None:
        yield f"what else it moves: kube-sync what-if {option}"


def _what_if_option(result: ClusterResult, decisive: DecisiveChange) -> str | None:
    of_cluster = decisive.change.of == "cluster"
    return as_option(decisive.change, result.cluster.name) if of_cluster else None


def _owner(report: WhyReport, result: ClusterResult, decisive: DecisiveChange) -> str:
    if decisive.change.of == "cluster":
        return f"cluster {result.cluster}"
    return f"{report.resource} {report.key}"


def _tries(search: Search) -> str:
    tried = f"{search.tried} changes tried"
    left = search.possible - search.tried
    return f"{tried}, {left} more are beyond --tries" if left else f"{tried}, all there are"


def _search_document(report: WhyReport, search: Search) -> dict[str, Any]:
    (result,) = report.cluster_results
    return {
        "tried": search.tried,
        "possible": search.possible,
        "found": [
            {
                **decisive.change.document(),
                "decided": decisive.decided,
                "what_if": _what_if_option(result, decisive),
            }
            for decisive in search.found
        ],
    }


def _cluster_document(result: ClusterResult) -> dict[str, Any]:
    return {
        "namespace": result.cluster.namespace,
        "name": result.cluster.name,
        "chosen": result.chosen,
        "said": result.reason,
        "against": result.objections,
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
    texts = ("\n".join(map(plain, block)) for block in whole)
    return joined(text for text in texts if text)


def _short(lines: Iterable[str], width: int) -> Iterator[str]:
    return (cut(line, width) for line in lines)
