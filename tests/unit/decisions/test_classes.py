from __future__ import annotations

from dataclasses import replace

from kube_sync.decisions.classes import why_not_shared
from kube_sync.opa.analysis.result import FieldRead
from tests.fakes.fleet import reads

ELSEWHERE = FieldRead(("zones", None, "size"), whole=False, asked=())


def test_decision_that_reads_only_the_input_and_replicated_data_is_shared() -> None:
    assert why_not_shared(reads(("a",))) is None
    assert why_not_shared(None) is not None


def test_document_that_the_replicator_writes_is_no_obstacle() -> None:
    found = replace(reads(("a",)), foreign=(ELSEWHERE,))
    assert why_not_shared(found, [("zones",)]) is None
    assert why_not_shared(found, [("zones", "other")]) is not None
