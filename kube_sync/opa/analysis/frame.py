"""Evaluates one rule body abstractly: the values of its variables, and what it reads of them.

Invariant: the presence and type of every reference of a body count as read, in whatever order OPA
evaluates; a value that is compared, or passed to an unknown builtin, is read whole. The World
evaluates the rules behind a reference.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from kube_sync.opa.analysis import builtins
from kube_sync.opa.analysis.bindings import Bindings, Kind, Scope, Source
from kube_sync.opa.analysis.context import Context, Name
from kube_sync.opa.analysis.handed import Level
from kube_sync.opa.analysis.paths import EACH, Key
from kube_sync.opa.analysis.rule_reader import Asker, Reader, World
from kube_sync.opa.analysis.syntax import (
    Body,
    Call,
    Clause,
    Closure,
    Every,
    Expr,
    Items,
    Logic,
    Pairs,
    Ref,
    Scalar,
    Term,
    Var,
    With,
)
from kube_sync.opa.analysis.values import (
    OPAQUE,
    SCALAR,
    Box,
    Row,
    Text,
    Values,
    keys_of,
    possible_keys,
    select,
    union,
)
from kube_sync.opa.analysis.variables import names_of, pattern_names
from kube_sync.opa.analysis.with_modifiers import WithModifiers, Withs


@dataclass(frozen=True, slots=True)
class _At:
    scope: Scope = ()
    withs: Withs = ()

    def under(self, withs: tuple[With, ...]) -> _At:
        return replace(self, withs=(*self.withs, withs)) if withs else self


# A term, by its identity, and the `with` modifiers around it.
_Known = tuple[int, Withs]


class Frame:
    """One rule body with its arguments, in one context."""

    def __init__(
        self,
        world: World,
        clause: Clause,
        asker: Asker,
        context: Context,
        arguments: Sequence[Values],
    ) -> None:
        self.reader = Reader(world, asker)
        self._bindings = Bindings()
        self._contexts = WithModifiers(context, self.reader, self._bindings, self._there)
        self._lines: list[tuple[Expr, _At]] = []
        self._known: dict[_Known, Values] = {}
        self._open: set[_Known] = set()
        self._cut = False
        self._scopes = 0
        self._closures: dict[_Known, _At] = {}
        for term, values in zip(clause.arguments, arguments, strict=True):
            self._receive(term, values)
        self._gather(clause.body, _At())
        self._occur(clause.value, _At())
        self._clause = clause

    def read(self) -> Values:
        """Record all reads of the body; return its value."""
        for line, at in self._lines:
            self._line(line, at)
        for compared in self._bindings.compared():
            self.reader.compare(compared)
        return self.value(self._clause.value)

    def value(self, term: Term) -> Values:
        """Return the possible values of a term of the head."""
        return self._value(term, _At())

    def _there(self, term: Term, withs: Withs) -> Values:
        return self._value(term, _At(withs=withs))

    def mention(self, term: Term) -> None:
        """Record the reads of a term of the head that is not its value."""
        self._occur(term, _At())

    def settled(self, given: Sequence[Term]) -> bool:
        """Return whether the head has one value for each value of `given`."""
        return self._bindings.settled(
            names_of(self._clause.value), (t.name for t in given if isinstance(t, Var)), ()
        )

    # The variables and the sources of their values.

    def _receive(self, term: Term, values: Values) -> None:
        if isinstance(term, Var):
            self._add(term.name, lambda: values)
        else:
            # A pattern is compared: its variables are parts of a value that is read whole.
            self._patterns(term, _At())
            self.reader.compare(
                [self._value(term, _At()) if isinstance(term, Scalar) else OPAQUE, values]
            )

    def _add(
        self,
        name: str,
        values: Callable[[], Values],
        kind: Kind = Kind.VALUE,
        at: _At | None = None,
        names: frozenset[str] = frozenset(),
        *,
        single: bool = True,
    ) -> None:
        scope = at.scope if at else ()
        names |= {n for withs in (at.withs if at else ()) for w in withs for n in names_of(w.value)}
        self._bindings.add(name, Source(kind, scope, values, names, single))

    def _gather(self, body: Body, at: _At) -> None:
        for line in body:
            within = at.under(line.withs)
            if line.negated:
                within = self._enter(within)  # a negated expression binds nothing outside of it
            self._lines.append((line, within))
            for modifier in line.withs:
                self._occur(modifier.value, at)
            match line.what:
                case Call(("eq" | "equal" | "assign",), (left, right)):
                    self._equate(left, right, within)
                case Call() as call:
                    self._outcome(call, within)
                case Every() as every:
                    self._every(every, within)
                case Logic(operands=operands):
                    for operand in operands:
                        self._gather(operand, self._enter(within))
                case term:
                    self._occur(term, within)

    def _equate(self, left: Term, right: Term, at: _At) -> None:
        match left, right:
            case Var(one), Var(other):
                self._bindings.unite(one, other, at.scope)
                return
            case (Var(name), term) | (term, Var(name)):
                self._add(name, partial(self._value, term, at), at=at, names=names_of(term))
        for term in (left, right):
            self._occur(term, at)
            self._patterns(term, at)

    def _patterns(self, term: Term, at: _At) -> None:
        for name in pattern_names(term):
            self._add(name, _opaque, Kind.PATTERN, at)

    def _outcome(self, call: Call, at: _At) -> None:
        for term in call.arguments:
            self._occur(term, at)
        size = self.reader.size(call.operator)
        if not call.arguments or (size is not None and size >= len(call.arguments)):
            return
        *given, last = call.arguments
        if isinstance(last, Var):
            values = partial(self._result, call, at) if size is not None else _opaque
            names = frozenset[str]().union(*map(names_of, given))
            single = call.operator != ("walk",) and not self._contexts.may_mock(at.withs)
            self._add(last.name, values, at=at, names=names, single=single)
        else:
            self._patterns(last, at)

    def _every(self, every: Every, at: _At) -> None:
        self._occur(every.domain, at)
        inside = self._enter(at)
        if every.key is not None:
            keys = partial(self._value, every.domain, at)
            self._add(every.key.name, lambda: keys_of(keys()), Kind.KEY, inside)
        elements = partial(self._element, every.domain, at)
        self._add(every.value.name, elements, Kind.KEY, inside)
        self._gather(every.body, inside)

    def _element(self, domain: Term, at: _At) -> Values:
        found = select(self._value(domain, at), (EACH,))
        self.reader.need(found, Level.SHAPE, "every")
        return found

    def _enter(self, at: _At) -> _At:
        self._scopes += 1
        return replace(at, scope=(*at.scope, self._scopes))

    def _occur(self, term: Term, at: _At) -> None:
        """Visit the variables of a term's references, and the bodies of its closures."""
        match term:
            case Ref():
                self._steps(term, at)
            case Items():
                for item in term.items:
                    self._occur(item, at)
            case Pairs():
                for pair in term.pairs:
                    self._occur(pair[0], at)
                    self._occur(pair[1], at)
            case Closure() if (id(term), at.withs) not in self._closures:
                self._closures[id(term), at.withs] = inside = self._enter(at)
                self._gather(term.body, inside)
                if term.key is not None:
                    self._occur(term.key, inside)
                self._occur(term.value, inside)

    def _steps(self, ref: Ref, at: _At) -> None:
        self._occur(ref.head, at)
        for number, part in enumerate(ref.parts):
            if isinstance(part, Var):
                above = Ref(ref.head, ref.parts[:number])
                self._add(part.name, partial(self._keys_below, above, at), Kind.KEY, at)
            else:
                self._occur(part, at)
                self._patterns(part, at)

    def _keys_below(self, above: Ref, at: _At) -> Values:
        if above == Ref(Var("data"), ()):
            return OPAQUE  # and not all rules below `data`
        return keys_of(self._reach(above, at))

    # The reads of the lines.

    def _line(self, line: Expr, at: _At) -> None:
        match line.what:
            case Call() as call:
                self._call(call, at)
            case Every(domain=domain):
                self._element(domain, at)
                self.reader.need(self._value(domain, at), Level.SHAPE, "every")
            case Logic():
                return  # the lines of its operands are visited as lines of their own
            case term:
                self.reader.need(self._value(term, at), Level.SHAPE, "tested")

    def _call(self, call: Call, at: _At) -> None:
        values = [self._value(term, at) for term in call.arguments]
        name = ".".join(call.operator)
        if name in builtins.EQUAL and len(values) == 2:  # noqa: PLR2004 - left and right
            if not any(isinstance(term, Var) for term in call.arguments):
                self.reader.compare(values)
        else:
            self._result(call, at)

    def _result(self, call: Call, at: _At) -> Values:
        """Record the reads of a call; return the values of its output."""
        size, context = self.reader.size(call.operator), self._contexts.within(at.withs)
        instead = context.mock(call.operator)
        if instead is None:
            values = [self._value(term, at) for term in call.arguments[:size]]
            return self.reader.apply(call.operator, values, size, context)
        found = self._mocked(call, instead, at)
        if size is not None:
            return found
        # It is not known which argument is the output, so any argument that is read is read whole.
        self.reader.need(found, Level.WHOLE, "with a builtin")
        return OPAQUE

    def _mocked(self, call: Call, instead: Name | Values, at: _At) -> Values:
        if isinstance(instead, frozenset):
            for term in call.arguments:
                self._value(term, at)
            return instead
        size = self.reader.size(call.operator)
        size = self.reader.size(instead) if size is None else size
        values = [self._value(term, at) for term in call.arguments[:size]]
        return self.reader.apply_instead(instead, values, size, self._contexts.within(at.withs))

    # The possible values of terms.

    def _value(self, term: Term, at: _At) -> Values:
        known = (id(term), at.withs)
        if known in self._known:
            return self._known[known]
        if known in self._open:
            # The keys of two variables depend on each other: any key is right here, but not beyond.
            self._cut = True
            return OPAQUE
        self._open.add(known)
        found = self._find(term, at)
        self._open.discard(known)
        self._cut = self._cut and bool(self._open)
        if not self._cut:
            self._known[known] = found
        return found

    def _find(self, term: Term, at: _At) -> Values:
        match term:
            case Var(name):
                found = self._bindings.values(name)
            case Ref():
                found = self._reach(term, at)
                self.reader.need(found, Level.SHAPE, "read")
            case Closure():
                found = self._closure(term, at)
            case _:
                found = self._literal(term, at)
        return found

    def _literal(self, term: Scalar | Items | Pairs, at: _At) -> Values:
        if isinstance(term, Scalar):
            return SCALAR if term.text is None else frozenset([Text(term.text)])
        if isinstance(term, Pairs):
            pairs = ((self._value(key, at), self._value(value, at)) for key, value in term.pairs)
            members = union(self.reader.member(key, value) for key, value in pairs)
            return members or frozenset([Box()])
        items = tuple(self._value(item, at) for item in term.items)
        return frozenset([Row(items)]) if term.kind == "array" else self.reader.set_of(union(items))

    def _closure(self, closure: Closure, at: _At) -> Values:
        inside = self._closures[id(closure), at.withs]
        value = self._value(closure.value, inside)
        if closure.kind == "set":
            return self.reader.set_of(value)
        if closure.key is None:
            return frozenset([Box(rest=value)])
        given = [closure.key.name] if isinstance(closure.key, Var) else []
        if not self._bindings.settled(names_of(closure.value), given, inside.scope):
            self.reader.need(value, Level.WHOLE, "compared where a key comes twice")
        return self.reader.member(self._value(closure.key, inside), value)

    def _reach(self, ref: Ref, at: _At) -> Values:
        """Return the values that a reference leads to."""
        keys = [self._keys(part, at) for part in ref.parts]
        if ref.head == Var("data"):
            return self.reader.world.document(keys, self._contexts.within(at.withs))
        whole = ref.head == Var("input")
        found = self._contexts.within(at.withs).input if whole else self._value(ref.head, at)
        for key in keys:
            found = select(found, key)
        return found

    def _keys(self, part: Term, at: _At) -> tuple[Key, ...]:
        values = self._value(part, at)
        if not isinstance(part, Var):
            self.reader.need(values, Level.WHOLE, "key")
        return possible_keys(values)


def _opaque() -> Values:
    return OPAQUE
