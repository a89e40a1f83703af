from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kube_sync.decisions.decision import Decision, compact, parse_decision
from kube_sync.errors import Undecided
from tests.parts import examples

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


def test_an_answer_without_annotations_and_errors_decides_nothing() -> None:
    assert parse_decision(b"{}") == Decision()


def test_text_is_kept_word_for_word() -> None:
    text = ' {"b": 1,  "a": 2} '
    assert parse_decision(json.dumps({"annotations": {"k": text}}).encode()).annotations == {
        "k": text
    }


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (
            {"rebalance": True, "clusters": {"b": {"weight": 1}, "a": {"weight": 2}}},
            '{"clusters":{"a":{"weight":2},"b":{"weight":1}},"rebalance":true}',
        ),
        ([{"z": 1, "a": [None, "ü"]}], '[{"a":[null,"ü"],"z":1}]'),
        (3, "3"),
        (0.5, "0.5"),
        (False, "false"),
        ({}, "{}"),
        ([], "[]"),
    ],
)
def test_a_value_that_is_no_string_becomes_compact_json_with_sorted_keys(
    value: object, text: str
) -> None:
    answer = json.dumps({"annotations": {"k": value}}, indent=2).encode()
    assert parse_decision(answer).annotations == {"k": text}


_names = st.text("aB0", min_size=1, max_size=3)


@settings(max_examples=examples(50), suppress_health_check=[HealthCheck.too_slow])
@given(st.dictionaries(_names, json_values.filter(lambda v: v is not None), max_size=4))
def test_equal_answers_are_equal_text_however_they_are_spelt(annotations: dict[str, Any]) -> None:
    one = json.dumps({"annotations": annotations}, sort_keys=True)
    reverse = dict(reversed(annotations.items()))
    other = json.dumps({"annotations": reverse}, indent=1, ensure_ascii=False)
    decided = parse_decision(one.encode())
    assert decided == parse_decision(other.encode())
    assert list(decided.annotations) == sorted(annotations)
    for key, value in annotations.items():
        text = decided.annotations[key]
        assert text == value if isinstance(value, str) else json.loads(text) == value


def test_a_null_annotation_is_refused_by_name() -> None:
    """It would be stored as the text "null"."""
    with pytest.raises(Undecided, match="the policy's annotation team/x is null"):
        parse_decision(b'{"annotations":{"a":"b","team/x":null}}')


@pytest.mark.parametrize(
    "key", ["a", "A.b_c-1", "team.example.com/owner", "Team.io/x", "a" * 63, "p" * 253 + "/a"]
)
def test_keys_that_the_api_server_takes_are_taken(key: str) -> None:
    answer = json.dumps({"annotations": {key: "v"}}).encode()
    assert parse_decision(answer).annotations == {key: "v"}


@pytest.mark.parametrize(
    "key",
    ["", "a b", "-a", "a-", "a/", "/a", "a/b/c", "_x/a", "ü", "a~b", "a" * 64, "p" * 254 + "/a"],
)
@pytest.mark.parametrize("field", ["annotations", "labels"])
def test_keys_that_the_api_server_refuses_are_refused_by_name(field: str, key: str) -> None:
    """Its own answer would be about a patch that nobody wrote."""
    with pytest.raises(Undecided) as raised:
        parse_decision(json.dumps({field: {key: "v"}}).encode())
    assert repr(key) in str(raised.value)


def test_where_kube_sync_keeps_requests_no_policy_writes() -> None:
    with pytest.raises(Undecided, match="is where kube-sync keeps what was asked for"):
        parse_decision(b'{"annotations":{"kube-sync.io/requested":"{}"}}')


@pytest.mark.parametrize("value", ["", "gold", "a.b_c-1", "x" * 63])
def test_labels_are_kept_word_for_word(value: str) -> None:
    answer = json.dumps({"labels": {"team.io/tier": value}}).encode()
    assert parse_decision(answer) == Decision(labels={"team.io/tier": value})


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (1, "the policy's label tier is a number, not a string"),
        (True, "the policy's label tier is a boolean, not a string"),
        (None, "the policy's label tier is null, not a string"),
        ({"a": 1}, "the policy's label tier is an object, not a string"),
        ("a b", "the policy's label tier has no value that a label can have: 'a b'"),
        ("-a", "the policy's label tier has no value that a label can have: '-a'"),
        ("a\n", "the policy's label tier has no value that a label can have: 'a\\n'"),
        ("x" * 64, "the policy's label tier has no value that a label can have: 'xxx"),
    ],
)
def test_what_no_label_can_be_is_refused_by_name(value: object, reason: str) -> None:
    with pytest.raises(Undecided) as raised:
        parse_decision(json.dumps({"labels": {"tier": value}}).encode())
    assert str(raised.value).startswith(reason)


