"""The contexts that `with` makes within one rule body.

Invariant: each of several modifiers of one line sees the replacements of those before it; the
values of the modifiers are evaluated in the context around that line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

from kube_sync.opa.analysis.bindings import Bindings
from kube_sync.opa.analysis.context import Context, Name
from kube_sync.opa.analysis.handed import Level
from kube_sync.opa.analysis.rule_reader import Reader
from kube_sync.opa.analysis.syntax import Ref, Scalar, Term, Unreadable, Var, With
from kube_sync.opa.analysis.values import Values

Withs = tuple[tuple[With, ...], ...]  # of the lines around an expression, outermost first


class WithModifiers:
    """The contexts of one body, by the `with` modifiers around an expression."""

    def __init__(
        self,
        context: Context,
        reader: Reader,
        bindings: Bindings,
        value: Callable[[Term, Withs], Values],
    ) -> None:
        """Keep the context of the body; `value` returns the possible values of a term."""
        self._context = context
        self._reader = reader
        self._bindings = bindings
        self._value = value
        self._known: dict[Withs, Context] = {}

    def within(self, withs: Withs) -> Context:
        """Return the context of an expression under these modifiers."""
        if not withs:
            return self._context
        if withs not in self._known:
            *outer, last = withs
            context = self.within(tuple(outer))
            for modifier in last:
                value = partial(self._value, modifier.value, tuple(outer))
                context = self._replace(context, modifier, value)
            self._known[withs] = context
        return self._known[withs]

    def _replace(self, context: Context, modifier: With, value: Callable[[], Values]) -> Context:
        path = tuple(_spelt(modifier.target.parts))
        match modifier.target.head:
            case Var("input"):
                return replace(context, input=self._reader.overlaid(context.input, path, value()))
            case Var("data") if self._reader.world.arity(path) is None:
                self._reader.need(value(), Level.WHOLE, "with data")
                return replace(context, replaced=context.replaced | {path})
            case Var(head):
                return context.mocking((head, *path), self._named(modifier.value) or value())
            case _:
                msg = "a with whose target is no name"
                raise Unreadable(msg)

    def _named(self, term: Term) -> Name | None:
        """Return the function or rule that a term names, None if the term is a value.

        OPA moves any other reference to a function into a variable when it compiles.
        """
        match term:
            case Ref(Var(head), parts) if head != "input" and not self._bindings.is_bound(head):
                return (head, *_spelt(parts))
            case Ref():
                msg = "a with that replaces a function by a reference"
                raise Unreadable(msg)
            case _:
                return None

    def may_mock(self, withs: Withs) -> bool:
        """Return whether a line under these modifiers may call another function than it names."""
        targets = (modifier.target for line in withs for modifier in line)
        return bool(self._context.mocks) or any(map(self._is_function, targets))

    def _is_function(self, target: Ref) -> bool:
        if target.head == Var("data"):
            return self._reader.world.arity(tuple(_spelt(target.parts))) is not None
        return target.head != Var("input")


def _spelt(parts: Sequence[Term]) -> Iterator[str]:
    for part in parts:
        if not isinstance(part, Scalar) or part.text is None:
            msg = "a with whose target is computed"
            raise Unreadable(msg)
        yield part.text
