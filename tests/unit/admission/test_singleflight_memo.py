from __future__ import annotations

from typing import Any

import msgspec
import pytest

from kube_sync.admission import singleflight as memo_module
from kube_sync.admission.review import Review, parse_review
from kube_sync.admission.singleflight import Memo
from kube_sync.admission.verdict import Operation
from tests.fakes.reviews import body

SPEC: dict[str, Any] = {"schedulerName": "a", "tolerations": [{"key": "x"}], "priority": 0}
POD = {"group": "", "version": "v1", "kind": "Pod"}
USER = {"username": "alice", "groups": ["g"]}


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def memo(clock: Clock) -> Memo:
    return Memo(clock)


def _review(spec: Any = SPEC, /, **request: Any) -> Review:
    metadata = {"name": "web", "labels": request.pop("labels", {"app": "web"})}
    document = {"metadata": metadata, "spec": spec}
    defaults = {"userInfo": USER, "namespace": "shop", "kind": POD}
    return parse_review(body(document, **(defaults | request)))


def _add(path: str, value: Any, op: Any = "add") -> Operation:
    return Operation(op, path, msgspec.Raw(msgspec.json.encode(value)))


def test_what_was_admitted_is_known_again(memo: Memo) -> None:
    assert not memo.contains(_review())
    memo.note(_review(), ())
    assert memo.contains(_review())
    assert memo.contains(_review({**reversed_(SPEC)}, uid="another"))


def reversed_(spec: dict[str, Any]) -> dict[str, Any]:
    return dict(reversed(spec.items()))


def test_it_is_known_with_what_was_patched_and_the_priority_that_follows(memo: Memo) -> None:
    patch = (
        _add("/spec/nodeSelector", {"a/b": "1"}),
        _add("/spec/nodeSelector/c~1d", "2"),
        _add("/spec/tolerations/-", {"key": "z"}),
        _add("/spec/tolerations/1", {"key": "y"}),
        _add("/spec/tolerations/0", {"key": "w"}, "replace"),
        Operation("remove", "/spec/priority"),
        Operation("remove", "/spec/tolerations/2"),
        _add("/spec/priorityClassName", "gold"),
    )
    memo.note(_review(), patch)
    patched = {
        "schedulerName": "a",
        "tolerations": [{"key": "w"}, {"key": "y"}],
        "nodeSelector": {"a/b": "1", "c/d": "2"},
        "priorityClassName": "gold",
    }
    assert memo.contains(_review(patched | {"priority": 1000, "preemptionPolicy": "Never"}))
    assert not memo.contains(_review())


@pytest.mark.parametrize(
    ("spec", "request_of_it"),
    [
        (SPEC | {"schedulerName": "b"}, {}),
        (SPEC | {"serviceAccountName": "other"}, {}),
        (SPEC, {"namespace": "other"}),
        (SPEC, {"labels": {"app": "other"}}),
        (SPEC, {"userInfo": USER | {"username": "bob"}}),
        (SPEC, {"userInfo": USER | {"groups": []}}),
        (SPEC, {"kind": {"group": "", "version": "v1", "kind": "Other"}}),
        (SPEC, {"operation": "UPDATE"}),
        (SPEC, {"subResource": "binding"}),
    ],
)
def test_what_differs_in_anything_that_matters_is_asked_about(
    memo: Memo, spec: Any, request_of_it: dict[str, Any]
) -> None:
    memo.note(_review(), ())
    assert not memo.contains(_review(spec, **request_of_it))


def test_it_is_forgotten_soon(memo: Memo, clock: Clock) -> None:
    memo.note(_review(), ())
    clock.now += 4.9
    assert memo.contains(_review())
    clock.now += 0.2
    assert not memo.contains(_review())


def test_no_more_is_remembered_than_fits(memo: Memo, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memo_module, "_MOST", 2)
    for name in "abc":
        memo.note(_review({"schedulerName": name}), ())
    assert [memo.contains(_review({"schedulerName": name})) for name in "abc"] == [
        False,
        True,
        True,
    ]


@pytest.mark.parametrize(
    "operation",
    [
        _add("/metadata/labels", {}),
        Operation("remove", "/spec/nothing"),
        Operation("copy", "/spec/a", from_="/spec/schedulerName"),
        _add("/spec/schedulerName/a", 1),
        _add("/spec/tolerations/x", {}),
        Operation("add", "/spec/nothing"),
    ],
)
def test_a_patch_that_cannot_be_followed_is_not_remembered(
    memo: Memo, operation: Operation
) -> None:
    memo.note(_review(), (operation,))
    assert not memo.contains(_review())


@pytest.mark.parametrize("document", [None, {"metadata": {}}, {"metadata": {}, "spec": []}])
def test_what_has_no_spec_is_not_remembered(memo: Memo, document: Any) -> None:
    review = parse_review(body(document))
    memo.note(review, ())
    assert not memo.contains(review)
