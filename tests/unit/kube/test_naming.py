"""What names mean before anybody looks which objects there are."""

from __future__ import annotations

import pytest

from kube_sync.errors import Misconfigured
from kube_sync.kube.naming import (
    Named,
    is_built_in,
    lying_in,
    read,
    reference,
    refused,
    spellings,
    spelt,
    within,
)
from kube_sync.objects import GroupVersionResource, ObjectKey

REPLICASETS = GroupVersionResource("apps", "v1", "replicasets")
POLICIES = GroupVersionResource("example.com", "v1", "netpolicies")


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        ([], []),
        (["rs"], [[("rs", None, None)]]),
        (["rs", "web", "shop/api"], [[("rs", None, "web")], [("rs", "shop", "api")]]),
        (["web", "api"], [[(None, None, "web")], [(None, None, "api")]]),
        (["rs/web"], [[("rs", None, "web"), (None, "rs", "web")]]),
        (["rs/shop/web"], [[("rs", "shop", "web")]]),
    ],
)
def test_words_are_read_as_kubectl_reads_them(words: list[str], meant: list[object]) -> None:
    found = read(words, lambda word: word == "rs")
    assert [[(one.kind, one.namespace, one.name) for one in of] for of in found] == meant


@pytest.mark.parametrize("words", [["a//b"], ["/web"], ["rs/"], ["a/b/c/d"], ["rs", "a/b/c"]])
def test_words_that_name_nothing_are_said_with_an_example(words: list[str]) -> None:
    with pytest.raises(Misconfigured, match=r"expected .*, as in replicaset"):
        read(words, lambda word: word == "rs")


def test_namespace_of_the_command_line_has_to_be_that_of_the_name() -> None:
    both = reference("ml/train")
    assert within(both, None) == within(both, "ml") == both
    assert within(both, "shop") == both[:1]
    with pytest.raises(Misconfigured, match="a/ml/b: it is in namespace ml, and -n says shop"):
        within(reference("a/ml/b"), "shop")


@pytest.mark.parametrize(
    "kind",
    ["rs", "replicaset", "replicasets", "replicasets.apps", "rs.apps", "replicasets.v1.apps"],
)
def test_kind_is_called_what_kubectl_calls_it(kind: str) -> None:
    assert kind in spellings(REPLICASETS)
    assert is_built_in(kind.title())
    assert Named("", kind.upper(), None, "web").means(REPLICASETS, ObjectKey("shop", "web"))


def test_kind_that_is_not_built_in_has_a_singular_too() -> None:
    assert {"netpolicy", "netpolicies.example.com"} <= spellings(POLICIES)
    assert not is_built_in("netpolicy")


def test_name_that_is_printed_is_one_that_is_taken() -> None:
    key = ObjectKey("shop", "web")
    assert spelt(REPLICASETS, key, in_namespace=True) == "replicasets.apps/web"
    for gvr in (REPLICASETS, GroupVersionResource("", "v1", "pods")):
        (one,) = reference(spelt(gvr, key))
        assert one.means(gvr, key)
        assert not one.means(gvr, ObjectKey("other", "web"))


def test_kind_that_is_not_decided_is_said_with_what_would_be_right() -> None:
    assert refused("pod/web", "pod", ["replicasets"]).endswith("replicasets, as in replicasets/web")
    assert refused("pods", "pods", ["replicasets"]).endswith("but about replicasets")
    assert refused("pod/web", "pod", []) == "pod/web: decisions are not about pod, but about "


def test_namespace_of_a_context_is_that_of_names_without_one() -> None:
    found = lying_in(reference("ml/train"), "shop")
    assert [(one.kind, one.namespace, one.name) for one in found] == [
        ("ml", "shop", "train"),
        (None, "ml", "train"),
    ]
