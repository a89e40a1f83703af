from __future__ import annotations

import msgspec

from kube_sync.decisions.classes import Members
from kube_sync.objects import ObjectKey

A, B = ObjectKey("ns", "a"), ObjectKey("ns", "b")


def _members() -> Members:
    members = Members()
    members.classify(bytes)
    return members


def test_equal_classes_are_counted_once_and_kept_once() -> None:
    members = _members()
    for key in (A, B):
        members.note(key, members.read(bytes(bytearray(b"class")), f"uid-{key.name}"))
    one, other = members.of(A), members.of(B)
    assert one is not None
    assert other is not None
    assert one.kind is other.kind
    assert (one.uid, other.uid) == ("uid-a", "uid-b")
    assert (members.known, members.classes) == (2, 1)


def test_class_without_objects_is_no_class() -> None:
    members = _members()
    members.note(A, members.read(b"one", "u"))
    members.note(A, members.read(b"two", "u"))
    assert members.classes == 1
    members.note(A, None)
    assert (members.known, members.classes, members.of(A)) == (0, 0, None)


def test_what_was_read_by_an_earlier_classifier_is_unknown() -> None:
    """Its write may have been on the way when the policies changed."""
    members = _members()
    early = members.read(b"one", "u")
    assert members.classify(bytes.upper)
    members.note(A, early)
    assert members.of(A) is None


def test_same_classifier_again_forgets_nothing() -> None:
    members = _members()
    members.note(A, members.read(b"one", "u"))
    assert not members.classify(bytes)
    assert members.known == 1


def test_object_that_cannot_be_read_is_unknown() -> None:
    def broken(body: bytes) -> bytes:
        return bytes(msgspec.json.decode(body))

    members = Members()
    members.classify(broken)
    assert members.read(b"{", "u") is None


def test_without_a_classifier_nothing_is_known() -> None:
    assert not Members().is_classifying
    assert Members().read(b"{}", "u") is None


def test_classes_of_a_load_are_adopted_as_a_whole() -> None:
    members = _members()
    members.note(A, members.read(b"one", "u"))
    loading = members.fresh()
    for key in (A, B):
        loading.note(key, loading.read(b"two", f"uid-{key.name}"))
    assert members.known == 1  # nothing of a load counts before it is complete
    members.adopt(loading)
    assert (members.known, members.classes) == (2, 1)
    found = members.of(B)
    assert found is not None
    assert (found.kind, found.uid) == (b"two", "uid-b")
    members.note(B, None)
    assert (members.known, members.classes) == (1, 1)


def test_classes_of_a_load_by_an_earlier_classifier_are_unknown() -> None:
    members = _members()
    loading = members.fresh()
    loading.note(A, loading.read(b"one", "u"))
    members.classify(bytes.upper)
    members.adopt(loading)
    assert (members.known, members.classes, members.of(A)) == (0, 0, None)


def test_objects_are_told_by_class_and_apart_from_those_without() -> None:
    members = _members()
    others = [ObjectKey("ns", "c"), ObjectKey("ns", "d")]
    members.note(A, members.read(b"one", "u"))
    members.note(B, members.read(b"two", "u"))
    members.note(others[0], members.read(b"one", "u"))
    assert members.by_class() == {b"one": ([A, others[0]], ["u", "u"]), b"two": ([B], ["u"])}
    assert members.without({A, B, *others}) == [others[1]]
    assert members.without({A, B, others[0]}) == []


def test_whatever_may_change_a_class_begins_another_revision() -> None:
    members, other = _members(), _members()
    seen = {members.revision, other.revision}
    assert len(seen) == 2, "of two collections none is the same"
    loading = members.fresh()
    for change in (
        lambda: members.note(A, members.read(b"one", "u")),
        lambda: members.note(A, None),
        lambda: members.adopt(loading),
        lambda: members.classify(bytes.upper),
    ):
        change()
        assert members.revision not in seen
        seen.add(members.revision)
    members.of(A)
    members.by_class()
    assert members.revision in seen
