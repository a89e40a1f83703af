from __future__ import annotations

import json
from pathlib import Path

import pytest

from kube_sync.admission.engine_formats import DIALECTS
from kube_sync.admission.target import Target, target_of
from kube_sync.config import load_settings


def _target(folder: Path, text: str) -> Target:
    file = folder / "config.yaml"
    file.write_text(text)
    return target_of(load_settings(str(file), {}))


def test_without_a_word_opa_is_asked_for_the_placement(tmp_path: Path) -> None:
    target = _target(tmp_path, "opa: {url: 'https://opa:1/', token_file: /t, ca_file: /c}")
    assert target == Target(
        "https://opa:1/v1/data/io/k8s/federation/admission",
        DIALECTS["v1"],
        "/c",
        "/t",
        entry="https://opa:1/v1/data/kube_sync_stage/entry/answer",
        reviewed="https://opa:1/v1/data/kube_sync/batch/reviewed",
    )


@pytest.mark.parametrize(
    ("text", "entry"),
    [
        ("admission: {engine: {dialect: v0}}", "/v0/data/kube_sync_stage/entry/answer"),
        ("admission: {engine: {url: 'http://127.0.0.1:8181'}}", "/v1/data/kube_sync_stage/entry"),
        ("admission: {engine: {dialect: review}}", None),
        ("admission: {engine: {dialect: annotations}}", None),
        ("admission: {engine: {url: 'http://other:1'}}", None),
        ("admission: {engine: {path: /decide}}", None),
        ("EnforceSchedulingPolicy: {url: 'http://other:1/v1/data/x'}", None),
    ],
)
def test_canary_is_asked_for_only_where_the_replicators_opa_decides(
    tmp_path: Path, text: str, entry: str | None
) -> None:
    target = _target(tmp_path, text)
    assert [found is None for found in (target.entry, target.reviewed)] == [entry is None] * 2
    assert (entry or "") in (target.entry or "")


@pytest.mark.parametrize(
    ("engine", "url"),
    [
        ("url: 'http://e:1'", "http://e:1/v1/data/a/b"),
        ("url: 'http://e:1/x/', dialect: review", "http://e:1/x/v1/data/a/b"),
        ("dialect: v0", "http://127.0.0.1:8181/v0/data/a/b"),
        ("dialect: annotations", "http://127.0.0.1:8181/v1/data/a/b"),
        ("path: /decide", "http://127.0.0.1:8181/decide"),
        ("path: /decide, dialect: v0, url: 'http://e'", "http://e/decide"),
    ],
)
def test_the_path_is_that_of_the_placement_in_the_dialects_spelling(
    tmp_path: Path, engine: str, url: str
) -> None:
    text = f"placement: {{path: a/b}}\nadmission: {{engine: {{{engine}}}}}"
    assert _target(tmp_path, text).url == url


def test_the_engines_own_files_win_over_those_of_opa(tmp_path: Path) -> None:
    target = _target(
        tmp_path,
        """
        opa: {token_file: /t, ca_file: /c}
        admission: {engine: {token_file: /et, ca_file: /ec, cert_file: /cert, key_file: /key,
                             timeout_seconds: 0.5}}
        """,
    )
    assert (target.token_file, target.ca_file) == ("/et", "/ec")
    assert (target.cert_file, target.key_file, target.timeout_seconds) == ("/cert", "/key", 0.5)


@pytest.mark.parametrize(
    ("path", "dialect"),
    [
        ("/v1/data/io/k8s/federation/annotations", "annotations"),
        ("/v1/data/io/k8s/federation/annotations/", "annotations"),
        ("/v1/data/io/k8s/federation/admission?pretty=true", "v1"),
        ("/v0/data/kubernetes/placement", "v0"),
        ("/v0/data/kubernetes/annotations", "v0"),
        ("/decide", "v1"),
    ],
)
def test_the_designs_own_configuration_is_taken_as_it_is(
    tmp_path: Path, path: str, dialect: str
) -> None:
    own = {"url": f"https://opa:8181{path}", "token": "s3cret"}
    target = _target(tmp_path, json.dumps({"EnforceSchedulingPolicy": own}))
    assert target == Target(own["url"], DIALECTS[dialect], token="s3cret")
    assert "s3cret" not in repr(target)


def test_a_dialect_that_is_named_wins_over_what_the_path_says(tmp_path: Path) -> None:
    text = """
        EnforceSchedulingPolicy: {url: 'https://opa/v1/data/io/k8s/federation/annotations'}
        admission: {engine: {dialect: review}}
    """
    assert _target(tmp_path, text).dialect == DIALECTS["review"]


def test_a_password_in_the_url_is_not_shown() -> None:
    assert "s3cret" not in repr(Target("http://me:s3cret@opa/x", DIALECTS["v1"]))
