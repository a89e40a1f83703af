from __future__ import annotations

import pytest

from kube_sync.objects import ObjectKey
from kube_sync.replicator.held import Held

A, B = ObjectKey("ns", "a"), ObjectKey("ns", "b")


@pytest.mark.parametrize("digested", [False, True])
def test_version_is_the_one_that_was_put_last(*, digested: bool) -> None:
    held = Held(digested=digested)
    held.put(A, "9", b"{}")
    held.put(A, "10", b"{}")
    assert (held.version(A), held.version(B)) == ("10", None)
    assert held.has_version(A, "10")
    assert not held.has_version(A, "9")
    assert not held.has_version(B, "")
    assert (list(held), len(held), A in held, B in held) == ([A], 1, True, False)


def test_body_is_known_by_its_digest_whatever_its_version() -> None:
    held = Held(digested=True)
    held.put(A, "1", b"one")
    held.renew(A, "2")
    assert held.has_body(A, b"one")
    assert held.version(A) == "2"
    assert not held.has_body(A, b"two")
    assert not held.has_body(B, b"one")


def test_without_digests_no_body_is_known() -> None:
    held = Held()
    held.put(A, "1", b"one")
    assert not held.has_body(A, b"one")
    assert not held.has_body(A, b"")


def test_what_is_removed_is_not_held() -> None:
    held = Held(digested=True)
    held.put(A, "1", b"one")
    assert held.remove(A)
    assert not held.remove(A)
    assert held.version(A) is None
    assert not held.has_body(A, b"one")
