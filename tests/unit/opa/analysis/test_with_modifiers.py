from __future__ import annotations

import pytest

from kube_sync.opa.analysis.bindings import Bindings, Kind, Source
from kube_sync.opa.analysis.context import Context
from kube_sync.opa.analysis.handed import Level
from kube_sync.opa.analysis.rule_reader import Asker, Reader
from kube_sync.opa.analysis.syntax import Items, Ref, Scalar, Term, Unreadable, Var, With
from kube_sync.opa.analysis.values import OPAQUE, SCALAR, Box, Text, Values
from kube_sync.opa.analysis.with_modifiers import WithModifiers, Withs
from tests.unit.opa.analysis.test_rule_reader import Policies, at

INPUT = at()


def _text(text: str) -> Scalar:
    return Scalar("string", text)


def _ref(text: str) -> Ref:
    head, *parts = text.split(".")
    return Ref(Var(head), tuple(_text(part) for part in parts))


def _with(target: str, value: Term | None = None) -> With:
    return With(_ref(target), value or _text("v"))


class World:
    def __init__(self) -> None:
        self.policies = Policies()
        self.bindings = Bindings()
        self.asked: list[Withs] = []
        reader = Reader(self.policies, Asker("m", "p", 1))
        self.contexts = WithModifiers(Context(INPUT), reader, self.bindings, self._value)

    def _value(self, term: Term, withs: Withs) -> Values:
        self.asked.append(withs)
        return frozenset([Text(term.text or "")]) if isinstance(term, Scalar) else OPAQUE

    def within(self, *modifiers: With) -> Context:
        return self.contexts.within((modifiers,))


@pytest.fixture
def world() -> World:
    return World()


def test_without_with_the_context_is_that_of_the_body(world: World) -> None:
    assert world.contexts.within(()) == Context(INPUT)


def test_input_is_replaced_whole_or_below_a_path(world: World) -> None:
    value: Values = frozenset([Text("v")])
    assert world.within(_with("input")).input == value
    below: Values = frozenset([Box(members=(("a", value),))])
    assert world.within(_with("input.a")).input == INPUT | below


def test_data_is_replaced_by_what_nobody_knows(world: World) -> None:
    assert world.within(_with("data.kube", _ref("input"))).replaced == {("kube",)}


@pytest.mark.parametrize(
    ("target", "function"),
    [("data.f", ("data", "f")), ("count", ("count",)), ("http.send", ("http", "send"))],
)
def test_function_is_replaced_by_another_one_or_a_value(
    world: World, target: str, function: tuple[str, ...]
) -> None:
    instead = world.within(_with(target, _ref("data.g"))).mock(function)
    assert instead == ("data", "g")
    assert world.within(_with(target)).mock(function) == frozenset([Text("v")])


def test_lines_are_applied_from_the_outermost_and_values_are_of_the_line_around(
    world: World,
) -> None:
    outer, inner = (_with("input"),), (_with("data.kube"), _with("count"))
    found = world.contexts.within((outer, inner))
    assert found.replaced == {("kube",)}
    assert found.input == frozenset([Text("v")])
    assert world.asked == [(), (outer,), (outer,)]
    assert world.contexts.within((outer, inner)) is found


def test_only_functions_may_be_other_functions(world: World) -> None:
    targets = {"input.a": False, "data.kube": False, "data.f": True, "count": True}
    found = {target: world.contexts.may_mock(((_with(target),),)) for target in targets}
    assert found == targets
    assert not world.contexts.may_mock(())


def test_mocks_of_the_body_hold_on_all_its_lines(world: World) -> None:
    context = Context(INPUT).mocking(("count",), SCALAR)
    reader = Reader(world.policies, Asker("m", "p", 1))
    contexts = WithModifiers(context, reader, world.bindings, lambda *_: OPAQUE)
    assert contexts.may_mock(())


def test_what_nobody_can_follow_cannot_be_read(world: World) -> None:
    world.bindings.add("x", Source(Kind.VALUE, (), lambda: SCALAR))
    computed = Ref(Var("data"), (Var("x"),))
    nameless = Ref(Items("array", ()), ())
    for modifier, reason in (
        (With(computed, _text("v")), "computed"),
        (With(nameless, _text("v")), "no name"),
        (_with("count", _ref("x.f")), "by a reference"),
        (_with("count", _ref("input.f")), "by a reference"),
    ):
        with pytest.raises(Unreadable, match=reason):
            world.within(modifier)


def test_what_replaces_data_is_read_whole(world: World) -> None:
    reader = Reader(world.policies, Asker("m", "p", 1))
    contexts = WithModifiers(Context(INPUT), reader, world.bindings, lambda *_: at("a"))
    contexts.within(((_with("data.kube"),),))
    assert world.policies.needs == [(("a",), Level.WHOLE, "with data")]
