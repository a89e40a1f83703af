"""Whatever policies come and go, who writes in between: what was asked for is the last request."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from kube_sync.admission.answer import allow, trespass
from kube_sync.admission.asking import asked, view
from kube_sync.admission.review import Review
from kube_sync.decisions.decision import REQUESTED, Decision
from kube_sync.decisions.requested import restored
from kube_sync.remediator.plan import Amend, Apply, Current, Wanted, after, plan
from tests.fakes.reviews import create, resource, stored, update

REMEDIATOR = "remediator"
KEYS = ("a", "b")


@dataclass(frozen=True)
class Policy:
    """Gives objects those of its letters that they ask for, under its keys; * is all of them."""

    letters: str
    keys: frozenset[str]

    def decide(self, annotations: dict[str, str]) -> Decision:
        return Decision({key: self._some(annotations.get(key, "*")) for key in self.keys})

    def _some(self, asked_for: str) -> str:
        wanted = self.letters if asked_for == "*" else asked_for
        return "".join(sorted(set(wanted) & set(self.letters)))


@dataclass
class World:
    """One object, the policy in force, and what the object's owner wrote last."""

    policy: Policy = field(default_factory=lambda: Policy("xyz", frozenset("a")))
    annotations: dict[str, str] = field(default_factory=dict)
    requests: dict[str, str] = field(default_factory=dict)

    def decide(self) -> Decision:
        return self.policy.decide(restored(self.annotations))

    def admit(self, review: Review, sent: dict[str, str]) -> None:
        decision = self.policy.decide(dict(asked(review, REMEDIATOR).annotations))
        assert bool(view(review, REMEDIATOR))
        found = stored(resource(sent), allow(review, decision, REMEDIATOR))
        self.annotations = found["metadata"].get("annotations", {})

    def create(self) -> None:
        """Copy the object as it stands, as `kubectl get -o yaml | kubectl create -f -` does."""
        self.admit(create(resource(self.annotations)), self.annotations)
        # What no policy decides any more is stored as it was asked for.
        self.unchanged(create(resource(self.annotations)))

    def write(self, changes: dict[str, str | None], *, note: str | None) -> None:
        """Update as the owner; the note may get lost, or be made up."""
        sent = {k: v for k, v in (self.annotations | changes).items() if v is not None}
        sent.pop(REQUESTED, None)
        sent |= {} if note is None else {REQUESTED: note}
        for key in changes:
            if sent.get(key) != self.annotations.get(key):
                self.requests.pop(key, None)
                self.requests |= {key: sent[key]} if key in sent else {}
        old = resource(self.annotations)
        self.admit(update(resource(sent), old), sent)
        self.unchanged(update(resource(self.annotations), resource(self.annotations)))

    def unchanged(self, review: Review) -> None:
        before = self.annotations
        self.admit(review, before)
        assert self.annotations == before
        assert trespass(review, self.decide(), REMEDIATOR) is None

    def remediate(self, *, admitted: bool) -> None:
        wanted = Wanted("u", self.decide())
        for _ in range(3):
            step = plan(wanted, Current("u", self.annotations))
            if not isinstance(step, Apply | Amend):
                break
            sent = after(step, Current("u", self.annotations))
            if admitted:
                old = resource(self.annotations)
                self.admit(update(resource(sent), old, REMEDIATOR), sent)
            else:
                self.annotations = sent
        assert plan(wanted, Current("u", self.annotations)) == plan(wanted, None)  # nothing
        decided = self.decide().annotations
        assert decided.items() <= self.annotations.items()


_policies = st.builds(
    Policy,
    st.lists(st.sampled_from("xyz"), min_size=1, unique=True).map("".join),
    st.frozensets(st.sampled_from(KEYS)),
)
_values = st.none() | st.sampled_from(["x", "xy", "yz", "xyz", "*"])
_changes = st.dictionaries(st.sampled_from([*KEYS, "own"]), _values)
_notes = st.none() | st.sampled_from(["{", '{"a":"forged","own":"forged"}'])
_steps = st.lists(
    st.one_of(
        st.builds(lambda policy: ("policy", policy), _policies),
        st.builds(lambda changes, note: ("write", (changes, note)), _changes, _notes),
        st.builds(lambda admitted: ("remediate", admitted), st.booleans()),
        st.just(("copy", None)),
    ),
    max_size=12,
)


@settings(deadline=None)  # a machine that does other things is no mistake
@given(_steps)
def test_what_is_asked_for_is_what_its_owner_wrote_last(steps: list[tuple[str, object]]) -> None:
    world = World()
    for name, value in steps:
        match name, value:
            case "policy", Policy():
                world.policy = value
            case "write", (dict(changes), (None | str()) as note):
                world.write(changes, note=note)
            case "remediate", bool(admitted):
                world.remediate(admitted=admitted)
            case _:
                world.create()
        assert restored(world.annotations) == world.requests, (name, value)
