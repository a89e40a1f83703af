"""Whatever policies come and go, who writes in between: what was asked for is the last request."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kube_sync.admission.requested_values import as_remediated, asked, proven, view
from kube_sync.admission.response import allow, differing, trespass
from kube_sync.admission.review import Review
from kube_sync.decisions.decision import REQUESTED, Decision
from kube_sync.decisions.requested import requested_annotations
from kube_sync.decisions.sealing import Place, Seals
from kube_sync.kube.meta import Amend, Apply
from kube_sync.remediation.plan import Current, Wanted, after, plan
from tests.fakes.reviews import create, resource, stored, update

REMEDIATOR = "remediator"
PLACE = Place("", "", "", "")
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

    seals: Seals = field(default_factory=Seals)
    policy: Policy = field(default_factory=lambda: Policy("xyz", frozenset("a")))
    annotations: dict[str, str] = field(default_factory=dict)
    requests: dict[str, str] = field(default_factory=dict)

    @property
    def restored(self) -> dict[str, str]:
        """What is asked for, as whoever reads the stored object takes it."""
        if self.seals.is_required and not self.seals.has_valid_seal(self.annotations, PLACE):
            return {k: v for k, v in self.annotations.items() if k != REQUESTED}
        return requested_annotations(self.annotations)

    @property
    def current(self) -> Current:
        """As the remediator takes it."""
        annotations = self.annotations
        if self.seals.is_required and not self.seals.has_valid_seal(annotations, PLACE):
            annotations = {k: v for k, v in annotations.items() if k != REQUESTED}
        return Current("u", annotations)

    def decide(self) -> Decision:
        return self.policy.decide(self.restored)

    def admit(self, review: Review, sent: dict[str, str]) -> None:
        review = proven(review, self.seals)
        decision = self.policy.decide(dict(asked(review, REMEDIATOR).annotations))
        assert bool(view(review, REMEDIATOR))
        found = stored(resource(sent), allow(review, decision, REMEDIATOR, self.seals))
        self.annotations = found["metadata"].get("annotations", {})
        self.checked(msgspec.structs.replace(review, annotations=self.annotations))

    def checked(self, review: Review) -> None:
        """See that whoever checks what is to be stored finds it as it was decided."""
        review = as_remediated(proven(review, self.seals))
        decision = self.policy.decide(dict(asked(review, REMEDIATOR).annotations))
        assert differing(review, decision, REMEDIATOR, self.seals) == []

    def plant(self, annotations: dict[str, str]) -> None:
        """Write past the webhook, note and all; without seals such a note is believed."""
        if self.seals.is_required:
            self.annotations = self.annotations | annotations
            self.requests = self.restored

    def create(self) -> None:
        """Copy the object as it stands, as `kubectl get -o yaml | kubectl create -f -` does."""
        self.requests = requested_annotations(self.annotations)  # a note that is sent is a request
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
            step = plan(wanted, self.current, PLACE, self.seals)
            if not isinstance(step, Apply | Amend):
                break
            sent = after(step, self.current)
            if admitted:
                old = resource(self.annotations)
                self.admit(update(resource(sent), old, REMEDIATOR), sent)
            else:
                self.annotations = sent
        assert plan(wanted, self.current, PLACE, self.seals) == plan(wanted, None)  # nothing
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
_planted = st.dictionaries(
    st.sampled_from([*KEYS, "own"]), st.sampled_from(["x", "xyz"])
) | st.builds(lambda note: {REQUESTED: note}, st.sampled_from(['{"a":"x"}', '{"own":null}', "{"]))
_steps = st.lists(
    st.one_of(
        st.builds(lambda policy: ("policy", policy), _policies),
        st.builds(lambda changes, note: ("write", (changes, note)), _changes, _notes),
        st.builds(lambda admitted: ("remediate", admitted), st.booleans()),
        st.just(("copy", None)),
        st.builds(lambda planted: ("plant", planted), _planted),
    ),
    max_size=12,
)


@pytest.fixture(scope="module")
def sealing(tmp_path_factory: pytest.TempPathFactory) -> Seals:
    file = tmp_path_factory.mktemp("seals") / "key"
    file.write_text("k" * 43, encoding="utf-8")
    return Seals(str(file))


@settings(deadline=None)  # a machine that does other things is no mistake
@given(_steps, st.sampled_from(["sealed", "unsealed"]))
def test_what_is_asked_for_is_what_its_owner_wrote_last(
    sealing: Seals, steps: list[tuple[str, object]], notes: str
) -> None:
    world = World(seals=sealing if notes == "sealed" else Seals())
    for name, value in steps:
        match name, value:
            case "policy", Policy():
                world.policy = value
            case "write", (dict(changes), (None | str()) as note):
                world.write(changes, note=note)
            case "plant", dict(planted):
                world.plant(planted)
            case "remediate", bool(admitted):
                world.remediate(admitted=admitted)
            case _:
                world.create()
        assert world.restored == world.requests, (name, value)
