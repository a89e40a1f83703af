from __future__ import annotations

from dataclasses import replace

from kube_sync.opa.analysis.result import Ask, Document, FieldRead, Reads, joined

ONE, TWO = Ask("one", "r", 1, "read"), Ask("two", "r", 1, "read")


def document(*paths: str, ask: Ask = ONE, whole: bool = False, used: bool = True) -> Document:
    fields = tuple(FieldRead(tuple(p.split(".")), whole, (ask,)) for p in paths)
    return Document(fields, used=used)


def reads(document_: Document, **more: object) -> Reads:
    return Reads(document_, {"things": document_}, (), {}, **more)  # type: ignore[arg-type]


def test_joined_reads_are_what_either_reads() -> None:
    both = joined(reads(document("a.b", "c")), reads(document("a", "d", ask=TWO)))
    assert both.input.paths == (("a",), ("c",), ("d",))
    assert both.resources["things"] == both.input


def test_field_that_both_read_is_asked_for_by_both() -> None:
    (field,) = joined(reads(document("a")), reads(document("a", ask=TWO, whole=True))).input.fields
    assert (field.asked, field.whole) == ((ONE, TWO), True)


def test_joined_is_used_impure_or_given_up_where_either_is() -> None:
    one = replace(reads(document(used=False)), beside=reads(document("limits")))
    two = replace(reads(document(used=True)), impure={"time.now_ns": (ONE,)}, gave_up="why")
    for both in (joined(one, two), joined(two, one)):
        assert both.input.used
        assert both.gave_up == "why"
        assert set(both.impure) == {"time.now_ns"}
    assert joined(one, two).beside == one.beside


def test_resource_of_one_alone_is_read_as_it_is() -> None:
    other = replace(reads(document("a")), resources={"clusters": document("b")})
    both = joined(reads(document("a")), other)
    assert both.resources == {"things": document("a"), "clusters": document("b")}
