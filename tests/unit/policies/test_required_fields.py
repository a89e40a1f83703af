from __future__ import annotations

from dataclasses import replace

from structlog.testing import capture_logs

from kube_sync.opa.analysis.analyzer import PolicyModule, analyze
from kube_sync.opa.analysis.result import Collection
from kube_sync.policies.required_fields import WHOLE, Extent, Form, Need
from tests.fakes.compiler import reading, tree_of

ROOTS = {
    "clusters": Collection(("kubernetes", "clusters")),
    "nodes": Collection(("kubernetes", "nodes"), namespaced=False),
}


def need(*paths: str, roots: dict[str, Collection] | None = None) -> Need:
    module = PolicyModule("policy.rego", tree_of(reading(*paths)))
    found = ROOTS if roots is None else roots
    return Need(analyze([module], "io/k8s/federation/admission", found), found)


A = need("input.a", "data.kubernetes.clusters.*.*.spec.a")
B = need("input.b", "data.kubernetes.clusters.*.*.spec.b")


def form(extent: Extent, name: str = "clusters", *, target: bool = False) -> Form:
    return extent.form(name, target=target)


def test_what_may_come_is_held_beside_what_may_be_there() -> None:
    extent = Extent()
    assert not extent.known
    extent.may_come([A])
    assert form(extent) == Form((("spec", "a"),), namespaced=True)
    extent.may_come([B, A])
    assert form(extent) == Form((("spec", "a"), ("spec", "b")), namespaced=True)


def test_what_only_limits_read_is_held_too_and_makes_no_input() -> None:
    module = PolicyModule("b", tree_of(reading("data.kubernetes.clusters.*.*.spec.c")))
    beside = analyze([module], "io/k8s/federation/admission", ROOTS)
    both = Need(replace(A.reads, beside=beside), ROOTS)
    assert both.of("clusters", target=False).paths == (("spec", "a"), ("spec", "c"))
    assert both.of("clusters", target=True).paths == (("a",), ("spec", "a"), ("spec", "c"))
    assert both.reads.input.paths == (("a",),)
    extent = Extent()
    extent.may_come([both])
    (said,) = extent.asked("clusters", A.of("clusters", target=True), target=True)
    assert said.startswith("spec.c: b")


def test_limits_that_could_not_be_analysed_read_everything() -> None:
    beside = analyze([PolicyModule("p", {})], "x", ROOTS)
    assert Need(replace(A.reads, beside=beside), ROOTS).of("clusters", target=False) == WHOLE


def test_what_is_in_force_alone_is_all_that_is_held() -> None:
    extent = Extent()
    extent.may_come([A, B])
    extent.is_in_force(B)
    assert form(extent) == Form((("spec", "b"),), namespaced=True)


def test_target_is_read_as_input_too() -> None:
    extent = Extent()
    extent.may_come([A])
    assert form(extent, target=True).paths == (("a",), ("spec", "a"))


def test_resource_that_nothing_reads_keeps_its_names() -> None:
    extent = Extent()
    extent.may_come([A])
    assert form(extent, "nodes") == Form((), namespaced=False)
    assert form(extent, "nodes").count == 0


def test_set_that_nobody_knows_needs_everything() -> None:
    extent = Extent()
    extent.may_come([A, None])
    assert form(extent) == WHOLE
    assert form(extent, target=True).count == -1


def test_set_that_could_not_be_analysed_needs_everything() -> None:
    given_up = Need(analyze([PolicyModule("p", {})], "x", ROOTS), ROOTS)
    assert given_up.of("clusters", target=False) == WHOLE


def test_resource_that_nobody_knew_is_whole_and_that_is_told_once() -> None:
    extent = Extent()
    extent.may_come([need("input.a", roots={})])
    with capture_logs() as logs:
        assert form(extent) == form(extent, target=True) == WHOLE
    assert [line["event"] for line in logs] == ["resource_not_analysed"]


def test_resource_that_lay_elsewhere_for_another_set_is_whole() -> None:
    """Their paths begin at different levels."""
    extent = Extent()
    elsewhere = Collection(("kubernetes", "clusters"), namespaced=False)
    extent.may_come([A, need("input.a", roots={"clusters": elsewhere})])
    assert form(extent) == WHOLE


def test_form_holds_what_keeps_less_and_no_other() -> None:
    one, both = Form((("a",),), namespaced=True), Form((("a",), ("b",)), namespaced=True)
    assert both.holds(one)
    assert both.holds(both)
    assert not one.holds(both)
    assert WHOLE.holds(one)
    assert not one.holds(WHOLE)
    assert not both.holds(Form((("a",),), namespaced=False))


def test_form_without_some_fields_has_nothing_at_or_below_them() -> None:
    found = Form((("data",), ("data", "a"), ("type",), (None, "x")), namespaced=True)
    assert found.without(["data"]) == Form((("type",), (None, "x")), namespaced=True)
    assert WHOLE.without(["data"]) == WHOLE


def test_what_is_kept_out_is_not_said_to_be_asked_for() -> None:
    extent = Extent()
    extent.may_come([need("input.data.a", "input.type")])
    beyond, within = Form((), namespaced=True), Form((("type",),), namespaced=True)
    (asked,) = extent.asked("clusters", beyond, target=True, within=within)
    assert asked.startswith("type: ")


def test_who_asked_for_more_is_named_with_a_few_fields() -> None:
    extent = Extent()
    extent.may_come([None, need(*(f"input.{name}" for name in "abcdefgh"))])
    beyond = Form((("a",),), namespaced=True)
    asked = extent.asked("clusters", beyond, target=True)
    assert len(asked) == 5
    assert asked[0].startswith("b: policy.rego admission")
    assert extent.asked("unknown", beyond, target=False) == []
