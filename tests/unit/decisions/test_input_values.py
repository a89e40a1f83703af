from __future__ import annotations

from typing import Any

from kube_sync.decisions.input_values import LONGEST, MOST, inputs
from kube_sync.opa.analysis.paths import EACH, Path
from kube_sync.opa.analysis.result import Ask, Document, FieldRead

ASK = Ask("p.rego", "errors", 7, "printed", whole=True)


def _read(body: dict[str, Any], *paths: Path) -> dict[str, str | None]:
    fields = tuple(FieldRead(path, whole=False, asked=(ASK, ASK)) for path in paths)
    return {one.path: one.value for one in inputs(body, Document(fields, used=True))}


def test_values_of_what_is_read_are_told_and_nothing_else() -> None:
    body = {"kind": "X", "spec": {"a": 1, "b": [{"n": "x", "m": 2}, {"n": "y"}]}, "other": 1}
    assert _read(body, ("kind",), ("spec", "a"), ("spec", "b", EACH, "n"), ("spec", "c")) == {
        "kind": '"X"',
        "spec.a": "1",
        "spec.b[*].n": '["x","y"]',
        "spec.c": None,
    }
    assert _read({"spec": 1}, ("spec", "a"), ("spec", EACH)) == {"spec.a": None, "spec[*]": None}
    assert _read({"a": {"b": 1, "c": 2}}, ("a", EACH)) == {"a[*]": "[1,2]"}


def test_who_reads_is_told_once_with_file_and_row() -> None:
    nobody = Ask("", "", None, "what was asked for is put back")
    field = FieldRead(("kind",), whole=True, asked=(ASK, ASK, nobody, Ask("q", "r", None, "w")))
    (one,) = inputs({}, Document((field,)))
    assert (one.asked, one.whole) == (("p.rego:7 errors", "q r"), True)


def test_the_note_of_requests_is_no_input() -> None:
    body = {"metadata": {"annotations": {"kube-sync.io/requested": "{}"}}}
    assert _read(body, ("metadata", "annotations", "kube-sync.io/requested")) == {}


def test_long_values_are_cut() -> None:
    found = _read({"a": "x" * 5000, "b": list(range(500))}, ("a",), ("b", EACH))
    assert (len(found["a"] or ""), (found["a"] or "")[-1]) == (LONGEST, "…")
    assert (found["b[*]"] or "").count(",") == MOST - 1


def test_what_a_secret_keeps_is_never_told() -> None:
    secret = "c2VjcmV0"
    annotations = {"kubectl.kubernetes.io/last-applied-configuration": secret, "team": "blue"}
    body = {
        "kind": "Secret",
        "data": {"password": secret},
        "stringData": {"password": secret},
        "metadata": {"name": "s", "annotations": annotations},
    }
    metadata = ("metadata", "annotations")
    found = _read(
        body,
        (),
        (EACH,),
        ("data",),
        ("data", "password"),
        ("stringData", EACH),
        ("metadata",),
        metadata,
        (*metadata, "kubectl.kubernetes.io/last-applied-configuration"),
        (*metadata, "team"),
    )
    assert found.pop("metadata.annotations.team") == '"blue"'
    assert set(found.values()) == {"(a Secret's, not shown)"}
    assert len(found) == 8
    assert _read({**body, "kind": "Other"}, ("data", "password")) == {
        "data.password": f'"{secret}"'
    }