def test_a_label_key_has_its_prefix_in_lower_case() -> None:
    with pytest.raises(Undecided, match="Team"):
        parse_decision(b'{"labels":{"Team.io/x":"v"}}')


def test_a_policy_says_that_a_workload_may_be_left_without_a_cluster() -> None:
    assert parse_decision(b'{"evict":true}') == Decision(evict=True)
    assert not parse_decision(b"{}").evict


def test_warnings_are_kept_in_order_and_other_values_become_text() -> None:
    answer = b'{"warnings":["second","first",{"b":1,"a":2}]}'
    assert parse_decision(answer) == Decision(warnings=("second", "first", '{"a":2,"b":1}'))


def test_errors_are_kept_in_order_and_other_values_become_text() -> None:
    answer = b'{"errors":["second","first",{"b":1,"a":2},null]}'
    assert parse_decision(answer).errors == ("second", "first", '{"a":2,"b":1}', "null")


def test_helper_rules_of_the_policy_are_ignored() -> None:
    """A query for a package returns every rule in it."""
    assert parse_decision(b'{"pci_clusters":["a"],"allow":null}') == Decision()


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"null", "the policy's answer is null, not an object"),
        (b"true", "the policy's answer is a boolean, not an object"),
        (b'"x"', "the policy's answer is a string, not an object"),
        (b"[]", "the policy's answer is an array, not an object"),
        (b"1.5", "the policy's answer is a number, not an object"),
        (b"{", "the policy's answer is not JSON"),
        (b"", "the policy's answer is not JSON"),
        (b"[" * 100_000, "the policy's answer is not JSON"),
        (b'{"annotations":[]}', "the policy's `annotations` are an array, not an object"),
        (b'{"annotations":null}', "the policy's `annotations` are null, not an object"),
        (b'{"annotations":1}', "the policy's `annotations` are a number, not an object"),
        (b'{"errors":{}}', "the policy's `errors` are an object, not an array"),
        (b'{"errors":"no"}', "the policy's `errors` are a string, not an array"),
        (b'{"labels":[]}', "the policy's `labels` are an array, not an object"),
        (b'{"evict":1}', "the policy's `evict` is a number, not a boolean"),
        (b'{"warnings":null}', "the policy's `warnings` are null, not an array"),
    ],
)
def test_a_wrong_shape_is_no_decision_and_says_what_it_is(answer: bytes, reason: str) -> None:
    with pytest.raises(Undecided) as raised:
        parse_decision(answer)
    assert str(raised.value).startswith(reason)


def test_compact_writes_no_white_space_and_sorts_at_every_level() -> None:
    assert compact({"b": [{"d": 1, "c": 2}], "a": "x y"}) == '{"a":"x y","b":[{"c":2,"d":1}]}'


def test_reasons_are_read_by_cluster() -> None:
    answer = {"reasons": {"b": "near", "a": ["cheap", "certified"]}}
    assert list(parse_decision(json.dumps(answer).encode()).reasons.items()) == [
        ("a", "cheap; certified"),
        ("b", "near"),
    ]


@pytest.mark.parametrize("reasons", [7, None, ["a"], {"a": 7}, {"a": ["", None]}, {"a": {}}])
def test_reasons_of_any_other_shape_are_left_out_and_refuse_nothing(reasons: object) -> None:
    """What explains a decision must not turn it down."""
    answer = {"annotations": {"k": "v"}, "reasons": reasons}
    assert parse_decision(json.dumps(answer).encode()) == Decision({"k": "v"})


def test_what_a_policy_quotes_is_cut_and_what_is_too_much_is_counted() -> None:
    """An object may have annotations of 256 KiB, and there may be many such objects."""
    long = "x" * 3_000
    found = parse_decision(
        json.dumps({"errors": [long, *map(str, range(120))], "reasons": {"c": [long]}}).encode()
    )
    assert found.errors[0] == "x" * 1_999 + "…"
    assert found.errors[1:100] == tuple(map(str, range(99)))
    assert found.errors[100:] == ("and 21 more",)
    assert found.reasons == {"c": "x" * 1_999 + "…"}
