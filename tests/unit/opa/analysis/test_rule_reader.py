from __future__ import annotations

from collections.abc import Sequence

import pytest

from kube_sync.opa.analysis.context import Context, Name
from kube_sync.opa.analysis.handed import Level
from kube_sync.opa.analysis.paths import EACH, Key, Path
from kube_sync.opa.analysis.rule_reader import Asker, Reader
from kube_sync.opa.analysis.values import OPAQUE, SCALAR, Box, Place, Row, Text, Values

CONTEXT = Context(SCALAR).mocking(("count",), OPAQUE)


def at(*path: Key) -> Values:
    return frozenset([Place("input", path)])


class Policies:
    """A World of one function, `data.f` of one argument, which notes what is read."""

    def __init__(self) -> None:
        self.needs: list[tuple[Path, Level, str]] = []
        self.used: list[str] = []
        self.called: list[tuple[Path, Context]] = []

    def need(self, place: Place, level: Level, why: str, _asker: Asker) -> None:
        self.needs.append((place.path, level, why))

    def use(self, builtin: str, _asker: Asker) -> None:
        self.used.append(builtin)

    def document(self, keys: Sequence[tuple[Key, ...]], _context: Context) -> Values:
        return at("document", *(key for (key,) in keys))

    def arity(self, function: Path) -> int | None:
        return 1 if function == ("f",) else None

    def call(self, function: Path, _arguments: Sequence[Values], context: Context) -> Values:
        self.called.append((function, context))
        return at("returned")


@pytest.fixture
def world() -> Policies:
    return Policies()


@pytest.fixture
def reader(world: Policies) -> Reader:
    return Reader(world, Asker("m", "p", 1))


def test_what_a_value_is_made_of_is_read_only_where_it_is_read_whole(
    world: Policies, reader: Reader
) -> None:
    box = Box((("a", at("member")),), at("rest"))
    made: Values = frozenset([Row((at("item"),)), box, Text("t")])
    reader.need(made, Level.SHAPE, "tested")
    assert world.needs == []
    reader.need(made, Level.WHOLE, "returned")
    assert {path for path, _, _ in world.needs} == {("item",), ("member",), ("rest",)}


@pytest.mark.parametrize(
    ("function", "size"),
    [
        ("data.f", 1),
        ("data.g", None),
        ("contains", 2),
        ("object.get", 3),
        ("neq", 2),
        ("sprintf", None),
    ],
)
def test_number_of_arguments_is_known_of_rules_and_of_some_builtins(
    reader: Reader, function: str, size: int | None
) -> None:
    assert reader.size(tuple(function.split("."))) == size


@pytest.mark.parametrize(
    ("function", "level"),
    [("lower", Level.SHAPE), ("sprintf", Level.WHOLE), ("object.get", Level.WHOLE)],
)
def test_builtin_reads_its_arguments_as_far_as_it_is_known(
    world: Policies, reader: Reader, function: str, level: Level
) -> None:
    """One that is given another number of arguments is not what is known."""
    found = reader.apply(tuple(function.split(".")), [at("a")], reader.size((function,)), CONTEXT)
    assert (found, world.used) == (OPAQUE, [function])
    assert world.needs == [(("a",), level, function)]


def test_builtin_that_hands_on_a_part_returns_that(world: Policies, reader: Reader) -> None:
    key: Values = frozenset([Text("k")])
    found = reader.apply(("object", "get"), [at("a"), key, SCALAR], 3, CONTEXT)
    assert at("a", "k") <= found
    assert (("a",), Level.SHAPE, "object.get") in world.needs


def test_comparison_reads_documents_whole_but_beside_a_scalar(
    world: Policies, reader: Reader
) -> None:
    reader.apply(("lt",), [at("a"), SCALAR], 2, CONTEXT)
    reader.apply(("lt",), [at("b"), at("c")], 2, CONTEXT)
    levels = {path: level for path, level, _ in world.needs}
    assert levels == {("a",): Level.SHAPE, ("b",): Level.WHOLE, ("c",): Level.WHOLE}


def test_function_of_policies_is_called(world: Policies, reader: Reader) -> None:
    assert reader.apply(("data", "f"), [SCALAR], 1, CONTEXT) == at("returned")
    assert (world.called, world.used) == ([(("f",), CONTEXT)], [])


@pytest.mark.parametrize(
    ("instead", "found"),
    [
        (("data", "f"), at("returned")),
        (("data", "rule"), at("document", "rule")),
        (("lower",), OPAQUE),
    ],
)
def test_what_stands_for_a_function_calls_functions_as_they_are(
    world: Policies, reader: Reader, instead: Name, found: Values
) -> None:
    assert reader.apply_instead(instead, [SCALAR], 1, CONTEXT) == found
    assert {context for _, context in world.called} <= {CONTEXT.unmocked()}


def test_elements_of_sets_and_keys_of_objects_are_compared(world: Policies, reader: Reader) -> None:
    assert reader.set_of(at("element")) == frozenset([Box(rest=at("element"))])
    assert reader.member(at("key"), SCALAR) == frozenset([Box(rest=SCALAR)])
    assert [(path, level) for path, level, _ in world.needs] == [
        (("element",), Level.WHOLE),
        (("key",), Level.WHOLE),
    ]
    known: Values = frozenset([Text("k")])
    assert reader.member(known, SCALAR) == frozenset([Box(members=(("k", SCALAR),))])


def test_document_is_overlaid_at_a_path_or_whole(world: Policies, reader: Reader) -> None:
    assert reader.overlaid(at(), (), SCALAR) == SCALAR
    assert world.needs == []
    inner: Values = frozenset([Box(members=(("b", SCALAR),))])
    outer: Values = frozenset([Box(members=(("a", inner),))])
    assert reader.overlaid(at(), ("a", "b"), SCALAR) == at() | outer
    assert world.needs == [((), Level.SHAPE, "with input")]
    assert EACH not in world.needs[0][0]
