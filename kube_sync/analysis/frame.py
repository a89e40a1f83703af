"""One evaluation of one body: what its variables are, and what it reads of them.

Keeps true: every reference of a body is read at least for its presence and type, in whatever
order OPA evaluates; what is compared, or handed to a builtin that is not known, is read whole.
What the rules behind a reference read is the World's to find.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

from kube_sync.analysis import builtins
from kube_sync.analysis.bindings import Bindings, Kind, Scope, Source
from kube_sync.analysis.context import Context, Name
from kube_sync.analysis.handed import Level, handed_on, weigh
from kube_sync.analysis.paths import EACH, Key, Path
from kube_sync.analysis.syntax import (
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
    Unreadable,
    Var,
    With,
)
from kube_sync.analysis.values import (
    OPAQUE,
    SCALAR,
    Box,
    Place,
    Row,
    Text,
    Values,
    keys_of,
    possible_keys,
    select,
    union,
)
from kube_sync.analysis.variables import names_of, pattern_names


@dataclass(frozen=True, slots=True)
class Asker:
    """The rule that reads."""

    module: str
    rule: str
    number: int


class World(Protocol):
    """What surrounds a body: the other rules, and the account of what is read."""

    def need(self, place: Place, level: Level, why: str, asker: Asker) -> None:
        """Note what is read."""
        ...

    def use(self, builtin: str, asker: Asker) -> None:
        """Note which builtin is called."""
        ...

    def document(self, keys: Sequence[tuple[Key, ...]], context: Context) -> Values:
        """Return what lies below `data` under these keys."""
        ...

    def arity(self, function: Path) -> int | None:
        """Return the number of arguments of a function of the policies, None if it is none."""
        ...

    def call(self, function: Path, arguments: Sequence[Values], context: Context) -> Values:
        """Return what a function of the policies returns."""
        ...


@dataclass(frozen=True, slots=True)
class _At:
    scope: Scope = ()
    withs: tuple[tuple[With, ...], ...] = ()

    def under(self, withs: tuple[With, ...]) -> _At:
        return replace(self, withs=(*self.withs, withs)) if withs else self


def need(world: World, values: Values, level: Level, why: str, asker: Asker) -> None:
    """Note that so much of these values is read, and of what they are made of."""
    for atom in values:
        match atom:
            case Place():
                world.need(atom, level, why, asker)
            case Row(items) if level is Level.WHOLE:
                need(world, union(items), level, why, asker)
            case Box(members, rest) if level is Level.WHOLE:
                below = union((rest, *(member for _, member in members)))
                need(world, below, level, why, asker)


# A term, by its identity, and what `with` replaces there.
_Known = tuple[int, tuple[tuple[With, ...], ...]]


class Frame:
    """One body with its arguments, in one context."""

    def __init__(
        self,
        world: World,
        clause: Clause,
        asker: Asker,
        context: Context,
        arguments: Sequence[Values],
    ) -> None:
        self._world = world
        self._asker = asker
        self._context = context
        self._bindings = Bindings()
        self._lines: list[tuple[Expr, _At]] = []
        self._known: dict[_Known, Values] = {}
        self._open: set[_Known] = set()
        self._cut = False
        self._contexts: dict[tuple[tuple[With, ...], ...], Context] = {}
        self._scopes = 0
        self._closures: dict[_Known, _At] = {}
        for term, values in zip(clause.arguments, arguments, strict=True):
            self._receive(term, values)
        self._gather(clause.body, _At())
        self._occur(clause.value, _At())
        self._clause = clause

    def read(self) -> Values:
        """Note all that the body reads; return its value."""
        for line, at in self._lines:
            self._line(line, at)
        for compared in self._bindings.compared():
            self._compare(compared)
        return self.value(self._clause.value)

    def value(self, term: Term) -> Values:
        """Return what a term of the head can be."""
        return self._value(term, _At())

    def mention(self, term: Term) -> None:
        """Take a term of the head into account that is not its value."""
        self._occur(term, _At())

    def settled(self, given: Sequence[Term]) -> bool:
        """Tell whether the value of the head is one for each value of `given`."""
        return self._bindings.settled(
            names_of(self._clause.value), (t.name for t in given if isinstance(t, Var)), ()
        )

    def need(self, values: Values, level: Level, why: str) -> None:
        """Note that so much of these values is read."""
        need(self._world, values, level, why, self._asker)

    # Which variables there are, and where they get their values from.

    def _receive(self, term: Term, values: Values) -> None:
        if isinstance(term, Var):
            self._add(term.name, lambda: values)
        else:
            # A pattern: it is compared, and its variables are parts of what is then read whole.
            self._patterns(term, _At())
            self._compare(
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
                within = self._enter(within)  # what it would need to hold binds nothing outside
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
        size = self._size(call)
        if not call.arguments or (size is not None and size >= len(call.arguments)):
            return
        *given, last = call.arguments
        if isinstance(last, Var):
            values = partial(self._result, call, at) if size is not None else _opaque
            names = frozenset[str]().union(*map(names_of, given))
            single = call.operator != ("walk",) and not self._may_mock(at)
            self._add(last.name, values, at=at, names=names, single=single)
        else:
            self._patterns(last, at)

    def _every(self, every: Every, at: _At) -> None:
        self._occur(every.domain, at)
        inside = self._enter(at)
        if every.key is not None:
            keys = partial(self._keys_of, every.domain, at)
            self._add(every.key.name, keys, Kind.KEY, inside)
        elements = partial(self._element, every.domain, at)
        self._add(every.value.name, elements, Kind.KEY, inside)
        self._gather(every.body, inside)

    def _keys_of(self, domain: Term, at: _At) -> Values:
        return keys_of(self._value(domain, at))

    def _element(self, domain: Term, at: _At) -> Values:
        found = select(self._value(domain, at), (EACH,))
        self.need(found, Level.SHAPE, "every")
        return found

    def _enter(self, at: _At) -> _At:
        self._scopes += 1
        return replace(at, scope=(*at.scope, self._scopes))

    def _occur(self, term: Term, at: _At) -> None:
        """Note what a term holds: the variables of its references, and its closures' bodies."""
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
            return OPAQUE  # and not every rule there is
        return keys_of(self._reach(above, at))

    # What the lines read.

    def _line(self, line: Expr, at: _At) -> None:
        match line.what:
            case Call() as call:
                self._call(call, at)
            case Every(domain=domain):
                self._element(domain, at)
                self.need(self._value(domain, at), Level.SHAPE, "every")
            case Logic():
                return  # the lines of its operands are lines of their own
            case term:
                self.need(self._value(term, at), Level.SHAPE, "tested")

    def _call(self, call: Call, at: _At) -> None:
        values = [self._value(term, at) for term in call.arguments]
        name = ".".join(call.operator)
        if name in builtins.EQUAL and len(values) == 2:  # noqa: PLR2004 - left and right
            if not any(isinstance(term, Var) for term in call.arguments):
                self._compare(values)
        else:
            self._result(call, at)

    def _compare(self, compared: Sequence[Values]) -> None:
        weigh(compared, self.need)

    def _size(self, call: Call) -> int | None:
        """Return how many arguments there are beside an output, None where that is not known."""
        match call.operator:
            case ("data", *path):
                return self._world.arity(tuple(path))
            case names:
                name = ".".join(names)
                known = {
                    **builtins.SCALAR,
                    **builtins.PARTIAL,
                    **dict.fromkeys(builtins.COMPARE, 2),
                }
                return known.get(name)

    def _result(self, call: Call, at: _At) -> Values:
        """Note what a call reads; return what its output is."""
        size, context = self._size(call), self._within(at)
        instead = context.mock(call.operator)
        if instead is None:
            values = [self._value(term, at) for term in call.arguments[:size]]
            return self._applied(call.operator, values, size, context)
        found = self._mocked(call, instead, at)
        if size is not None:
            return found
        # Nobody knows which argument is the output, so it is any that is read whole.
        self.need(found, Level.WHOLE, "with a builtin")
        return OPAQUE

    def _mocked(self, call: Call, instead: Name | Values, at: _At) -> Values:
        if isinstance(instead, frozenset):
            for term in call.arguments:
                self._value(term, at)
            return instead
        size = self._size(call)
        size = self._size(Call(instead, call.arguments)) if size is None else size
        values = [self._value(term, at) for term in call.arguments[:size]]
        if instead[0] == "data" and self._world.arity(instead[1:]) is None:
            # A rule: it is evaluated where the function would have been.
            found = self._world.document([(name,) for name in instead[1:]], self._within(at))
            self.need(found, Level.SHAPE, "with a function")
            return found
        # What is called in place of a function calls functions as they are.
        return self._applied(instead, values, size, self._within(at).unmocked())

    def _applied(
        self, function: Name, values: Sequence[Values], size: int | None, context: Context
    ) -> Values:
        """Note what a function reads of its arguments; return what its output is."""
        if function[0] == "data":
            return self._world.call(tuple(function[1:]), values, context)
        name = ".".join(function)
        self._world.use(name, self._asker)
        if name in builtins.PARTIAL and len(values) == size:
            return handed_on(name, values, self.need)
        if name in builtins.COMPARE:
            self._compare(values)
            return OPAQUE
        level = Level.SHAPE if name in builtins.SCALAR else Level.WHOLE
        for value in values:
            self.need(value, level, name)
        return OPAQUE

    # What terms can be.

    def _value(self, term: Term, at: _At) -> Values:
        known = (id(term), at.withs)
        if known in self._known:
            return self._known[known]
        if known in self._open:
            # Two variables whose keys depend on each other: any key is right here, but not beyond.
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
                self.need(found, Level.SHAPE, "read")
            case Closure():
                found = self._closure(term, at)
            case _:
                found = self._literal(term, at)
        return found

    def _literal(self, term: Scalar | Items | Pairs, at: _At) -> Values:
        if isinstance(term, Scalar):
            return SCALAR if term.text is None else frozenset([Text(term.text)])
        if isinstance(term, Pairs):
            members = union(self._member(key, value, at) for key, value in term.pairs)
            return members or frozenset([Box()])
        items = tuple(self._value(item, at) for item in term.items)
        return frozenset([Row(items)]) if term.kind == "array" else self._set(union(items))

    def _set(self, elements: Values) -> Values:
        """Elements that are equal are one: a set compares them."""
        self.need(elements, Level.WHOLE, "put into a set")
        return frozenset([Box(rest=elements)])

    def _member(self, key: Term, value: Term, at: _At) -> Values:
        return self.member(self._value(key, at), self._value(value, at))

    def member(self, key: Values, value: Values) -> Values:
        """Return an object with one member."""
        self.need(key, Level.WHOLE, "key of an object")
        names = possible_keys(key)
        if names == (EACH,):
            return frozenset([Box(rest=value)])
        return frozenset([Box(members=tuple((name or "", value) for name in names))])

    def _closure(self, closure: Closure, at: _At) -> Values:
        inside = self._closures[id(closure), at.withs]
        value = self._value(closure.value, inside)
        if closure.kind == "set":
            return self._set(value)
        if closure.key is None:
            return frozenset([Box(rest=value)])
        given = [closure.key.name] if isinstance(closure.key, Var) else []
        if not self._bindings.settled(names_of(closure.value), given, inside.scope):
            self.need(value, Level.WHOLE, "compared where a key comes twice")
        return self.member(self._value(closure.key, inside), value)

    def _reach(self, ref: Ref, at: _At) -> Values:
        """Return what a reference leads to."""
        keys = [self._keys(part, at) for part in ref.parts]
        if ref.head == Var("data"):
            return self._world.document(keys, self._within(at))
        whole = ref.head == Var("input")
        found = self._within(at).input if whole else self._value(ref.head, at)
        for key in keys:
            found = select(found, key)
        return found

    def _keys(self, part: Term, at: _At) -> tuple[Key, ...]:
        values = self._value(part, at)
        if not isinstance(part, Var):
            self.need(values, Level.WHOLE, "key")
        return possible_keys(values)

    # What `with` changes.

    def _within(self, at: _At) -> Context:
        if not at.withs:
            return self._context
        if at.withs not in self._contexts:
            outer = replace(at, withs=at.withs[:-1])
            context = self._within(outer)
            for modifier in at.withs[-1]:
                value = partial(self._value, modifier.value, outer)
                context = self._replace(context, modifier, value)
            self._contexts[at.withs] = context
        return self._contexts[at.withs]

    def _replace(self, context: Context, modifier: With, value: Callable[[], Values]) -> Context:
        path = tuple(_spelt(modifier.target.parts))
        match modifier.target.head:
            case Var("input"):
                return replace(context, input=self._overlaid(context.input, path, value()))
            case Var("data") if self._world.arity(path) is None:
                self.need(value(), Level.WHOLE, "with data")
                return replace(context, replaced=context.replaced | {path})
            case Var(head):
                return context.mocking((head, *path), self._named(modifier.value) or value())
            case _:
                msg = "a with whose target is no name"
                raise Unreadable(msg)

    def _named(self, term: Term) -> Name | None:
        """Return the function or rule that a term names, None where it is a value.

        OPA puts any other reference that stands for a function into a variable beforehand.
        """
        match term:
            case Ref(Var(head), parts) if head != "input" and not self._bindings.is_bound(head):
                return (head, *_spelt(parts))
            case Ref():
                msg = "a with that replaces a function by a reference"
                raise Unreadable(msg)
            case _:
                return None

    def _may_mock(self, at: _At) -> bool:
        """Tell whether another function may be called there than a line says."""
        targets = (modifier.target for withs in at.withs for modifier in withs)
        return bool(self._context.mocks) or any(map(self._is_function, targets))

    def _is_function(self, target: Ref) -> bool:
        if target.head == Var("data"):
            return self._world.arity(tuple(_spelt(target.parts))) is not None
        return target.head != Var("input")

    def _overlaid(self, old: Values, path: Path, value: Values) -> Values:
        if not path:
            return value
        self.need(old, Level.SHAPE, "with input")
        for key in reversed(path):
            value = self.member(frozenset([Text(key or "")]), value)
        return old | value


def _opaque() -> Values:
    return OPAQUE


def _spelt(parts: Sequence[Term]) -> Iterator[str]:
    for part in parts:
        if not isinstance(part, Scalar) or part.text is None:
            msg = "a with whose target is computed"
            raise Unreadable(msg)
        yield part.text
