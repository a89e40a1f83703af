"""What is told of one object, as a value: what is printed, in whichever form."""

from __future__ import annotations

from dataclasses import dataclass, field

from kube_sync.decisions.evaluator import Outcome
from kube_sync.decisions.explaining import Rule
from kube_sync.decisions.inputs import Input
from kube_sync.objects import ObjectKey
from kube_sync.planning.canaries import InEffect
from kube_sync.reasoning.search import Search


@dataclass(frozen=True, slots=True)
class Seen:
    """A value that an expression saw, as JSON text; None: nothing was there."""

    term: str
    value: str | None


@dataclass(frozen=True, slots=True)
class Against:
    """An expression of a rule that speaks against a cluster: by not holding, or by holding."""

    file: str
    row: int
    rule: str
    text: str
    holds: bool
    saw: tuple[Seen, ...] = ()


@dataclass(frozen=True, slots=True)
class Standing:
    """How one cluster fares: chosen or not, what the policy says of it, and what was derived."""

    cluster: ObjectKey
    chosen: bool
    said: str = ""
    against: tuple[Against, ...] = ()


@dataclass(frozen=True, slots=True)
class Told:
    """The decision on one object, how it came about, and how clusters fare."""

    resource: str
    key: ObjectKey
    outcome: Outcome
    decided: tuple[str, ...]  # clusters
    has: tuple[str, ...]
    pending: str  # what differs between what is decided and what it has; empty: nothing
    rules: tuple[Rule, ...] = ()
    rules_failure: str | None = None
    inputs: tuple[Input, ...] = ()
    inputs_failure: str | None = None
    standings: tuple[Standing, ...] = ()
    compared: str = ""  # what the reasons that were derived are derived from, or why there are none
    search: Search | None = None
    canary: InEffect | None = None  # that decides on it; None: what is in force does
    notes: tuple[str, ...] = field(default=())
