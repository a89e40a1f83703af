from __future__ import annotations

from typing import Annotated

import pytest

from kube_sync.config import LIVE, Settings, explained, fields, keys
from kube_sync.config.explanation import worded
from kube_sync.errors import Misconfigured

_KEYS = {key.path: key for key in keys()}


@pytest.mark.parametrize("path", _KEYS)
def test_every_key_has_a_sentence_that_says_what_it_does(path: str) -> None:
    text = _KEYS[path].text
    assert len(text) > 15
    assert text.rstrip().endswith(".")
    assert text[0] == text[0].upper() or text[0] == "`"


def test_keys_are_the_fields_of_the_settings_with_those_of_items() -> None:
    leaves = [key for key in keys() if not key.is_section]
    variables = {key.path: key.variable for key in leaves if key.variable is not None}
    assert variables == {field.path: field.variable for field in fields()}
    assert {key.path for key in leaves} - set(variables) == {
        f"replicate.resources[].{name}"
        for name in (
            "group",
            "version",
            "resource",
            "as",
            "label_selector",
            "field_selector",
            "namespaces",
            "ignore_namespaces",
            "fields",
            "secrets",
        )
    } | {
        f"scheduling.plugin_tolerations[].{name}" for name in ("key", "operator", "value", "effect")
    } | {f"topology.links[].{name}" for name in ("from", "to", "kind", "field")} | {
        f"placement.resources[].{name}" for name in ("name", "sinks")
    }


def test_sections_are_told_by_what_their_class_says() -> None:
    assert _KEYS["EnforceSchedulingPolicy"].is_section
    assert _KEYS["observe"].text.startswith("The server of /metrics, /livez and /readyz")


def test_what_may_be_and_the_default_are_in_words() -> None:
    assert _KEYS["remediate.namespaces"].words == (
        "mapping (name of a namespace: `off` | `dry-run` | `manual` | `enforce`)"
    )
    assert _KEYS["replicate.verify"].words == "share, 0 to 1"
    assert _KEYS["opa.token_file"].words == "path of a file, or null"
    assert _KEYS["admission.max_body_bytes"].default == "8388608"
    assert _KEYS["policy_sync.placers"].default == '["ocm"]'
    assert _KEYS["remediate.guard.placements"].default == "{}"
    assert _KEYS["replicate.resources[].group"].default is None
    assert _KEYS["replicate.resources"].default == (
        '[{"group":"multicluster.x-k8s.io","version":"v1alpha1","resource":"clusterprofiles",'
        '"as":"clusters","secrets":false},{"group":"apps","version":"v1",'
        '"resource":"replicasets","secrets":false}]'
    )


@pytest.mark.parametrize("kind", [float, Annotated[int, "no Meta"], set[str]])
def test_a_kind_of_value_without_words_is_named(kind: object) -> None:
    with pytest.raises(TypeError, match=r"words|description"):
        worded(kind)


def test_keys_that_are_followed_are_those_of_the_settings_that_are() -> None:
    live = {key.path for key in keys() if key.live}
    assert live >= LIVE
    assert "replicate.resources[].fields" in live
    assert "replicate.root" not in live
    # Or a misspelt one would ask for a restart for ever.
    assert {field.path for field in fields()} >= LIVE


def test_a_key_is_explained_with_its_default_and_variable() -> None:
    assert explained("placement.resources").splitlines()[:5] == [
        "placement.resources: list (each: text, or mapping)",
        "  " + _KEYS["placement.resources"].text,
        '  default: ["replicasets"]',
        "  variable: KUBE_SYNC_PLACEMENT_RESOURCES",
        "  live: replicate and run apply it without a restart",
    ]


def test_a_section_is_explained_with_all_that_is_in_it() -> None:
    told = explained("admission.engine")
    assert told.startswith("admission.engine\n  The policy engine")
    for name in Settings().admission.engine.__struct_fields__:
        assert f"\nadmission.engine.{name}: " in told
    assert "admission.registration" not in told
    assert "admission.engine.url" in explained("admission")


def test_an_item_is_explained_under_the_number_that_messages_give() -> None:
    told = explained("replicate.resources[0].group")
    assert told.startswith("replicate.resources[].group: text\n")
    assert "  required" in told
    assert "variable" not in told


def test_without_a_key_all_are_explained() -> None:
    assert [line for line in explained().splitlines() if line and line[0] != " "] == [
        path if key.is_section else f"{path}: {key.words}" for path, key in _KEYS.items()
    ]


@pytest.mark.parametrize(
    ("wrong", "near"),
    [
        ("admission.engin", "admission.engine"),
        ("opa.urll", "opa.url"),
        ("moves_burst", "remediate.guard.moves_burst"),
    ],
)
def test_a_wrong_key_is_an_error_that_names_near_ones(wrong: str, near: str) -> None:
    with pytest.raises(Misconfigured, match=rf"^{wrong}: unknown key; similar keys: ") as raised:
        explained(wrong)
    assert near in str(raised.value).partition("similar keys: ")[2].split(", ")


def test_a_key_that_nothing_is_near_to_is_told_where_to_look() -> None:
    with pytest.raises(Misconfigured, match=r"--explain` lists all$"):
        explained("zzzzzzzz")
