"""What an analysis of policies finds, for code scanning."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kube_sync.inspect.sarif import report
from kube_sync.inspect.survey.findings import Finding, documents
from kube_sync.opa.analysis.result import shown


def findings(found: Sequence[Finding], most: int | None) -> Iterator[report.Finding]:
    """Yield the findings; `most`: how many fields may be read whole, None: any number."""
    for one in found:
        if one.defined and one.reads.gave_up is not None:
            rule = one.reads.blamed
            at = ("", 0) if rule is None else (rule.module, rule.row or 0)
            yield report.Finding("analyze/everything", one.reads.gave_up, *at)
        elif most is not None and one.whole > most:
            yield from _whole(one)
    yield from report.of_warnings(warning for one in found for warning in one.warnings)


def _whole(found: Finding) -> Iterator[report.Finding]:
    """Yield each field that is read whole, at the rules that read it."""
    for name, document in documents(found.reads):
        for field in document.fields:
            for ask in field.asked if field.whole else ():
                if ask.whole:
                    message = f"{name}: {shown(field.path)} is read whole: {ask.why}"
                    yield report.Finding("analyze/whole", message, ask.module, ask.row or 0)
